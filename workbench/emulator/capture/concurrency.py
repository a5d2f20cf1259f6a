"""Which launches and copies of a captured process nothing orders, and what races between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..execution import Prepared, Series, prepare, run
from ..launch_checks import Edge, Port
from ..memory import Memory
from ..source import nothing
from ..standalone import HOST_READS, HOST_WRITES, MOST_FINDINGS
from ..statistics import Statistics

_MOST = 32
"""Launches that are kept, so that later ones are compared with their accesses."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An operation of a stream, by its number there.

    ``known``: of each stream, up to which operation has ended before. ``early``: launches that need not have ended, by
    stream and number, and the port of each that this one waits for."""

    stream: int
    number: int
    known: Mapping[int, int]
    early: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def is_behind(self, other: Moment) -> bool:
        """Whether another operation has ended when this one begins."""
        return self.known.get(other.stream, 0) >= other.number and other is not self


@dataclass(frozen=True, slots=True)
class _Copy:
    moment: Moment
    label: str
    parts: Sequence[tuple[int, int, int, int]]


@dataclass(slots=True)
class Concurrency:
    """What has been executed and may still be running as far as the program knows.

    A launch that comes after everything else begins a new series, which is the rule in programs of one stream. Copies
    are only looked at where something runs beside them."""

    memory: Memory
    _series: Series = field(default_factory=Series)
    _moments: list[Moment] = field(default_factory=list)
    _copies: list[_Copy] = field(default_factory=list)

    def execute(self, launch: Prepared, moment: Moment) -> tuple[Statistics, list[tuple[str, Statistics]]]:
        """What came of a launch, and of copies beside it, by what they are called. Raises ``ArgumentError``."""
        beside = self._begin(moment)
        launch.after, launch.stream = self._edges(moment), moment.stream
        self._moments.append(moment)
        return run([launch], self._series)[0], beside

    def copy(
        self, function: str, to: Sequence[tuple[int, int]], source: Sequence[tuple[int, int]], moment: Moment
    ) -> list[tuple[str, Statistics]]:
        """After a copy or a fill of such addresses and sizes: what races with it."""
        parts = [(address, 0, size, HOST_WRITES) for address, size in to]
        parts += [(address, 0, size, HOST_READS) for address, size in source]
        beside = self._begin(moment)
        self._copies.append(_Copy(moment, f"the {function}", parts))
        if self._moments:
            beside += self._look_at([self._copies.pop()])
        return beside

    def _begin(self, moment: Moment) -> list[tuple[str, Statistics]]:
        """Forgets what this comes after, where that is everything, and looks at copies beside it."""
        behind = all(moment.is_behind(one) for one in self._moments)
        if behind or len(self._moments) >= _MOST:
            self._series, self._moments = Series(), []
        beside = [one for one in self._copies if not moment.is_behind(one.moment)]
        self._copies = [] if behind and not beside else [one for one in self._copies if one not in beside][-_MOST:]
        return self._look_at(beside)

    def _look_at(self, copies: Sequence[_Copy]) -> list[tuple[str, Statistics]]:
        found = []
        for copy in copies:
            prepared = prepare(nothing(), 1, 1, (), memory=self.memory, max_findings=MOST_FINDINGS)
            prepared.copies, prepared.label, prepared.stream = copy.parts, copy.label, copy.moment.stream
            prepared.after = self._edges(copy.moment)
            self._moments.append(copy.moment)
            found.append((copy.label, run([prepared], self._series)[0]))
        return found

    def _edges(self, moment: Moment) -> list[Edge]:
        ports = [
            Port.ENDED if moment.is_behind(one) else moment.early.get((one.stream, one.number)) for one in self._moments
        ]
        return [(number, port) for number, port in enumerate(ports) if port is not None]
