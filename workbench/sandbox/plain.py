"""Problems and launches as plain data, for the process in which the Python code of stages runs.

What comes from there is built here by value, piece by piece: whoever wrote it is not trusted."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..model.arrays import Array
from ..model.dtypes import DTYPES, dtype_of
from ..model.launch import Argument, Launch, Plan
from ..model.problem import Problem, parsed
from ..model.tensor_map import Im2col, TensorMap

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
"""What an array, a kernel and a parameter may be called."""

KERNEL = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,999}")

MOST_LAUNCHES, MOST_ARGUMENTS, MOST_SCRATCH, MOST_DIMENSIONS, MOST_SIZES = 4096, 1024, 256, 8, 1000

MOST_STRUCT_BYTES = 4096
"""Of all arguments of a kernel."""

MOST_BYTES = 1 << 37
"""Of one scratch array: more than any device has."""

MOST_TEXT = 2000
"""Characters of a reason or of a message."""

SCALARS = {t.numpy.name: t.numpy for t in DTYPES.values()}
"""Types of numbers that a kernel may be passed, by their names in NumPy."""


class OffSchema(ValueError):
    """The answer of a stage is not what it has to be; the message says which part."""


# ------------------------------------------------------------------------------------------------ problems


def all_words(problem: Problem) -> dict[str, str]:
    """The fields of a problem as text."""
    return {f.name: problem.text(f.name) for f in dataclasses.fields(problem)}


def words(problem: Problem) -> dict[str, str]:
    """The fields of a problem as text, without those of its inputs: nothing that tells what is in them."""
    return {name: text for name, text in all_words(problem).items() if name not in problem.of_inputs()}


def problem_of(kind: type[Problem], given: Any, *, whole: bool = False) -> Problem:
    """The problem of these fields; those of its inputs are the default ones, unless it is `whole`. Raises OffSchema and
    ProblemError."""
    defaults = {f.name: f.default for f in dataclasses.fields(kind)}
    read = {}
    for name, value in _mapping(given, "a problem", MOST_SIZES).items():
        if name not in defaults or (name in kind.of_inputs() and not whole):
            raise OffSchema(f"a problem has no field {_short(name)}")
        read[name] = parsed(name, defaults[name], text_of(value, f"field {name}"))
    return kind(**read)


# ------------------------------------------------------------------------------------------------ plans, to be sent


def encoded(made: Any) -> dict[str, Any]:
    """A launch or a plan as plain data. Raises TypeError for what is neither, or holds what cannot be sent."""
    plan = Plan((made,)) if isinstance(made, Launch) else made
    if not isinstance(plan, Plan):
        raise TypeError(f"it has to return a Launch or a Plan, not {type(made).__name__}")
    return {
        "launches": [_launch(launch) for launch in plan.launches],
        "scratch": {str(name): _scratch(array) for name, array in plan.scratch.items()},
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "kernel": str(launch.kernel),
        **{name: _size(launch, name) for name in ("grid", "block", "cluster", "shared_bytes")},
        "persistent": bool(launch.persistent),
        "programmatic": bool(launch.programmatic),
        "args": [_argument(a, f"parameter {i} of {launch.kernel}") for i, a in enumerate(launch.args)],
    }


def _size(launch: Launch, name: str) -> Any:
    try:
        return numbers(getattr(launch, name))
    except TypeError as error:
        raise TypeError(f"{name} of {launch.kernel}: {error}") from None


def _argument(argument: Any, parameter: str) -> Any:
    if isinstance(argument, str):
        return str(argument)
    if isinstance(argument, np.generic):
        return {"type": argument.dtype.name, "bits": argument.tobytes().hex()}
    if isinstance(argument, TensorMap):
        made = {f.name: numbers(getattr(argument, f.name)) for f in dataclasses.fields(argument) if f.name != "box"}
        box = argument.box
        if isinstance(box, Im2col):
            return made | {"im2col": {f.name: numbers(getattr(box, f.name)) for f in dataclasses.fields(box)}}
        return made | {"box": numbers(box)}
    raise TypeError(
        f"{parameter}: an argument is the name of an array, a NumPy scalar or a TensorMap, not "
        f"{type(argument).__name__}: write np.int32(n) for a number"
    )


def _scratch(array: Array) -> dict[str, Any]:
    return {"shape": numbers(array.shape), "dtype": array.dtype.name, "zero": bool(array.zero)} | {
        name: numbers(getattr(array, name)) for name in ("leading", "strides") if getattr(array, name) is not None
    }


def numbers(value: Any) -> Any:
    """Numbers, words and tuples of them, without what NumPy adds to them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Sequence):
        return [numbers(one) for one in value]
    raise TypeError(f"{value!r} is no whole number")


