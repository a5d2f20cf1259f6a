"""A run with a budget, as the command line shows it: a line for each operation, and what the next run would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..devices import IsolatedDevice
from ..measure import tuning
from ..model.results import Run, StageResult, Verdict
from ..model.stage import Stage
from ..records import environment
from ..report.evidence import failed
from ..run.budget import Budget
from ..run.rounds import Step
from ..run.timer import TimedSession
from ..run.verifier import Session
from .console import Fitting, StageProgress, table

DEFAULT = 180.0
"""Seconds of a run without SPEC."""

UNLIMITED = "none"

MOST_PROCESSES = 16
"""Each takes some hundred megabytes."""


def parse(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Seconds, infinity for `none`, None where nothing was asked for."""
    if text is None or text == UNLIMITED:
        return None if text is None else float("inf")
    try:
        return tuning.parse_budget(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or {UNLIMITED}") from None


option = click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=parse,
    show_default="3m without SPEC, none with SPEC",
    help="Time for the run: 60s, 10m, 1h, or none. One stage of each operation and track comes first, on one problem, "
    "then every other stage, then all of them on 5, 20 and 50 problems. The same command continues where it stopped.",
)


def seconds_of(asked: float | None, specs: Sequence[str], problems: Sequence[str]) -> float | None:
    """The budget of a run; None where it has none. Raises UsageError."""
    if problems and asked:
        raise click.UsageError("--problem names what is verified, so nothing is left to a budget: leave out --budget")
    if specs or problems or asked:
        return None if asked in (None, float("inf")) else asked
    return DEFAULT


class Progress(StageProgress):
    """A line for each operation as a round of it ends, for each stage that fails, and two bars on a terminal."""

    def __init__(self, session: Session, stages: Sequence[Stage[Any]]) -> None:
        super().__init__(len(stages), session.examples)
        self._run = session.run
        self._of = Counter(stage.operation for stage in stages)
        self._width = max(map(len, self._of), default=0)

    def begun(self, step: Step) -> None:
        """A stage is being verified."""
        self._examples = step.problems
        self.begin(step.stage.spec)

    def ended(self, step: Step, result: StageResult) -> None:
        """It has been."""
        self._bars.update(self._all, completed=len(self._run.stages))
        if failed(result.verification):
            self.say(f"{step.stage.spec} failed: {result.verification.verdict}")

    def over(self, operation: str, left: float) -> None:
        """A round of an operation has ended; so many seconds are left."""
        own = [s for s in self._run.stages if s.operation == operation]
        problems = _plural(sum(s.verification.problems for s in own), "problem")
        everything = f"in all {_counts(self._run.stages)} of {self._of.total()}"
        name = f"{operation:<{self._width}}"
        self.say(f"{name}  {_counts(own)} of {self._of[operation]}, {problems}; {everything}; {_clock(left)} left")

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(line, soft_wrap=True)


def work_within(session: Session, stages: Sequence[Stage[Any]], seconds: float, peers: bool) -> None:
    """Verify in rounds, and time headline problems on a GPU, for so many seconds."""
    with Progress(session, stages) as progress:
        work = Budget(session, stages, seconds, progress, _processes(session, len(stages)))
        if session.run.stages:
            progress.say(f"this run continues that of {session.run.environment.date}: {tried(session.run, stages)}")
        if not work.work():
            return
        if peers and isinstance(session, TimedSession):
            for operation in dict.fromkeys(stage.operation for stage in stages):
                session.peers(operation, progress)
    session.finish()


def _processes(session: Session, stages: int) -> int:
    """Processes that verify at once: one for each core in the emulator. There is one GPU."""
    if session.device.times:
        return 1
    from ..devices.emulated import EmulatedDevice

    real = isinstance(session.device, EmulatedDevice | IsolatedDevice)
    return max(1, min(environment.core_count(), stages, MOST_PROCESSES)) if real else 1


@dataclass(frozen=True)
class Rounds:
    """What is shown of a run in rounds. `command` is the command line that made it."""

    stages: Sequence[Stage[Any]]
    command: str

    def table(self, run: Run) -> Fitting:
        """A line for each operation: what has passed, what was not tried, and on how many problems."""
        headers = ["operation", "passed", "failed", "not tried", "problems a stage", "timed"]
        rows = []
        for operation, count in Counter(stage.operation for stage in self.stages).items():
            own = [s for s in run.stages if s.operation == operation]
            depth = ", ".join(str(n) for n in sorted({s.verification.problems for s in own}))
            wrong = sum(failed(s.verification) for s in own)
            timed = sum(bool(s.measurements) for s in own)
            rows.append([operation, _passed(own), wrong or "-", count - len(own) or "-", depth or "-", timed or "-"])
        if not any(s.measurements for s in run.stages):
            headers, rows = headers[:-1], [row[:-1] for row in rows]
        return table(headers, rows, headers[1:])

    def last_lines(self, run: Run) -> list[str]:
        """How far the run has come, and the command that goes further."""
        said = tried(run, self.stages)
        if run.finished:
            return [said, f"more problems of each stage: {self.command} --examples {4 * run.examples}"]
        more = "" if "--budget" in self.command else f"; for longer: {self.command} --budget 10m"
        return [said, f"go on from here: {self.command}{more}"]


def tried(run: Run, stages: Sequence[Stage[Any]]) -> str:
    """How many stages passed and failed, on how many problems, and how many were not tried."""
    problems = sum(s.verification.problems for s in run.stages)
    missing = len(stages) - len(run.stages)
    return f"{_counts(run.stages)} of {len(stages)} stages, {_plural(problems, 'problem')}; {missing} not tried"


def _counts(results: Sequence[StageResult]) -> str:
    return f"{_passed(results)} passed, {sum(failed(s.verification) for s in results)} failed"


def _passed(results: Sequence[StageResult]) -> int:
    return sum(s.verification.verdict is Verdict.PASS for s in results)


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _clock(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"
