"""What `workbench emulate --witness` does: it looks for two orders of warps in which a race gives two results.

A race says that nothing orders two accesses. A witness shows it: the same launch on the same arrays, with the same
seed, in an order in which an element becomes another value. What orders differ in is after how many instructions a warp
gives way; the seed then draws which one is next. All else that a seed draws stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import emulator

if TYPE_CHECKING:
    from .launches import Emulation

SLICES = (*range(1, 33), 40, 55, 89, 144, 233, 377, 610, 987)
"""After how many instructions warps give way in the orders that are tried. The findings are of 2000."""
ENDS = "ends"
FINDINGS = (emulator.FindingKind.RACE, emulator.FindingKind.IN_FLIGHT)
"""What is about the order of two accesses."""

Arrays = dict[str, np.ndarray[Any, Any]]
Run = Callable[["int | None"], tuple["Emulation", Sequence[emulator.Report]]]
"""Executes the launches anew, with a slice."""


@dataclass(frozen=True)
class Witness:
    """Two results of one launch. Without one, `tried` orders gave the same.

    `values` are those of an element, or how the launches ended, in the order of the findings and with the `slice`.
    `atomics`: the launches have some, whose order may change results without a race.
    """

    tried: int
    slice: int | None = None
    array: str = ""
    index: int | None = None
    values: tuple[str, str] = ("", "")
    atomics: bool = False

    def __str__(self) -> str:
        if self.slice is None:
            return f"witness: none; in {self.tried} other orders of warps the arrays end as in this one"
        if self.index is None:
            return f"witness: the launch {self.values[0]}; with --slice {self.slice} it {self.values[1]}"
        first, other = self.values
        said = f"witness: {self.array}[{self.index}] becomes {first}; with --slice {self.slice} it becomes {other}"
        return said + "\n  the kernel has atomics, too, whose order may be the reason" * self.atomics


def search(job: Emulation, reports: Sequence[emulator.Report], run: Run) -> Witness | None:
    """A witness of the races that were found, or how many orders have shown none; None where there is no race."""
    if not any(finding.kind in FINDINGS for report in reports for finding in report.findings):
        return None
    ended, arrays = _end(reports), _arrays(job)
    opcodes = {opcode for report in reports for opcode in report.by_opcode()}
    atomics = any(opcode.startswith(("atom", "red")) for opcode in opcodes)
    for number, given in enumerate(SLICES, 1):
        other, found = run(given)
        if (end := _end(found)) != ended:
            return Witness(number, given, values=(ended, end), atomics=atomics)
        if ended != ENDS:
            continue  # arrays are as far as they were when it was stopped
        for name, array in _arrays(other).items():
            if (index := _first_difference(arrays[name], array)) is not None:
                values = str(arrays[name].reshape(-1)[index]), str(array.reshape(-1)[index])
                return Witness(number, given, name, index, values, atomics)
    return Witness(len(SLICES))


def _end(reports: Sequence[emulator.Report]) -> str:
    """How the launches end: well, or by what stopped one."""
    stopped = [report.findings[-1] for report in reports if report.statistics.stopped]
    return f"ends by {stopped[0].code} at {stopped[0].location}" if stopped else ENDS


def _arrays(job: Emulation) -> Arrays:
    return {argument.name: argument.array for argument in job.arguments if argument.array is not None}


def _first_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int | None:
    """The first element that differs in a bit."""
    raw = [np.ascontiguousarray(one).reshape(-1).view(np.uint8).reshape(one.size, -1) for one in (a, b)]
    differing = np.flatnonzero((raw[0] != raw[1]).any(axis=1))
    return int(differing[0]) if differing.size else None
