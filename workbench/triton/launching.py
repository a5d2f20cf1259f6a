"""One launch of a compiled Triton kernel in the emulator."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, SupportsFloat

import ml_dtypes
import numpy as np

from .. import emulator
from ..emulator import (
    Allocation,
    ArgumentError,
    Entry,
    Finding,
    KernelFault,
    LaunchError,
    Memory,
    Program,
    Report,
    SourceLocation,
    TensorMap,
    _engine,
    execute,
)
from ..emulator.findings import Severity
from ..emulator.memory import ELEMENT_TYPES
from .arrays import Placed, Placement
from .target import Target, registers_of_cubin

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_SWIZZLES = (0, 32, 64, 128)
_HALVES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(slots=True)
class Launched:
    """One launch of a Triton kernel in one configuration, and its result.

    ``grid``: programs along x, y and z; ``configuration``: constexpr parameters and options such as ``num_warps``;
    ``ptx``: what was executed; ``report``: what the emulator found, with ``findings``, counts and what the kernel
    printed, None where the launch was refused, for the reason ``refused``; ``differences``: a sentence for each array
    that is not as the reference has it; ``gluon``: whether it is a kernel of Gluon. ``str`` leaves out what is strict
    and Triton's own doing, unless strict rules were asked for."""

    kernel: str
    grid: tuple[int, int, int]
    target: str
    configuration: dict[str, Any]
    ptx: str = field(repr=False)
    report: Report | None = None
    refused: str = ""
    differences: list[str] = field(default_factory=list)
    gluon: bool = False

    @property
    def ok(self) -> bool:
        """Whether the launch has no failure and no difference. A refused launch has neither."""
        return not self.failures and not self.differences

    @property
    def empty(self) -> bool:
        """Whether its grid has no program, so that nothing ran, as with Triton."""
        return 0 in self.grid

    @property
    def findings(self) -> list[Finding]:
        """What was found, of any severity, each with ``location``: the file and line of the Python source."""
        return self.report.findings if self.report is not None else []

    @property
    def failures(self) -> list[Finding]:
        """The findings that are failures: errors, and strict ones where strict rules were asked for."""
        return self.report.failures if self.report is not None else []

    @property
    def output(self) -> str:
        """What ``tl.device_print`` printed."""
        return self.report.output if self.report is not None else ""

    @property
    def title(self) -> str:
        """``softmax[4] BLOCK=256, num_warps=4, num_stages=3, sm_90a``."""
        grid = ", ".join(map(str, self.grid)).removesuffix(", 1").removesuffix(", 1")
        chosen = [f"{name}={_named(value)}" for name, value in self.configuration.items()]
        return f"{self.kernel}[{grid}] {', '.join([*chosen, self.target])}"

    def _is_tritons(self, finding: Finding) -> bool:
        """Whether a finding is no failure, and about what Triton's compiler does by itself.

        Its language knows neither shared memory nor barriers nor the memory of tensor cores; Gluon's does."""
        of_memory = finding.space not in ("global", "none", "") or finding.cause.startswith(("mbarrier_", "tensor_"))
        return finding.severity is Severity.STRICT and of_memory and not self.gluon

    def as_dict(self) -> dict[str, Any]:
        """The launch in types that JSON has."""
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "grid": list(self.grid),
            "target": self.target,
            "configuration": {name: _plain(value) for name, value in self.configuration.items()},
            "differences": self.differences,
            "refused": self.refused,
            "report": None if self.report is None else self.report.as_dict(),
        }

    def __str__(self) -> str:
        if self.empty:
            return f"{self.title}: the grid is empty, nothing ran"
        if self.report is None:
            return f"{self.title}: not launched: {self.refused}"
        told = [finding for finding in self.findings if self.report.strict or not self._is_tritons(finding)]
        text = str(replace(self.report, kernel=self.title, findings=told))
        if self.differences and self.report.ok:
            text = text.replace(": no hazard found", ": no hazard found, but the result is wrong")
        return "\n".join([*self.differences, text])


