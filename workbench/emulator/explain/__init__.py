"""What went wrong, as sentences.

The engine reports a hazard as a few numbers: its kind, the rows concerned, block, warp, lane and address. Here they
become a ``Finding``: source lines, array and element, who did it, and what to do about it. Most sentences stand in the
table of ``faults``, those that need more than a template in a module for each subject."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _engine
from ..context import LaunchContext
from ..findings import Finding
from ..source_lines import source_line
from .faults import CAUSES, KINDS, SEVERITIES
from .memory import MemoryHazards, TensorCores
from .races import Races
from .waits import Waits

__all__ = ["CAUSES", "KINDS", "SEVERITIES", "explain"]


class _Explainer(MemoryHazards, Races, TensorCores, Waits):
    """All sentences; ``explain_CAUSE`` has those about a cause that needs more than a template, and what to do."""

    def finding(self) -> Finding:
        seen, context = self.seen, self.context
        write = getattr(self, f"explain_{seen.kind}", None)
        message, advice = (write() if write else self.sentences()) or (f"the engine reports {seen.kind}", "")
        location = self.instruction.location if self.instruction else None
        hangs = seen.kind in ("deadlock", "budget", "not_resident")
        nobody = seen.kind in ("deadlock", "budget") or bool(context.label)
        return Finding(
            kind=KINDS[seen.kind],
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
            severity=SEVERITIES[seen.kind],
            details=(*self.in_header(), *(self.describe_waits() if hangs else ())),
        )


def explain(fault: _engine.Fault, waits: Sequence[_engine.Waiting], context: LaunchContext) -> Finding:
    """The finding for what the engine reports."""
    return _Explainer(fault, waits, context).finding()
