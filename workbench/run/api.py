"""Verify and bench from Python; what comes back shows itself as a table, in a notebook too."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from ..catalogue import registry
from ..devices import DeviceUnavailable, open_device
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.results import Run
from ..model.stage import Stage
from ..report import derived, frame
from ..report.evidence import explain, failed, passed, timing_cells, verification_cells
from .timer import TimedSession
from .verifier import Session, Silent, chosen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

NO_TIMES = (
    "bench needs a GPU, because the emulator takes no times; workbench doctor says why no GPU is used here, and "
    "workbench verify verifies without one"
)


@dataclass(frozen=True)
class Outcome:
    """The result of `verify` or `bench`. `print` shows it as text, a notebook as tables; `run` has every figure.

    `trouble` has the stages that passed and could not be timed, with the reason. Times in `run` are microseconds."""

    run: Run
    trouble: dict[str, str]
    _metrics: dict[str, str] = field(default_factory=dict)

    @property
    def frame(self) -> DataFrame:
        """The outcome as a table of pandas: a row for each stage on each problem that was timed, and one for each stage
        that was only verified.

        Its columns are `operation`, `problem` (text for `--problem`), `stage`, `verdict`, `time_us` (cold median in
        microseconds), `tflops`, `gbytes_per_s`, `of_vendor` and `of_roofline` (shares: 1.0 is equal), `gain` (speed-up
        over the parent), `device`, `commit`, `label` (the problem as reports name it), `sustained_us`, `samples_us`
        (all cold samples) and `date`. What is not known is NaN. `pandas.DataFrame(outcome)` gives the same."""
        return frame.of([self.run])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows of `frame`, by column."""
        return iter(self.frame.to_dict("records"))

    @property
    def ok(self) -> bool:
        """Whether a stage passed, none failed, and all that should be timed was."""
        return passed(self.run) and not self.trouble

    def plot(self) -> Figure:
        """A chart of the times, stage by stage; where there are none, a picture of the first wrong result's elements.

        Raises ValueError where there is neither, ImportError without matplotlib (`kernel-workbench[plots]`)."""
        from ..report import plots

        for operation in dict.fromkeys(s.operation for s in self.run.stages):
            if any(s.measurements for s in self.run.stages if s.operation == operation):
                stages = [(s, self.run) for s in self.run.stages if s.operation == operation]
                return plots.ladder(frame.table(stages, registry.tree(operation)), self._metric(operation))
        for s in self.run.stages:
            if s.verification.failure and s.verification.failure.cells:
                return plots.wrong_elements(f"{s.operation}:{s.stage}", s.verification.failure.cells)
        raise ValueError("there is nothing to plot: nothing was timed, and no answer was wrong")

    def __str__(self) -> str:
        return self._text("simple")

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return self._text("github")

    def _repr_html_(self) -> str:
        tables = (f"<p>{html.escape(title)}</p>{table}" for title, table in self._tables("html"))
        return "".join([*tables, *(f"<pre>{html.escape(said)}</pre>" for said in self._explanations())])

    def _text(self, kind: str) -> str:
        fence = "```" if kind == "github" else ""
        tables = (f"{title}\n\n{table}".strip() for title, table in self._tables(kind))
        return "\n\n".join([*tables, *(f"{fence}\n{said}\n{fence}".strip() for said in self._explanations())])

    def _tables(self, kind: str) -> Iterator[tuple[str, str]]:
        headers, rows = verification_cells(self.run)
        yield self.run.device.name, _table(headers, rows, kind)
        for operation in dict.fromkeys(s.operation for s in self.run.stages):
            for label, rows in frame.of_operation(self.run, operation):
                yield f"{operation} {label}", _table(*timing_cells(rows, self._metric(operation)), kind)

    def _metric(self, operation: str) -> str:
        return self._metrics.get(operation, derived.TFLOPS)

    def _explanations(self) -> Iterator[str]:
        for s in self.run.stages:
            if failed(s.verification):
                yield explain(f"{s.operation}:{s.stage}", s.verification, kept=True)
        for spec, reason in self.trouble.items():
            yield f"{spec} passed and could not be timed: {reason}"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    return str(tabulate(rows, headers, tablefmt=kind, disable_numparse=True))