# ------------------------------------------------------------------------------------------------ plans, received


def plan_of(given: Any, arrays: Mapping[str, Array]) -> Plan:
    """The plan that was sent, for a problem with these arrays. Raises OffSchema."""
    plan = _record(given, "the launch", {"launches", "scratch"})
    scratch = {}
    for name, array in _mapping(plan["scratch"], "scratch", MOST_SCRATCH).items():
        if name in arrays:
            raise OffSchema(f"the scratch array {name} has the name of an array of the problem")
        scratch[name] = _array_of(name, array)
    launches = [_launch_of(one) for one in _list(plan["launches"], "launches", MOST_LAUNCHES)]
    if not launches:
        raise OffSchema("there is no launch")
    return Plan(tuple(launches), scratch)


def _launch_of(given: Any) -> Launch:
    names = {"kernel", "grid", "block", "cluster", "shared_bytes", "persistent", "programmatic", "args"}
    launch = _record(given, "a launch", names)
    kernel = text_of(launch["kernel"], "the name of a kernel")
    if not KERNEL.fullmatch(kernel):
        raise OffSchema(f"the kernel is called {_short(kernel)}")
    grid, block, cluster = (_dim3(launch[name], f"{name} of {kernel}") for name in ("grid", "block", "cluster"))
    args = tuple(_argument_of(a, kernel) for a in _list(launch["args"], f"args of {kernel}", MOST_ARGUMENTS))
    shared = whole(launch["shared_bytes"], f"shared_bytes of {kernel}")
    flags = (flag(launch[name], f"{name} of {kernel}") for name in ("persistent", "programmatic"))
    return Launch(kernel, grid, block, args, shared, cluster, *flags)


def _dim3(given: Any, what: str) -> tuple[int, int, int]:
    sizes = _wholes(given, what)
    if len(sizes) != 3:
        raise OffSchema(f"{what} has {len(sizes)} sizes; it has to have three, along x, y and z")
    return sizes[0], sizes[1], sizes[2]


def _argument_of(given: Any, kernel: str) -> Argument:
    what = f"an argument of {kernel}"
    if type(given) is str:
        return _name(given, what)
    if type(given) is not dict or not given:
        raise OffSchema(f"{what} is {_short(given)}")
    return _number_of(given, what) if "bits" in given else _map_of(given, what)


def _number_of(given: Any, what: str) -> Any:
    number = _record(given, what, {"type", "bits"})
    name, bits = text_of(number["type"], what), text_of(number["bits"], what, 2 * MOST_STRUCT_BYTES)
    if (size := name.removeprefix("void")) != name:  # a struct: its bytes
        if not re.fullmatch(r"([0-9a-f]{2})+", bits) or size != str(4 * len(bits)):
            raise OffSchema(f"{what}, a struct of {_short(size)} bits, is made of {_short(bits)}")
        return np.frombuffer(bytes.fromhex(bits), f"V{len(bits) // 2}")[0]
    if name not in SCALARS:
        raise OffSchema(f"{what} is of type {_short(name)}; it may be one of {', '.join(SCALARS)}")
    if not re.fullmatch(r"[0-9a-f]*", bits) or len(bits) != 2 * SCALARS[name].itemsize:
        raise OffSchema(f"{what} of type {name} is made of {_short(bits)}")
    return np.frombuffer(bytes.fromhex(bits), SCALARS[name])[0]


def _map_of(given: Any, what: str) -> TensorMap:
    box = "im2col" if "im2col" in given else "box"
    names = {f.name for f in dataclasses.fields(TensorMap) if f.name != "box"}
    read = _record(given, what, names | {box})
    parts: dict[str, Any] = {n: whole(read[n], n) for n in ("swizzle", "promotion", "offset")}
    for name in ("element_strides", "shape", "strides"):
        parts[name] = None if read[name] is None else _wholes(read[name], name)
    if read["fill"] not in ("zero", "nan") or read["element_type"] not in (None, "tf32"):
        raise OffSchema(
            f"the tensor map of {what} has fill {_short(read['fill'])}, type {_short(read['element_type'])}"
        )
    tile: Any = _wholes(read["box"], "box") if box == "box" else None
    if tile is None:
        im2col = _record(read["im2col"], "im2col", {f.name for f in dataclasses.fields(Im2col)})
        tile = Im2col(
            _wholes(im2col["lower"], "lower"),
            _wholes(im2col["upper"], "upper"),
            whole(im2col["channels"], "channels"),
            whole(im2col["pixels"], "pixels"),
        )
    array = _name(text_of(read["array"], what), what)
    return TensorMap(array, tile, fill=read["fill"], element_type=read["element_type"], **parts)


