"""What a launch that failed raises."""

from __future__ import annotations

from collections.abc import Sequence

from .findings import Finding
from .statistics import Statistics

__all__ = ["KernelFault"]


class KernelFault(RuntimeError):
    """A launch with a hazard; ``finding`` is the first, ``findings`` has all of any severity in the order found.

    ``statistics`` counts what had run until the launch ended.
    """

    def __init__(
        self, finding: Finding, statistics: Statistics | None = None, findings: Sequence[Finding] = ()
    ) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.findings = tuple(findings) or (finding,)
        self.statistics = statistics
