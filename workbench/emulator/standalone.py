"""One call that runs a kernel on NumPy arrays and reports what was wrong with it.

y = np.empty_like(x)
report = launch("scale.cu", "scale", grid=4, block=256, args={"x": x, "y": Output(y), "n": x.size})
print(report)
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from . import ptx
from .allocation import Allocation
from .arguments import ArgumentError
from .counters import Counters
from .execution import Checks, execute
from .explain.words import say_count
from .fault import KernelFault
from .findings import Finding, Severity
from .launch_checks import Dimensions, LaunchError
from .memory import Memory
from .program import Entry, Program
from .source import kernel_name, load
from .statistics import Statistics
from .tensor_map import ELEMENT_TYPES, PixelBox, TensorMap
from .trace import Traced

__all__ = ["MOST_FINDINGS", "MOST_WARP_INSTRUCTIONS", "Argument", "Output", "Report", "TensorMapOf", "launch"]

MOST_WARP_INSTRUCTIONS = 100_000_000
"""Of one block, before it counts as hung: some seconds."""
MOST_FINDINGS = 20
"""Failures after which a launch ends, unless another number is asked for."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Output:
    """An array that the kernel is to fill: reading an element before one was stored is a hazard.

    After the launch ``array`` holds what was stored; elements where nothing was stored keep their value.
    """

    array: Array

    def __post_init__(self) -> None:
        if not isinstance(self.array, np.ndarray):
            raise ArgumentError(f"an Output holds a NumPy array, not {type(self.array).__name__}")
        if not self.array.flags.writeable:
            raise ArgumentError("an Output's array must be writeable")


@dataclass(frozen=True, slots=True)
class TensorMapOf:
    """A tensor map over an array: an argument of type ``const __grid_constant__ CUtensorMap``.

    ``array`` is an array (or ``Output``), or the name of one among the arguments. ``box`` has the elements of a tile
    in each dimension, and ``shape`` those that the map covers (all of the array's when None), both in the array's
    order: outermost first. A ``PixelBox`` as the box, outermost first too, makes it an im2col map.
    ``swizzle`` is 0, 32, 64 or 128 bytes. The element type follows from the array's; ``nan_fill`` and
    ``element_strides`` are those of ``TensorMap``.
    """

    array: Array | Output | str
    box: Sequence[int] | PixelBox
    swizzle: int = 0
    shape: Sequence[int] | None = None
    element_strides: Sequence[int] | None = None
    nan_fill: bool = False


Argument = Array | Output | TensorMapOf | np.generic | int | float | bool | bytes | None
"""What a parameter of a kernel is given:

- an array of any dtype and shape: its elements are copied to emulated memory in C order, and back into the array after
  the launch. An array that is not writeable is one that the kernel must not write. The same array twice is the same
  memory twice;
- ``Output(array)``: the same, and nothing has been stored there yet;
- ``TensorMapOf(array, box)``: a tensor map by value;
- a number, Python's or NumPy's, which is converted to the parameter's type where that keeps its value (floats are
  rounded); bytes or a ``np.void`` for a struct; None for a null pointer.
"""


