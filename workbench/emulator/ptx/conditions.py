"""The conditions of a kernel that hang on its parameters and on the shape of the launch alone, and what they become.

A forward pass over the instructions in order: each register that is written once has a value for every launch that is
asked about, as an array; what depends on memory, on a loop or on anything unknown has none. So a ``setp`` on an extent
is found wherever the value went before: through moves, conversions, shifts, products, remainders and masks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .tree import Address, Function, Immediate, Instruction, Negated, Operand, Register, Special, Symbol

Values = npt.NDArray[np.int64]
"""One value for each launch, as a signed number of 64 bits."""

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater},
    **{"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}
_LOGIC: dict[str, Callable[[Any, Any], Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def conditions(kernel: Function, known: Mapping[str, Values], joined: bool = False) -> dict[int, npt.NDArray[np.bool_]]:
    """Of each ``setp`` of whole numbers whose operands are known: by its line in the PTX, the outcome of each launch.

    ``known``: values by the name of a parameter or of a special register such as ``%nctaid.x``, all of one shape.
    ``joined``: also of ``and``, ``or`` and the like of such outcomes."""
    writes = Counter(op for i in kernel.instructions for op in _results(i))
    found: dict[int, npt.NDArray[np.bool_]] = {}
    values: dict[Register, Values] = {}
    with np.errstate(all="ignore"):
        for instruction in kernel.instructions:
            results = _results(instruction)
            if instruction.guard is not None or len(results) != 1 or writes[results[0]] != 1:
                continue
            try:
                value = _value(instruction, values, known)
            except (ArithmeticError, ValueError):  # numbers that no 64 bits hold: nothing is known of them
                value = None
            if value is not None:
                values[results[0]] = value
                if instruction.parts[0] == "setp" or (joined and results[0].type == "pred"):
                    found[instruction.line] = np.broadcast_to(value != 0, _shape(known))
    return found


def _shape(known: Mapping[str, Values]) -> tuple[int, ...]:
    return next((values.shape for values in known.values()), ())


def _results(instruction: Instruction) -> list[Register]:
    first = instruction.operands[0] if instruction.operands else None
    elements = getattr(first, "elements", (first,))
    return [op for op in elements if isinstance(op, Register)]


def _value(instruction: Instruction, values: Mapping[Register, Values], known: Mapping[str, Values]) -> Values | None:
    parts, operands = instruction.parts, instruction.operands
    name, kind = parts[0], parts[-1]
    if name == "ld":
        match operands[1:]:
            case [Address(base=Symbol(name=parameter), offset=0)] if "param" in parts:
                return known.get(parameter)
        return None
    sources = [_source(op, values, known) for op in operands[1:]]
    if any(source is None for source in sources) or not sources:
        return None
    if kind == "pred":
        return _predicate(name, [source for source in sources if source is not None])
    if kind[0] not in "sub" or not kind[1:].isdigit():
        return None
    given = [_as(source, kind) for source in sources if source is not None]
    if name == "setp":
        joined = next((p for p in parts[2:-1] if p in _LOGIC), None)
        outcome = _COMPARISONS[parts[1]](given[0], given[1]) if parts[1] in _COMPARISONS else None
        if outcome is None or len(given) > 2 + bool(joined):
            return None
        return np.asarray(_LOGIC[joined](outcome, given[2] != 0) if joined else outcome).astype(np.int64)
    return _number(name, parts, kind, given)


def _predicate(name: str, given: list[Values]) -> Values | None:
    if name == "not":
        return 1 - given[0]
    return np.asarray(_LOGIC[name](*given[:2])) if name in _LOGIC else given[0] if name == "mov" else None


def _source(operand: Operand, values: Mapping[Register, Values], known: Mapping[str, Values]) -> Values | None:
    if isinstance(operand, Register):
        return values.get(operand)
    if isinstance(operand, Special):
        return known.get(operand.name)
    if isinstance(operand, Negated):
        inner = _source(operand.operand, values, known)
        return None if inner is None else 1 - inner
    if isinstance(operand, Immediate) and operand.width == 0:
        return np.array((operand.value + 2**63) % 2**64 - 2**63, np.int64)
    return None


def _as(value: Values, kind: str) -> Values:
    """The low bits of a value as a number of a type; unsigned ones of 64 bits stay as they are."""
    bits = int(kind[1:])
    if bits == 64:
        return value
    low = value & ((1 << bits) - 1)
    return np.where(low >> (bits - 1) & 1, low - (1 << bits), low) if kind[0] == "s" else low


def _number(name: str, parts: tuple[str, ...], kind: str, given: list[Values]) -> Values | None:
    """The result of an instruction on whole numbers; None for one that is not known."""
    one, bits = given[0], int(kind[1:])
    two = given[1] if len(given) > 1 else one
    if name in ("mov", "cvt", "cvta"):
        return _as(one, parts[1]) if name == "cvt" and len(parts) == 3 and parts[1][1:].isdigit() else one
    if name in ("mul", "mad"):
        wide = one * two if bits < 64 or "lo" in parts else None
        if wide is None:
            return None
        product = wide if "wide" in parts else _as(wide >> bits if "hi" in parts else wide, kind)
        return product if name == "mul" else np.asarray(product + given[2])
    if name in ("div", "rem"):
        safe = np.where(two == 0, 1, two)
        quotient = np.sign(one) * np.sign(safe) * (np.abs(one) // np.abs(safe))
        return np.asarray(quotient if name == "div" else one - quotient * safe)
    if name == "selp":
        return np.where(given[2] != 0, one, two)
    if name == "shl":
        return _as(one << np.minimum(two, 63), kind)
    simple: dict[str, Callable[[], Any]] = {
        "add": lambda: _as(one + two, kind),
        "sub": lambda: _as(one - two, kind),
        "min": lambda: np.minimum(one, two),
        "max": lambda: np.maximum(one, two),
        "shr": lambda: one >> np.minimum(two, 63),
        "neg": lambda: -one,
        "abs": lambda: np.abs(one),
        "not": lambda: _as(~one, kind),
        "popc": lambda: np.bitwise_count(one).astype(np.int64),
    }
    if name in _LOGIC:
        return np.asarray(_LOGIC[name](one, two))
    return np.asarray(simple[name]()) if name in simple else None
