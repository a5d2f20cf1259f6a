"""What a launch did, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .counters import Counters
from .findings import Finding
from .program import Entry
from .trace import Timeline

__all__ = ["Statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one launch: instructions that warps executed, times that a warp was resumed, blocks resident at once.

    ``output`` is what the kernel printed, in the order of execution. ``findings`` has what was found, of any
    severity, in that order, ``suppressed`` what was found and is suppressed. ``stopped``: whether a finding ended the
    launch. ``unused``: suppressions that were asked for and that matched nothing.
    """

    warp_instructions: int
    switches: int
    resident_blocks: int
    counts: npt.NDArray[np.uint64] = field(repr=False)
    entry: Entry = field(repr=False)
    counted: npt.NDArray[np.uint64] | None = field(default=None, repr=False)  # (rows, counters), where asked for
    timeline: Timeline | None = field(default=None, repr=False)  # where asked for
    output: str = ""
    findings: tuple[Finding, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    stopped: bool = False
    unused: tuple[str, ...] = ()

    @property
    def counters(self) -> Counters:
        """Exact counts of memory accesses and more. Raises ValueError unless the launch was asked to count."""
        if self.counted is None:
            raise ValueError("nothing was counted: ask for counters when launching")
        return Counters(((self.entry, self.counts, self.counted),))

    def by_opcode(self) -> Counter[str]:
        """Executed warp instructions by opcode."""
        return self._count(lambda instruction: instruction.opcode)

    def by_line(self) -> Counter[tuple[str, int]]:
        """Executed warp instructions by file and line of the CUDA source."""
        return self._count(lambda instruction: (instruction.location.file, instruction.location.line))

    def _count(self, key: Any) -> Counter[Any]:
        found: Counter[Any] = Counter()
        instructions = self.entry.instructions
        for row, count in enumerate(self.counts.tolist()):
            if count and instructions:
                found[key(instructions[self.entry.decoded.instructions[row]])] += count
        return found