@dataclass(slots=True)
class Report:
    """What a launch did.

    ``findings`` lists what was found, of any severity, in the order found. ``strict``: whether strict findings are
    failures. ``statistics`` counts executed warp instructions, up to the finding that stopped the launch where one
    did. ``str(report)`` is the whole of it as text.
    """

    kernel: str
    findings: list[Finding]
    statistics: Statistics
    arguments: dict[str, Array] = field(repr=False)
    strict: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing was found that is a failure: no error, and nothing strict where that was asked for."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        """The findings that are failures: errors, and strict ones where strict rules were asked for."""
        failing = {Severity.ERROR, Severity.STRICT} if self.strict else {Severity.ERROR}
        return [finding for finding in self.findings if finding.severity in failing]

    @property
    def counters(self) -> Counters:
        """Exact counts of memory accesses and more. Raises ValueError unless the launch was asked for ``counters``."""
        return self.statistics.counters

    @property
    def output(self) -> str:
        """What the kernel printed, in the order of execution."""
        return self.statistics.output

    def by_line(self) -> Counter[tuple[str, int]]:
        """Executed warp instructions by file and line of the CUDA source."""
        return self.statistics.by_line()

    def by_opcode(self) -> Counter[str]:
        """Executed warp instructions by opcode."""
        return self.statistics.by_opcode()

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        counted: dict[str, Any] = {}
        if self.statistics.counted is not None:
            lines = sorted(self.counters.by_line().items())
            counted["counters"] = dict(self.counters.totals())
            counted["counters_by_line"] = [{"file": file, "line": line, **found} for (file, line), found in lines]
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "output": self.output,
            "strict": self.strict,
            "findings": [{**asdict(f), "code": f.code, "text": str(f)} for f in self.findings],
            "stopped": self.statistics.stopped,
            "suppressed": len(self.statistics.suppressed),
            "unused_suppressions": list(self.statistics.unused),
            "warp_instructions": self.statistics.warp_instructions,
            "resident_blocks": self.statistics.resident_blocks,
            "by_line": [
                {"file": file, "line": line, "warp_instructions": count}
                for (file, line), count in sorted(self.by_line().items())
            ],
            "by_opcode": dict(self.by_opcode().most_common()),
            **counted,
        }

    def __str__(self) -> str:
        executed = f"{self.statistics.warp_instructions:,} warp instructions"
        if self.statistics.stopped:
            executed = f"stopped after {executed}"
        failures = len(self.failures)
        if failures == 0:
            executed = f"no hazard found, {executed}"
        elif not (self.statistics.stopped and len(self.findings) == 1):
            executed = f"{say_count(failures, 'hazard')}, {executed}"
        if others := len(self.findings) - failures:
            executed += f", {say_count(others, 'finding')} that {'is' if others == 1 else 'are'} no failure"
        if suppressed := len(self.statistics.suppressed):
            executed += f", {suppressed} suppressed"
        unused = [f"note: the suppression {text} matched nothing" for text in self.statistics.unused]
        return "\n".join([*map(str, self.findings), f"{self.kernel}: {executed}", *unused])


def launch(
    source: str | PathLike[str] | Program,
    entry: str | None,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Argument] | Mapping[str, Argument],
    *,
    shared: int = 0,
    cluster: Dimensions = (1, 1, 1),
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    seed: int = 0,
    checks: Checks = Checks.ALL,
    raise_on_hazard: bool = False,
    strict: bool = False,
    suppress: str | Sequence[str] = (),
    max_findings: int = MOST_FINDINGS,
    counters: bool = False,
    trace: Traced | None = None,
    max_warp_instructions: int = MOST_WARP_INSTRUCTIONS,
    max_seconds: float | None = None,
) -> Report:
    """Executes a kernel on NumPy arrays and reports its hazards.

    ``source`` is CUDA C++ or PTX as text, the path of a ``.cu`` or ``.ptx`` file, or a ``Program`` that ``load`` made
    (which saves compiling it again). ``entry`` names the kernel, also a template's instance such as ``scale<float>``;
    None stands for the only one. ``grid``, ``block`` and ``cluster`` are up to three numbers, x first; ``shared``
    bytes of dynamic shared memory; ``defines``, ``include`` and ``options``, such as ``-use_fast_math``, are for the
    compiler. ``seed`` draws the order in which warps run: the same seed gives the same run. A block that executes
    more than ``max_warp_instructions``, or a launch that takes longer than ``max_seconds``, counts as hung.
    ``counters`` fills ``Report.counters``, and ``trace`` records ``Report.statistics.timeline``, which
    ``chrome_trace`` makes into what a viewer opens.

    ``args`` has an ``Argument`` for each parameter, in their order. Findings call arrays ``a0``, ``a1``, ... after
    their position, or by their names when ``args`` is a mapping.

    What is found is in the report's ``findings``, or the first failure is raised as ``KernelFault`` when
    ``raise_on_hazard``; arrays then hold what had been stored. Errors are failures, and findings that PTX only forbids
    formally where ``strict``. ``suppress`` leaves findings out (``"race"``, ``"race@kernel.cu:42"``), as the comment
    ``// workbench: allow race`` on a line does. A launch goes on behind a failure where it can, up to ``max_findings``.
    Raises ``ArgumentError`` and ``LaunchError`` for what the device would refuse, and what ``load`` raises.
    """
    program = source if isinstance(source, Program) else _loaded(source, entry, defines, include, options)
    kernel = _find_entry(program, entry)
    arguments = _Arguments(Memory(), _named(args))
    asked: dict[str, Any] = {"seed": seed, "checks": checks, "counters": counters, "trace": trace}
    asked |= {"cluster": cluster, "shared_bytes": shared, "max_seconds": max_seconds, "strict": strict}
    asked |= {"suppress": suppress, "max_findings": max_findings}
    asked["max_warp_instructions"] = max_warp_instructions
    statistics, fault = arguments.passed_to(kernel, grid, block, **asked)
    if fault is not None and raise_on_hazard:
        raise fault
    return Report(kernel.name, list(statistics.findings), statistics, arguments.arrays, strict)


def _loaded(
    source: str | PathLike[str],
    entry: str | None,
    defines: Mapping[str, str | int] | None,
    include: Sequence[str | PathLike[str]],
    options: Sequence[str],
) -> Program:
    """The program, with the instance of a template that ``entry`` names."""
    instance = entry if entry is not None and "<" in entry else None
    return load(source, defines=defines, include=include, options=options, instantiate=instance)


def _named(args: Sequence[Argument] | Mapping[str, Argument]) -> dict[str, Argument]:
    return dict(args) if isinstance(args, Mapping) else {f"a{number}": value for number, value in enumerate(args)}


def _find_entry(program: Program, wanted: str | None) -> Entry:
    names = list(dict.fromkeys(entry.name for entry in program.entries.values()))
    if wanted is None and len(names) == 1:
        return program.entries[names[0]]
    found = kernel_name(program, wanted) if wanted is not None else None
    if found is None:
        listed = ", ".join(sorted(names)) or "none"
        asked = f"there is no kernel {wanted!r}" if wanted is not None else "the kernel must be named"
        raise LaunchError(f"{asked}; the source has: {listed}")
    return program.entries[found]


@dataclass(slots=True)
class _Arguments:
    """The arguments of one launch on their way to emulated memory and back."""

    memory: Memory
    given: Mapping[str, Any]
    placed: list[tuple[Array, Allocation, bool]] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)

    def passed_to(
        self, kernel: Entry, grid: Dimensions, block: Dimensions, **options: Any
    ) -> tuple[Statistics, KernelFault | None]:
        """What the kernel did, and the hazard that ended it; what it stored is copied back.

        ``options`` are those of ``execute``, and it raises what that raises, but for the hazard.
        """
        registers = kernel.program.registers_per_thread.get(kernel.name)
        fault: KernelFault | None = None
        try:
            statistics = execute(
                kernel,
                grid,
                block,
                self.convert(kernel),
                memory=self.memory,
                registers_per_thread=registers,
                **options,
            )
        except KernelFault as hazard:
            if hazard.statistics is None:
                raise
            fault, statistics = hazard, hazard.statistics
        self.copy_back()
        return statistics, fault

    def convert(self, kernel: Entry) -> list[Any]:
        """The arguments as ``launch`` takes them. Raises ``ArgumentError``."""
        for name, value in self.given.items():
            if isinstance(value, np.ndarray | Output):
                self.arrays[name] = _array_of(value)
                self.place(name, value)
        converted: list[Any] = []
        parameters: list[ptx.Parameter | None] = [*kernel.parameters]
        parameters += [None] * (len(self.given) - len(parameters))  # launch says that they are too many
        for (name, value), parameter in zip(self.given.items(), parameters, strict=False):
            if isinstance(value, np.ndarray | Output):
                converted.append(self.place(name, value))
            elif isinstance(value, TensorMapOf):
                converted.append(self.tensor_map(name, value))
            elif parameter is None:
                converted.append(value)
            else:
                converted.append(_value(kernel, name, parameter, value))
        return converted

    def place(self, name: str, value: Array | Output) -> Allocation:
        array = _array_of(value)
        for known, allocation, output in self.placed:
            if known is array:
                if output != isinstance(value, Output):
                    raise ArgumentError(f"{name} is the array {allocation.name}, and only one of them is an Output")
                return allocation
            if (known.flags.writeable or array.flags.writeable) and np.may_share_memory(known, array):
                raise ArgumentError(
                    f"{name} and {allocation.name} are views of the same memory: pass one array, or a copy of one"
                )
        if array.dtype.hasobject:
            raise ArgumentError(f"{name} holds Python objects; a kernel takes numbers")
        if array.dtype.itemsize == 0:
            raise ArgumentError(f"the elements of {name} have no bytes")
        allocation = self.memory.allocate(
            array.nbytes, name, element_size=array.itemsize, shape=array.shape, writable=array.flags.writeable
        )
        if not isinstance(value, Output):
            self.memory.write(allocation, array)
        self.placed.append((array, allocation, isinstance(value, Output)))
        return allocation

    def tensor_map(self, name: str, spec: TensorMapOf) -> TensorMap:
        target = spec.array
        if isinstance(target, str):
            found = self.given.get(target)
            if not isinstance(found, np.ndarray | Output):
                listed = ", ".join(self.arrays) or "none"
                raise ArgumentError(f"the tensor map {name} is of {target!r}, and the array arguments are: {listed}")
            target = found
        else:
            # an argument that is an Output is meant when its bare array is named
            same = [value for value in self.given.values() if isinstance(value, Output) and value.array is target]
            target = same[0] if same else target
        if not isinstance(target, np.ndarray | Output):
            raise ArgumentError(f"the tensor map {name} is of an array or of an argument's name, not of {target!r}")
        array = _array_of(target)
        allocation = self.place(f"{name}'s array", target)
        try:
            shape = tuple(array.shape if spec.shape is None else spec.shape)
            box = spec.box if isinstance(spec.box, PixelBox) else tuple(spec.box)
            if len(shape) != array.ndim or any(n > m for n, m in zip(shape, array.shape, strict=True)):
                raise ValueError(f"the shape {shape} is not part of the array's {array.shape}")
            if isinstance(box, PixelBox):
                box = replace(box, lower=tuple(box.lower)[::-1], upper=tuple(box.upper)[::-1])
            elif len(box) != len(shape):
                raise ValueError(f"the box {box} must have {len(shape)} numbers, outermost first")
            strides = [array.itemsize]
            for extent in array.shape[:0:-1]:
                strides.append(strides[-1] * extent)
            return TensorMap(
                allocation,
                array.itemsize,
                shape[::-1],
                strides[1:],
                box if isinstance(box, PixelBox) else box[::-1],
                None if spec.element_strides is None else tuple(spec.element_strides)[::-1],
                spec.swizzle,
                nan_fill=spec.nan_fill,
                element_type=array.dtype.name if array.dtype.name in ELEMENT_TYPES else None,
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise ArgumentError(f"the tensor map {name}: {error}") from None

    def copy_back(self) -> None:
        for array, allocation, _ in self.placed:
            if not array.flags.writeable or not array.size:
                continue
            after = self.memory.read(allocation, array.dtype, array.shape)
            if allocation.written is None:
                array[...] = after
            else:
                stored = self.memory.initialised(allocation).reshape(*array.shape, array.itemsize).all(axis=-1)
                array[stored] = after[stored]


def _array_of(value: Array | Output) -> Array:
    return value.array if isinstance(value, Output) else value


def _value(kernel: Entry, name: str, parameter: ptx.Parameter, value: Any) -> Any:
    """A number as the parameter's bytes; anything else as it is. Raises ``ArgumentError``."""
    if isinstance(value, np.void | bytes | bytearray | memoryview):
        return value
    kind, size = parameter.type[0], parameter.size
    if value is None:
        if size != 8 or kind == "f":
            raise ArgumentError(f"{name} of {kernel.name}: None is a null pointer, and {_described(parameter)}")
        return 0
    if isinstance(value, np.generic):
        if value.dtype.kind == "V" or (parameter.type == "b8" and value.dtype.itemsize == size):
            return value.tobytes()  # such as a bfloat16, which PTX passes as two bytes
        value = value.item()
    if not isinstance(value, int | float):
        raise ArgumentError(f"{name} of {kernel.name}: {type(value).__name__} is not an argument that a kernel takes")
    if parameter.type == "b8" and size > 1:
        raise ArgumentError(f"{name} of {kernel.name}: {_described(parameter)}, and a struct is passed as its bytes")
    if kind == "f":
        try:
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value)
        except (OverflowError, struct.error):
            raise ArgumentError(f"{name} of {kernel.name}: {value} does not fit; {_described(parameter)}") from None
    if isinstance(value, float):
        raise ArgumentError(f"{name} of {kernel.name}: the float {value} is given, and {_described(parameter)}")
    return int(value)


def _described(parameter: ptx.Parameter) -> str:
    names = {"f": "a float", "s": "a signed integer", "u": "an integer or pointer", "b": "a struct or untyped value"}
    return f"the parameter is {names.get(parameter.type[0], parameter.type)} of {parameter.size} bytes"
