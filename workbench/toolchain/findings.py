"""What the emulator finds, as records have it."""

from __future__ import annotations

from ..emulator.findings import Finding
from ..model.results import Hazard


def hazard_of(finding: Finding) -> Hazard:
    """A finding as records and documents have it."""
    at, other = finding.location, finding.other
    return Hazard(
        code=str(finding.kind),
        cause=finding.cause,
        message=finding.message,
        advice=finding.advice,
        file=at.file if at else "",
        line=at.line if at else 0,
        other_file=other.file if other else "",
        other_line=other.line if other else 0,
        instruction=finding.instruction,
        block=[*(finding.block or ())],
        thread=[*(finding.thread or ())],
        warp=finding.warp,
        lane=finding.lane,
        array=finding.array or "",
        index=finding.index,
        severity=str(finding.severity),
    )
