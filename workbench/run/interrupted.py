"""What an interrupted run left in its folder, and what of it is taken over instead of being made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..measure.timing import Effort
from ..model.problem import Problem
from ..model.results import HostTiming, Measurement, PeerResult, Run, StageResult
from ..model.stage import Stage
from ..records import store


class Interrupted:
    """The results of interrupted runs of the same code in the same environment as `run`."""

    def __init__(self, earlier: list[Run], run: Run) -> None:
        self._run = run
        self._stages = {(s.operation, s.stage): (s, old) for s, old in (store.current(earlier) if earlier else ())}
        self._peers = [peer for old in earlier for peer in old.peers]
        self._host = [timing for old in earlier for timing in old.host]
        self.taken_over = 0
        """Verifications and measurements that were not made again."""

    def result(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on as many problems as the run asks for."""
        found = self.at_any_depth(stage, digest)
        return found if found and not found.verification.examples else None

    def at_any_depth(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on however many problems."""
        result, _ = self._stages.get((stage.operation, stage.name), (None, None))
        return result if result and result.source_sha256 == digest else None

    def take_over(self, stage: Stage[Any]) -> None:
        """Count it; a record has one date, which is that of its oldest figure."""
        _, old = self._stages[stage.operation, stage.name]
        self._run.environment.date = min(self._run.environment.date, old.environment.date)
        self.taken_over += 1

    def measurement(
        self, stage: Stage[Any], problem: Problem, digest: str, binary: Callable[[], str]
    ) -> Measurement | None:
        """The measurement of the same binary on this problem, with the effort of today; it is taken over."""
        before = self.result(stage, digest)
        for measurement in before.measurements if before else ():
            alike = measurement.problem == str(problem) and measurement.effort == asdict(Effort())
            if alike and measurement.binary_sha256 == binary():
                self.take_over(stage)
                return measurement
        return None

    def peer(self, peer: PeerResult, problem: Problem) -> Measurement | None:
        """The measurement of the same version of another implementation, with the effort of today."""
        wanted = (peer.operation, peer.name, peer.version)
        made = (m for p in self._peers if (p.operation, p.name, p.version) == wanted for m in p.measurements)
        return next((m for m in made if m.problem == str(problem) and m.effort == asdict(Effort())), None)

    def host(self, operation: str, problem: Problem) -> HostTiming | None:
        """The time of NumPy on this problem."""
        return next((t for t in self._host if (t.operation, t.problem) == (operation, str(problem))), None)
