"""What went wrong, as sentences.

The engine reports a hazard as a few numbers: its kind, the rows concerned, block, warp, lane and address. Here they
become a ``Finding``: source lines, array and element, who did it, and what to do about it. The sentences stand in a
module for each subject.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import _engine
from ..context import LaunchContext
from ..findings import Finding, FindingKind
from ..source_lines import source_line
from .memory import MemoryHazards
from .others import Others
from .races import Races
from .tensor import TensorCores
from .waits import Waits

__all__ = ["explain"]

_KINDS = {
    "budget": FindingKind.LIVELOCK,
    "not_resident": FindingKind.DEADLOCK,
    "mbarrier_invalid": FindingKind.MBARRIER_MISUSE,
    "mbarrier_overflow": FindingKind.MBARRIER_MISUSE,
    "mbarrier_transactions": FindingKind.MBARRIER_MISUSE,
    "mbarrier_count": FindingKind.MBARRIER_MISUSE,
    "mbarrier_not_visible": FindingKind.MBARRIER_MISUSE,
    "mbarrier_in_use": FindingKind.MBARRIER_MISUSE,
    "mbarrier_overwritten": FindingKind.MBARRIER_MISUSE,
    "mbarrier_bytes": FindingKind.MBARRIER_MISUSE,
    "swizzle_mismatch": FindingKind.DESCRIPTOR,
    "warpgroup_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "barrier_count": FindingKind.BARRIER_MISUSE,
    "barrier_mismatch": FindingKind.BARRIER_MISUSE,
    "barrier_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "not_member": FindingKind.DIVERGENT_COLLECTIVE,
    "exited_member": FindingKind.DIVERGENT_COLLECTIVE,
    "inactive_source": FindingKind.DIVERGENT_COLLECTIVE,
}


def _kind(cause: str) -> FindingKind:
    if cause in _KINDS:
        return _KINDS[cause]
    return FindingKind(cause) if cause.upper() in FindingKind.__members__ else FindingKind.UNSUPPORTED


class _Explainer(MemoryHazards, Races, TensorCores, Waits, Others):
    """All sentences; ``explain_KIND`` has those about a kind of fault, and what to do."""

    def finding(self) -> Finding:
        seen, context = self.seen, self.context
        write = getattr(self, f"explain_{seen.kind}", None)
        message, advice = write() if write else (f"the engine reports {seen.kind}", "")
        kind = _kind(seen.kind)
        location = self.instruction.location if self.instruction else None
        hangs = seen.kind in ("deadlock", "budget", "not_resident")
        nobody = seen.kind in ("deadlock", "budget")
        return Finding(
            kind=kind,
            cause=seen.kind,
            message=message,
            advice=advice,
            location=location,
            source_line=source_line(location, context.sources) if location else "",
            caller_lines=tuple(source_line(c, context.sources) for c in location.inlined_at) if location else (),
            instruction=self.instruction.text if self.instruction else "",
            other=self.other.location if self.other else None,
            other_instruction=self.other.text if self.other else "",
            block=context.block_position(seen.block) if seen.block >= 0 and not nobody else None,
            thread=context.thread_position(seen.warp, seen.lane) if seen.lane >= 0 and not nobody else None,
            warp=seen.warp if seen.warp >= 0 and not nobody else None,
            lane=seen.lane if seen.lane >= 0 and not nobody else None,
            address=seen.address if seen.space != "none" else None,
            space=seen.space,
            array=self.array,
            index=self.index,
            seed=context.seed,
            details=(*self.in_header(), *(self.describe_waits() if hangs else ())),
        )


def explain(fault: _engine.Fault, waits: Sequence[_engine.Waiting], context: LaunchContext) -> Finding:
    """The finding for what the engine reports."""
    return _Explainer(fault, waits, context).finding()


def causes() -> dict[str, FindingKind]:
    """Every word that `Finding.cause` may be, and the kind of finding that it is."""
    names = sorted(name.removeprefix("explain_") for name in dir(_Explainer) if name.startswith("explain_"))
    return {name: _kind(name) for name in names}