def _reach(shape: Sequence[int], leading: int | None, strides: Sequence[int] | None) -> int:
    """Elements that an array holds or reaches over, whichever are more; of one that may be none, so that nothing is
    made of it before it has been found to be small."""
    held = math.prod(map(abs, shape))
    if strides is not None:
        return max(held, sum(abs(extent * step) for extent, step in zip(shape, strides, strict=False)))
    return max(held, math.prod(map(abs, shape[:-1])) * abs(leading)) if leading is not None else held


def _array_of(name: str, given: Any) -> Array:
    what = f"the scratch array {_name(name, 'scratch')}"
    if type(given) is not dict:
        raise OffSchema(f"{what} is {_short(given)}")
    read = _record(given, what, {"shape", "dtype", "zero"} | (given.keys() & {"leading", "strides"}))
    dtype = text_of(read["dtype"], what)
    if dtype not in DTYPES:
        raise OffSchema(f"{what} has elements of type {_short(dtype)}")
    strides = _wholes(read["strides"], what) if "strides" in read else None
    leading = whole(read["leading"], what) if "leading" in read else None
    shape = _wholes(read["shape"], what)
    if _reach(shape, leading, strides) * dtype_of(dtype).itemsize > MOST_BYTES:
        raise OffSchema(f"{what} of shape {shape} is larger than any device")
    try:
        return Array(shape, dtype_of(dtype), leading, output=True, zero=flag(read["zero"], what), strides=strides)
    except (ValueError, MemoryError) as error:
        raise OffSchema(f"{what}: {error}") from None


# ------------------------------------------------------------------------------------------------ parts


def whole(given: Any, what: str) -> int:
    """A whole number of at most 62 bits. Raises OffSchema."""
    if type(given) is not int or abs(given) >= 1 << 62:
        raise OffSchema(f"{what} is {_short(given)}; it has to be a whole number below 2^62")
    return given


def flag(given: Any, what: str) -> bool:
    """True or False. Raises OffSchema."""
    if type(given) is not bool:
        raise OffSchema(f"{what} is {_short(given)}; it has to be true or false")
    return given


def text_of(given: Any, what: str, most: int = MOST_TEXT) -> str:
    """A text of at most so many characters. Raises OffSchema."""
    if type(given) is not str:
        raise OffSchema(f"{what} is {_short(given)}; it has to be text")
    if len(given) > most:
        raise OffSchema(f"{what} has {len(given):,} characters; {most:,} are allowed")
    return given


def sizes_of(given: Any, what: str) -> dict[str, int]:
    """Whole numbers by name. Raises OffSchema."""
    read = _mapping(given, what, MOST_SIZES)
    return {_name(name, what): whole(value, f"{name} in {what}") for name, value in read.items()}


def _wholes(given: Any, what: str) -> tuple[int, ...]:
    return tuple(whole(one, what) for one in _list(given, what, MOST_DIMENSIONS))


def _name(given: str, what: str) -> str:
    if not NAME.fullmatch(given):
        raise OffSchema(f"{what} has the name {_short(given)}")
    return given


def _list(given: Any, what: str, most: int) -> list[Any]:
    if type(given) is not list:
        raise OffSchema(f"{what} is {_short(given)}; it has to be a list")
    if len(given) > most:
        raise OffSchema(f"{what} has {len(given):,} parts; {most:,} are allowed")
    return given


def _mapping(given: Any, what: str, most: int) -> dict[str, Any]:
    if type(given) is not dict:
        raise OffSchema(f"{what} is {_short(given)}; it has to be a mapping")
    if len(given) > most:
        raise OffSchema(f"{what} has {len(given):,} parts; {most:,} are allowed")
    return given


def _record(given: Any, what: str, names: set[str]) -> dict[str, Any]:
    read = _mapping(given, what, MOST_SIZES)
    if set(read) != names:
        raise OffSchema(f"{what} has the parts {_short(sorted(read))}; it has to have {', '.join(sorted(names))}")
    return read


def _short(given: Any) -> str:
    shown = repr(given) if not isinstance(given, dict | list) or len(given) < 20 else f"a {type(given).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