def verify(
    *what: str | Stage[Any] | Operation[Any],
    code: str | None = None,
    device: str = "auto",
    examples: int = 50,
    seed: int | None = None,
    problem: str | Problem | None = None,
    strict: bool = False,
) -> Outcome:
    """Check stages against NumPy on random problems, or on one.

    - `what`: stages, operations, or their names as on the command line (`gemm`, `gemm:naive`). The default is every
      stage of the project.
    - `code`: CUDA C++ that replaces the source of the one stage. Its entry point has the same name and parameters.
    - `device`: `cuda`, `emulator`, or `auto`, which takes a GPU where there is one.
    - `examples`: how many random problems each stage has to solve, at least one.
    - `seed`: what problems and inputs are drawn from. The default is a fresh secret seed, which the outcome names.
    - `problem`: the one problem to solve instead, as an object or as text (`m=16,n=16,k=16`).
    - `strict`: a condition of a kernel that no problem has tried both ways is a failure, too, in the emulator.

    Raises UnknownSpec, BadProject, ProblemError, DeviceUnavailable, and ValueError for `code` with several stages, and
    for fewer than one example. A fault of a stage is in the outcome, and raises nothing.

    >>> import workbench
    >>> outcome = workbench.verify("vector_add:naive", device="emulator", examples=5)
    >>> outcome.ok
    True
    >>> nothing = 'extern "C" __global__ void vector_add_naive(const IN*, const IN*, IN*, long long) {}'
    >>> workbench.verify("vector_add:naive", code=nothing, device="emulator", problem="n=3").ok
    False"""
    return _session(_stages(what, code), device, examples, seed, problem, timed=False, strict=strict)


def bench(
    *what: str | Stage[Any] | Operation[Any],
    code: str | None = None,
    device: str = "auto",
    examples: int = 50,
    seed: int | None = None,
    problem: str | Problem | None = None,
    suite: bool = False,
) -> Outcome:
    """Verify stages as `verify` does, then time those that passed, on a GPU, interleaved with the vendor's library.

    - `what`, `code`, `device`, `examples`, `seed`: as for `verify`.
    - `problem`: the one problem to time. The default is, of each operation's suite, the one with the most work that a
      stage takes, and the stage's own, where it names one.
    - `suite`: times every problem of the suite instead.

    Nothing is saved. Raises what `verify` raises, and DeviceUnavailable where there is no GPU.

    >>> import workbench
    >>> workbench.bench("vector_add", device="emulator")
    Traceback (most recent call last):
        ...
    workbench.devices.base.DeviceUnavailable: bench needs a GPU, because the emulator takes no times; ..."""
    return _session(_stages(what, code), device, examples, seed, problem, timed=True, suite=suite)


def _stages(what: Sequence[str | Stage[Any] | Operation[Any]], code: str | None) -> list[Stage[Any]]:
    registry.loaded()  # declares the stages whose modules are not imported here
    if not what:
        stages = registry.select(())
    else:
        stages = []
        for item in what:
            stages += map(registry.hosted, item.stages) if isinstance(item, Operation) else _of(item)
    if code is None:
        return stages
    if len(stages) != 1:
        raise ValueError(f"code takes the place of one stage's source, and {len(stages)} stages are named")
    return [stages[0].with_code(code)]


def _of(item: str | Stage[Any]) -> list[Stage[Any]]:
    return [registry.hosted(item)] if isinstance(item, Stage) else registry.select([item])


def _session(
    stages: Sequence[Stage[Any]],
    device: str,
    examples: int,
    seed: int | None,
    problem: str | Problem | None,
    *,
    timed: bool,
    suite: bool = False,
    strict: bool = False,
) -> Outcome:
    if examples < 1:
        raise ValueError(f"examples is {examples}; it has to be at least 1")
    known = {s.operation: registry.operation_of(s) for s in stages}
    problems = {} if problem is None else {name: (_parsed(o.problem, problem),) for name, o in known.items()}
    opened = open_device(device)
    if timed and not opened.times:
        raise DeviceUnavailable(NO_TIMES)
    session = (TimedSession if timed else Session)(opened, examples, chosen(seed), problems, keep=True)
    session.whole_suite, session.strict = suite, strict
    for stage in stages:
        session.stage(stage, Silent())
    session.finish()
    return Outcome(session.run, session.trouble, {name: o.metric for name, o in known.items()})


def _parsed(kind: type[Problem], problem: str | Problem) -> Problem:
    return kind.parse(problem) if isinstance(problem, str) else problem
