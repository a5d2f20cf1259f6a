"""`workbench emulate`: any kernel, from a shell. Arguments are written as text; arrays come from and go to files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .. import emulator
from ..model.errors import WorkbenchError, WrongUsage

DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{letter}{bits}": np.dtype(f"{letter}{bits // 8}") for letter in "iu" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
FILLS = ("zeros", "ones", "random", "arange", "nan", "uninitialised")
_ARGUMENT = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:)?\s*(?P<type>\w+)\s*(?P<shape>\[[^\]]*\])?"
    r"\s*(?:=(?!>)\s*(?P<value>.*?))?\s*(?:=>\s*(?P<save>.+?))?\s*"
)
NOT_EXECUTED = (
    emulator.CompileError,
    emulator.CompilerUnavailable,
    emulator.PtxSyntaxError,
    emulator.UnsupportedInstruction,
)
"""What `emulator.launch` raises where there is nothing to execute."""

_EXAMPLE = "write for example f32[1024]=random, f32[64,32] => out.npy or i32=1024"


class UsageError(WrongUsage, ValueError):
    """An argument of the command that cannot be understood; the message says what would be right."""


class NotExecuted(WorkbenchError):
    """A source that the emulator cannot execute, or a compiler that is missing; the message says what and where."""


@dataclass
class Argument:
    """One `--arg`: the value for `emulator.launch`, its name, the array behind it, and where that is saved."""

    name: str
    value: Any
    array: np.ndarray[Any, Any] | None = None
    save: Path | None = None


def parse_dimensions(text: str, what: str) -> tuple[int, ...]:
    """`4,2` as numbers. Raises UsageError."""
    try:
        numbers = tuple(int(part) for part in re.split(r"[,x]", text))
    except ValueError:
        raise UsageError(f"{what} {text!r} is not one to three whole numbers; write for example {what} 4,2") from None
    if not 1 <= len(numbers) <= 3:
        raise UsageError(f"{what} {text!r} has {len(numbers)} numbers; one to three are allowed")
    return numbers


def parse_argument(text: str, number: int, rng: np.random.Generator) -> Argument:
    """One argument as `workbench emulate --help` describes it. Raises UsageError and OSError."""
    match = _ARGUMENT.fullmatch(text)
    if not match:
        raise UsageError(f"--arg {text!r} is not an argument; {_EXAMPLE}")
    name = match["name"] or f"a{number}"
    if match["type"] not in DTYPES:
        raise UsageError(f"--arg {text!r}: there is no type {match['type']!r}; the types are {', '.join(DTYPES)}")
    dtype, value = DTYPES[match["type"]], match["value"]
    save = Path(match["save"]) if match["save"] else None
    from_file = value is not None and value.startswith("@")
    if match["shape"] is None and not from_file:
        if save:
            raise UsageError(f"--arg {text!r}: a number is not changed, only an array can be saved; {_EXAMPLE}")
        return Argument(name, _number(text, value, match["type"]))
    shape = _shape(text, match["shape"]) if match["shape"] is not None else None
    if shape is not None and prod(shape) * dtype.itemsize > 2**33:
        raise UsageError(f"--arg {text!r} has {prod(shape) * dtype.itemsize} bytes; 2^33 are allowed")
    if from_file:
        assert value is not None
        array = _from_file(text, value[1:], dtype, shape)
    else:
        assert shape is not None
        array = _filled(text, value or "uninitialised", dtype, shape, rng)
    passed = emulator.Output(array) if value in (None, "", "uninitialised") else array
    return Argument(name, passed, array, save)


def _shape(text: str, brackets: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in brackets[1:-1].split(","))
    except ValueError:
        shape = (-1,)
    if any(extent < 0 for extent in shape):
        raise UsageError(f"--arg {text!r}: the shape {brackets} is not whole numbers with commas; {_EXAMPLE}")
    return shape


def _number(text: str, value: str | None, type_name: str) -> Any:
    if not value:
        raise UsageError(
            f"--arg {text!r} has neither a shape nor a value; write {type_name}=1 for a number or {type_name}[1] for "
            "an array"
        )
    dtype = DTYPES[type_name]
    try:
        if dtype.kind in "iu":
            return np.array(int(value, 0), dtype)[()]
        return np.array(float(value)).astype(dtype)[()]
    except (ValueError, OverflowError):
        raise UsageError(f"--arg {text!r}: {value!r} is not a number that {type_name} holds") from None


def _filled(
    text: str, fill: str, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    whole = dtype.kind in "iu"
    if fill == "nan" and whole:
        raise UsageError(f"--arg {text!r}: integers have no NaN; the fills are {', '.join(FILLS)}")
    if fill in ("zeros", "uninitialised"):
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "nan":
        return np.full(shape, np.nan).astype(dtype)
    if fill == "arange":
        return np.arange(prod(shape)).reshape(shape).astype(dtype)
    if fill == "random":
        if whole:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return rng.standard_normal(shape).astype(dtype)
    raise UsageError(
        f"--arg {text!r}: there is no fill {fill!r}; the fills are {', '.join(FILLS)} or @file.npy, and a number has "
        "no shape"
    )


def _from_file(text: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    try:
        array = np.load(name, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(f"--arg {text!r}: {name} is not a .npy file ({error})") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"--arg {text!r}: {name} holds several arrays; save one with numpy.save")
    if dtype.isbuiltin != 1 and array.dtype.kind in "uV" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # numpy.save knows only the bytes of types that are not NumPy's own
    if array.dtype != dtype:
        raise UsageError(f"--arg {text!r}: {name} holds {array.dtype}, not {dtype}; convert it with astype")
    if shape is not None and array.shape != shape:
        raise UsageError(f"--arg {text!r}: {name} has the shape {list(array.shape)}; leave the shape out to take it")
    return np.array(array)


@dataclass
class Emulation:
    """What one `workbench emulate` is asked to do."""

    file: Path
    entry: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Argument]
    shared_bytes: int = 0
    cluster: tuple[int, ...] = (1, 1, 1)
    defines: dict[str, str] = field(default_factory=dict)
    include: Sequence[Path] = ()
    options: Sequence[str] = ()
    seed: int = 0
    counters: bool = False
    trace: emulator.Traced | None = None
    max_seconds: float | None = None
    arch: str | None = None

    def run(self) -> emulator.Report:
        """Runs it and saves the arrays that are to be saved. Raises UsageError, NotExecuted and OSError."""
        names = [argument.name for argument in self.arguments]
        if len(set(names)) < len(names):
            raise UsageError(f"two arguments have the same name: {', '.join(names)}")
        report = self._launch()
        for argument in self.arguments:
            if argument.save is not None and argument.array is not None:
                array = argument.array
                with argument.save.open("wb") as stream:
                    np.save(stream, array if array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}"))
        return report

    def _launch(self) -> emulator.Report:
        try:
            return emulator.launch(
                self.file,
                self.entry,
                self.grid,
                self.block,
                {argument.name: argument.value for argument in self.arguments},
                shared=self.shared_bytes,
                cluster=self.cluster,
                defines=self.defines,
                include=self.include,
                options=self.options,
                seed=self.seed,
                counters=self.counters,
                trace=self.trace,
                max_seconds=self.max_seconds,
                arch=self.arch,
            )
        except (emulator.ArchitectureError, emulator.ArgumentError, emulator.LaunchError) as error:
            raise UsageError(str(error)) from None
        except NOT_EXECUTED as error:
            raise NotExecuted(str(error)) from None


def plain(array: np.ndarray[Any, Any]) -> list[Any]:
    """The elements as Python's numbers."""
    listed: list[Any] = (array if array.dtype.kind in "iu" else array.astype(np.float64)).tolist()
    return listed


def parse_slice(text: str) -> slice:
    """`0:8` as a slice. Raises UsageError."""
    match = re.fullmatch(r"(-?\d*):(-?\d*)(?::(-?\d+))?", text)
    if not match or match[3] in ("0", "-0"):
        raise UsageError(f"--print {text!r} is not a range of elements; write for example --print 0:8")
    return slice(*(int(part) if part and part != "-" else None for part in match.groups()))


def parse_defines(defines: Sequence[str]) -> dict[str, str]:
    """`X=1` or `X`. Raises UsageError."""
    found = {}
    for text in defines:
        name, _, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*(\([^)]*\))?", name):
            raise UsageError(f"--define {text!r} names no macro; write for example --define TILE=16")
        found[name] = value if "=" in text else "1"
    return found
