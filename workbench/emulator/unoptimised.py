"""The same source without optimisation, judged beside what the device executes.

A compiler may remove or merge accesses that race in the source, and barriers that not all threads reach. So the source
is compiled once more without optimisation. Where that has accesses or barriers at lines where the optimised code has
none of the kind, it is executed on a copy of memory. Races and barriers of these lines are reported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import ptx
from .decode import UnsupportedInstruction
from .execution import Checks, Rules, execute
from .findings import Finding, FindingKind, Severity
from .memory import Memory
from .program import Entry
from .source_lines import outside_cuda
from .statistics import KernelFault

_KINDS = {
    **{"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"},
    **{"bar": "barrier", "barrier": "barrier"},
}
_CODES = {"race": "race_optimised_away", "barrier_diverged": "barrier_optimised_away"}
_ASYNCHRONOUS = {"wgmma": "wgmma", "tcgen05": "tcgen05", "mbarrier": "mbarriers", "bulk": "bulk copies"}
_IN_THE_SOURCE = re.compile(r"trap|assert|unreachable|abort")
_CAUSES_OF_TRAPS = frozenset({FindingKind.READ_ONLY, FindingKind.OUT_OF_BOUNDS, FindingKind.MISALIGNED})
_MOST_BYTES = 1 << 30
_MOST_FINDINGS = 100
_NOT_FOR_IT = frozenset({"checks", "counters", "trace"})


@dataclass(frozen=True, slots=True)
class Beside:
    """A launch that can be repeated without optimisation: the kernel, what it is given, and memory before it ran.

    ``memory`` is None where it was too large to be copied."""

    kernel: Entry
    memory: Memory | None
    shape: tuple[Any, Any]
    arguments: Sequence[Any]
    options: dict[str, Any]

    @classmethod
    def of(
        cls,
        kernel: Entry,
        memory: Memory,
        shape: tuple[Any, Any],
        arguments: Sequence[Any],
        options: dict[str, Any],
        wanted: bool,
    ) -> Beside | None:
        """None where it is neither wanted nor needed to explain a trap, and where there is no source."""
        if kernel.program.unoptimised is None:
            return None
        if kernel.traps is None:
            kernel.traps = any(instruction.opcode == "trap" for instruction in kernel.instructions)
        if not (wanted or kernel.traps):
            return None
        fits = sum(allocation.nbytes for allocation in memory.allocations) <= _MOST_BYTES
        kept = {name: value for name, value in options.items() if name not in _NOT_FOR_IT}
        return cls(kernel, memory.copy() if fits else None, shape, arguments, kept)

    def judged(self, found: Sequence[Finding], wanted: bool) -> tuple[list[Finding], tuple[str, ...]]:
        """What was ``found``, a trap as what it stands for, and where ``wanted`` also what is wrong in the source only;
        and notes."""
        findings = [*found]
        if findings and (cause := self.cause_of_trap(findings[-1])):
            findings[-1] = cause
        hidden, note = self.hidden(findings) if wanted else ([], "")
        return [*findings, *hidden], (note,) if note else ()

    def hidden(self, found: Sequence[Finding]) -> tuple[list[Finding], str]:
        """What is wrong in the source only, beside what was ``found``; and a note where it has not been looked for."""
        used = {_ASYNCHRONOUS[part] for i in self.kernel.instructions for part in i.parts if part in _ASYNCHRONOUS}
        note = "the source without optimisation was not judged beside this: "
        if used:
            return [], f"{note}the kernel has {', '.join(sorted(used))}"
        try:
            entry = self._entry()
            hidden = _places(entry) - _places(self.kernel)
            again = self._run(entry, Checks.RACES) if hidden else ()
        except (ValueError, TypeError, KeyError, RuntimeError, UnsupportedInstruction) as error:
            return [], note + next(iter(str(error).splitlines()), "it cannot be launched")
        known, lines = {_lines(finding) for finding in found}, {place[:2] for place in hidden}
        rules = Rules.of(self.kernel, False, self.options.get("suppress", ()), _MOST_FINDINGS)
        named = [
            replace(
                finding,
                cause=_CODES[finding.cause],
                message=f"{finding.message}; so it is in the source, and this compiler has optimised it away",
            )
            for finding in again
            if finding.cause in _CODES and finding.severity is Severity.ERROR and _is_of_threads(finding)
            if _lines(finding) not in known and not _lines(finding).isdisjoint(lines)
        ]
        return [finding for finding in named if not rules.suppressed(finding)], ""

    def cause_of_trap(self, trap: Finding) -> Finding | None:
        """What a compiler has put a trap in place of, where the source has none: a store to constant memory, say."""
        if trap.cause != "trap" or _IN_THE_SOURCE.search(trap.source_line):
            return None
        try:
            found = self._run(self._entry(), Checks.NONE)
        except (ValueError, TypeError, KeyError, RuntimeError, UnsupportedInstruction):
            return None
        first = next((finding for finding in found if finding.kind in _CAUSES_OF_TRAPS), None)
        if first is None:
            return None
        return replace(first, message=f"{first.message}; the compiler has put a trap in its place")

    def _entry(self) -> Entry:
        """The kernel without optimisation. Raises what compiling and decoding raise."""
        assert self.kernel.program.unoptimised is not None
        return self.kernel.program.unoptimised().entries[self.kernel.name]

    def _run(self, entry: Entry, checks: Checks) -> tuple[Finding, ...]:
        """What the launch finds in another program of the source. Raises what ``execute`` raises before it runs."""
        if self.memory is None:
            raise ValueError("its arrays are too large to be copied")
        memory, variables = self.memory.copy(), entry.program.variables
        known = memory.modules.get(self.kernel.program, {})
        memory.modules[entry.program] = {name: known[name] for name in variables if name in known}
        options = {**self.options, "max_findings": _MOST_FINDINGS, "checks": checks}
        try:
            return execute(entry, *self.shape, self.arguments, memory=memory, **options).findings
        except KernelFault as fault:
            return fault.findings


def _places(entry: Entry) -> set[tuple[str, int, str]]:
    """Lines with accesses to shared and global memory and with barriers, each with its kind."""
    local: set[ptx.Register] = set()  # with addresses of local memory
    found = set()
    for instruction in entry.instructions:
        bases = [operand.base if isinstance(operand, ptx.Address) else operand for operand in instruction.operands]
        registers = [base for base in bases if isinstance(base, ptx.Register)]
        base = instruction.parts[0]
        moves = base in ("add", "mov") and not local.isdisjoint(registers[1:])
        if moves or instruction.opcode.startswith("cvta.local"):
            local.update(registers[:1])
        kind = _KINDS.get(base)
        if kind is None or not {"local", "param", "const"}.isdisjoint(instruction.parts):
            continue
        if kind == "barrier" or local.isdisjoint(registers):
            place = outside_cuda(instruction.location)
            found.add((place.file, place.line, kind))
    return found


def _lines(finding: Finding) -> frozenset[tuple[str, int]]:
    return frozenset((place.file, place.line) for place in (finding.location, finding.other) if place is not None)


def _is_of_threads(finding: Finding) -> bool:
    """Whether threads make both accesses, and no copy."""
    return not any(text.startswith("cp.") for text in (finding.instruction, finding.other_instruction))
