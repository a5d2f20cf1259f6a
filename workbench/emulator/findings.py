"""What can be wrong with a launch: a hazard, at its source line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .ptx import SourceLocation


class FindingKind(StrEnum):
    """The kinds of hazard that a launch can have."""

    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    INDEX_OVERFLOW = "index_overflow"
    UNINITIALISED = "uninitialised"
    HEAP_MISUSE = "heap_misuse"
    READ_ONLY = "read_only"
    IN_FLIGHT = "in_flight"
    ACCUMULATOR_IN_FLIGHT = "accumulator_in_flight"
    RACE = "race"
    PROXY_FENCE = "proxy_fence"
    WGMMA_FENCE = "wgmma_fence"
    TENSOR_MEMORY = "tensor_memory"
    REGISTER_MISUSE = "register_misuse"
    DEADLOCK = "deadlock"
    LIVELOCK = "livelock"
    MBARRIER_MISUSE = "mbarrier_misuse"
    BARRIER_MISUSE = "barrier_misuse"
    DIVERGENT_COLLECTIVE = "divergent_collective"
    TRAP = "trap"
    ASSERTION = "assertion"
    DESCRIPTOR = "descriptor"
    BAD_OPERAND = "bad_operand"
    RESOURCES = "resources"
    EXITED_WITH_WORK = "exited_with_work"
    UNSUPPORTED = "unsupported"


class Severity(StrEnum):
    """How much a finding weighs.

    ``error``: the kernel is wrong, on a device or in an order of its warps that a device may choose. ``strict``: PTX
    does not promise what the kernel relies on, and devices do it all the same; a failure only where strict rules are
    asked for. ``note``: worth knowing, and never a failure."""

    ERROR = "error"
    STRICT = "strict"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard, at its source line.

    ``cause`` is the engine's own word for it, finer than ``kind``; ``code`` is another name of it, which stays the
    same from release to release. ``severity`` says how much it weighs. ``location`` and ``other`` are lines of the CUDA
    source (``other``: where the work was started that the hazard is about), ``source_line`` and ``caller_lines``
    their text. ``block`` and ``thread`` are positions (x, y, z), None where the hazard is nobody's in particular.
    ``array`` and ``index`` name the element where memory is concerned. ``str(finding)`` is the whole story."""

    kind: FindingKind
    cause: str
    message: str
    advice: str
    location: SourceLocation | None
    source_line: str
    caller_lines: tuple[str, ...]
    instruction: str
    other: SourceLocation | None
    other_instruction: str
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    warp: int | None
    lane: int | None
    address: int | None
    space: str
    array: str | None
    index: int | None
    seed: int
    details: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR

    @property
    def headline(self) -> str:
        """Where it is, its kind and its message, in one line."""
        title = str(self.kind).replace("_", " ")
        if self.severity is not Severity.ERROR:
            title = f"{self.severity}: {title}"
        return f"{title}: {self.message}" if self.location is None else f"{self.location}: {title}: {self.message}"

    def __str__(self) -> str:
        lines = [self.headline]
        if self.location is not None:
            if self.source_line:
                lines.append(f"    {self.source_line.strip()}")
            callers = zip(self.location.inlined_at, self.caller_lines, strict=True)
            lines += [f"  inlined into {caller}: {text.strip()}".removesuffix(": ") for caller, text in callers]
        lines += [f"  {detail}" for detail in self.details]
        if who := self.who:
            lines.append(f"  {who}, seed {self.seed}")
        if self.advice:
            lines.append(f"  {self.advice}")
        return "\n".join(lines)

    @property
    def code(self) -> str:
        """The cause, for programs: such as ``race`` or ``mbarrier_overflow``."""
        return self.cause

    @property
    def who(self) -> str:
        """``block (0, 1, 0), warp 3, lane 5, thread (101, 0, 0)``, as far as it is known."""
        parts = []
        if self.block is not None:
            parts.append(f"block {self.block}")
        if self.warp is not None:
            parts.append(f"warp {self.warp}")
        if self.lane is not None:
            parts.append(f"lane {self.lane}")
        if self.thread is not None:
            parts.append(f"thread {self.thread}")
        return ", ".join(parts)