class LaunchFault(KernelFault):
    """A launch ended with a hazard; ``launched`` says of which kernel, in which configuration."""

    def __init__(self, launched: Launched) -> None:
        assert launched.report is not None
        super().__init__(launched.failures[0], launched.report.statistics, launched.findings)
        self.args = (str(launched),)
        self.launched = launched


class Mismatch(AssertionError):
    """A kernel's result is not as the reference has it; ``launched`` says which, in which configuration."""

    def __init__(self, launched: Launched) -> None:
        super().__init__(str(launched))
        self.launched = launched


def _named(value: Any) -> str:
    return getattr(value, "__name__", None) or str(getattr(value, "value", value))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else _named(value)


@dataclass(slots=True)
class Compiled:
    """A kernel that Triton has compiled, with what a launch needs of it."""

    kernel: Any
    ptx: str
    program: Program
    registers: int | None

    @classmethod
    def of(cls, kernel: Any, ptx: str | None = None) -> Compiled:
        """With other PTX than Triton's where it is given. Raises what ``Program.from_ptx`` raises."""
        text = kernel.asm["ptx"] if ptx is None else ptx
        return cls(kernel, text, decoded(text, kernel), registers_of_cubin(kernel.asm["cubin"]))

    @property
    def metadata(self) -> Any:
        """What Triton says of the kernel."""
        return self.kernel.metadata

    def configuration(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Its constexpr parameters, and options that are not Triton's defaults."""
        given = {
            name: arguments[name]
            for name, kind in self.kernel.src.signature.items()
            if kind == "constexpr" and name in arguments and self._is_constexpr(name)
        }
        options = {name: getattr(self.metadata, name, None) for name in _OPTIONS}
        return given | {n: v for n, v in options.items() if v is not None and (n != "num_ctas" or v > 1)}

    def _is_constexpr(self, name: str) -> bool:
        """Not for numbers that are 1 and arguments that are None, which Triton makes constants of."""
        params = getattr(self.kernel.src.fn, "params", ())
        return any(p.name == name and p.is_constexpr for p in params)


def run(
    compiled: Compiled,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
    placement: Placement,
    target: Target,
    **options: Any,
) -> Report:
    """Executes a kernel with arguments whose arrays are placed; what it stored stays there.

    ``options`` are those of ``emulator.execute``. Raises ``ArgumentError`` and ``LaunchError``."""
    metadata, (entry,) = compiled.metadata, compiled.program.entries.values()
    ctas = getattr(metadata, "num_ctas", 1)
    args = list(_parameters(compiled, entry, arguments, placement.memory))
    for scratch in ("global", "profile"):
        if len(args) < len(entry.parameters):
            args.append(_scratch(placement.memory, metadata, scratch, ctas * grid[0] * grid[1] * grid[2]))
    try:
        statistics = execute(
            entry,
            (grid[0] * ctas, grid[1], grid[2]),
            entry.required_block or (metadata.num_warps * metadata.warp_size, 1, 1),
            args,
            memory=placement.memory,
            cluster=(ctas, 1, 1),
            shared_bytes=metadata.shared,
            registers_per_thread=compiled.registers,
            limits=target.limits,
            **options,
        )
    except KernelFault as hazard:
        if hazard.statistics is None:
            raise
        statistics = hazard.statistics
    findings = [in_python(finding) for finding in statistics.findings]
    return Report(entry.name, findings, statistics, placement.arrays, bool(options.get("strict")))


def _scratch(memory: Memory, metadata: Any, kind: str, programs: int) -> Allocation | int:
    """Memory that the compiler asks for beside the arguments: of every block as many bytes."""
    size = getattr(metadata, f"{kind}_scratch_size", 0)
    if not size:
        return 0
    return memory.allocate(size * programs, f"{kind} scratch memory", element_size=1)


def parameter_name(key: str | int) -> str:
    """Of a parameter in a signature, which has numbers where a kernel was made of IR."""
    return key if isinstance(key, str) else f"arg{key}"


def _parameters(compiled: Compiled, entry: Entry, arguments: Mapping[str, Any], memory: Memory) -> Iterator[Any]:
    """The values of the kernel's parameters in PTX, as ``emulator.execute`` takes them."""
    signature = compiled.kernel.src.signature
    descriptors = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    parameters = iter(entry.parameters)

    def flat(kind: Any, value: Any, name: str) -> Iterator[Any]:
        if kind == "constexpr":
            return
        if isinstance(kind, tuple):
            for number, (inner, part) in enumerate(zip(kind, value, strict=True)):
                yield from flat(inner, part, f"{name}[{number}]")
        elif kind.startswith("tensordesc"):
            for passed in _descriptor(value, next(descriptors, None), name, memory):
                parameter = next(parameters)
                yield _sized(passed, parameter.size) if isinstance(passed, int) else passed
        else:
            yield _value(kind, value, name, next(parameters).size)

    for key, kind in signature.items():
        name = parameter_name(key)
        yield from flat(kind, arguments.get(name), name)


def _value(kind: str, value: Any, name: str, size: int) -> bytes:
    if kind.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else 0 if value is None else int(value)
        return _sized(address, size)
    if kind in _HALVES:
        return bytes(np.array(value).astype(_HALVES[kind]).tobytes())
    if kind in ("fp32", "f32", "fp64") and isinstance(value, SupportsFloat):
        return struct.pack("<d" if size == 8 else "<f", value)
    if isinstance(value, int):
        return _sized(value, size)
    raise ArgumentError(
        f"{name} is {type(value).__name__}, which Triton takes for {kind} and the emulator does not know"
    )


def _sized(value: int, size: int) -> bytes:
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")


def _descriptor(value: Any, layout: Mapping[str, Any] | None, name: str, memory: Memory) -> list[Any]:
    """What Triton passes for a tensor descriptor: a tensor map where the target has TMA, shape and strides."""
    shape, strides = [int(n) for n in value.shape], [int(n) for n in value.strides]
    padding, rounded = getattr(value, "padding", "zero") == "nan", bool(getattr(value, "round_f32_to_tf32", False))
    base: Placed = value.base
    if layout is None:
        flags = [
            int(flag) for name, flag in (("padding", padding), ("round_f32_to_tf32", rounded)) if hasattr(value, name)
        ]
        return [base.address, *shape, *strides, *flags, *shape, *strides]
    if layout.get("is_im2col") or layout.get("fp4_padded"):
        raise ArgumentError(f"{name} is a descriptor of a kind that is not emulated: im2col, or 4-bit floats")
    size, element = layout["elem_size"], "tfloat32" if rounded else base.array.dtype.name
    try:
        made = TensorMap(
            base.address,
            size,
            shape[::-1],
            [step * size for step in strides[:-1]][::-1],
            [int(n) for n in layout["block_size"]][::-1],
            swizzle=_SWIZZLES[layout["swizzle"]],
            nan_fill=padding,
            element_type=element if element in ELEMENT_TYPES else None,
        )
    except ValueError as error:
        raise LaunchError(f"the descriptor {name}: {error}") from None
    return [made, *shape, *strides]


# findings as an author of Triton kernels reads them: at lines of the kernel, with remedies in Triton's words.


_REMEDIES = {
    "__syncthreads()": "tl.debug_barrier()",
    "hand over with __threadfence() and an atomic flag on both sides": (
        'hand over with an atomic flag, sem="release" behind the stores and sem="acquire" before the loads'
    ),
    "__threadfence()": 'an atomic of sem="release"',
}


def in_python(finding: Finding) -> Finding:
    """The finding at the kernel's line where it is at one of Triton's own library, such as that of ``tl.sum``."""
    message, advice, details = finding.message, finding.advice, finding.details
    location, text, callers = finding.location, finding.source_line, finding.caller_lines
    for place in (finding.location, finding.other):
        if place is not None and (own := _own(place)) not in (None, place):
            message, advice = (_moved(sentence, place, own) for sentence in (message, advice))
    if location is not None and (own := _own(location)) not in (None, location):
        skipped = len(location.inlined_at) - len(own.inlined_at)
        details = (*details, f"in {_short(location)}: {text.strip()}".removesuffix(": "))
        location, text, callers = own, callers[skipped - 1], callers[skipped:]
    for word, ours in _REMEDIES.items():
        advice = advice.replace(word, ours)
    return replace(
        finding,
        message=message,
        advice=advice,
        details=details,
        location=location,
        source_line=text,
        caller_lines=callers,
        other=_own(finding.other) or finding.other,
    )


def _own(place: SourceLocation | None) -> SourceLocation | None:
    """The innermost call that is not in Triton's library."""
    if place is None:
        return None
    calls = (place, *place.inlined_at)
    for number, call in enumerate(calls):
        if not Path(call.file).is_relative_to(_library()):
            return replace(call, inlined_at=calls[number + 1 :]) if number else place
    return None


def _moved(sentence: str, place: SourceLocation, own: SourceLocation) -> str:
    return re.sub(re.escape(str(place)) + r"(?: \(from [^)]*\))?", lambda _: str(own), sentence)


def _short(place: SourceLocation) -> str:
    return f"triton/{Path(place.file).relative_to(_library()).as_posix()}:{place.line}"


@cache
def _library() -> Path:
    found = find_spec("triton")
    return Path(found.origin).parent if found is not None and found.origin else Path("triton")


# ---------------------------------------- decoded programs, kept beside what Triton keeps of a kernel, from run to run


_MOST = 64
_PROGRAMS: dict[str, Program] = {}
"""Those used last, by their text."""


def decoded(text: str, kernel: Any) -> Program:
    """The program of a kernel's PTX. Raises what ``Program.from_ptx`` raises."""
    if text not in _PROGRAMS:
        while len(_PROGRAMS) >= _MOST:
            del _PROGRAMS[next(iter(_PROGRAMS))]
        _PROGRAMS[text] = _kept(text, kernel) or _from_text(text, kernel)
    return _PROGRAMS[text]


def _from_text(text: str, kernel: Any) -> Program:
    program = Program.from_ptx(_at_lines_of_python(text))
    program.replicas = True
    file = _file(text, kernel)
    if file is not None:
        with contextlib.suppress(OSError):  # a cache that cannot be written is none
            partly = file.with_name(f"{file.name}.{os.getpid()}")
            partly.write_bytes(pickle.dumps(program))
            partly.replace(file)
    return program


def _kept(text: str, kernel: Any) -> Program | None:
    file = _file(text, kernel)
    if file is None:
        return None
    try:
        program = pickle.loads(file.read_bytes())
    except Exception:  # none yet, or damaged
        return None
    return program if isinstance(program, Program) else None


def _file(text: str, kernel: Any) -> Path | None:
    """Where the program lies, for this text and this emulator; None where Triton keeps no files."""
    own = getattr(kernel, "metadata_group", {})
    beside = next((Path(path) for name, path in own.items() if name.endswith(".ptx")), None)
    if beside is None:
        return None
    return beside.with_name(f"{hashlib.sha256((_of_emulator() + text).encode()).hexdigest()[:32]}.decoded")


@cache
def _of_emulator() -> str:
    """A digest of the code that decodes, and of the engine, whose operations decoded rows name."""
    digest = hashlib.sha256(Path(str(_engine.__file__)).read_bytes())
    for file in sorted(Path(str(emulator.__file__)).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _at_lines_of_python(ptx: str) -> str:
    """PTX whose inline assembly stands at one line of Python.

    Triton writes many instructions as inline assembly, and LLVM has line numbers go up by one with each line of such a
    text: those after the first are of code that has nothing to do with it."""
    lines, inside, located = ptx.split("\n"), False, False
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("// begin inline asm"):
            inside, located = True, False
        elif text.startswith("// end inline asm"):
            inside = False
        elif inside and text.startswith(".loc"):
            lines[number] = "" if located else line  # as many lines as before
            located = True
    return "\n".join(lines)
