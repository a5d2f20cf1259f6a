"""Times as a table of pandas: a row for each implementation on each problem, with its samples. Ladders, charts and the
tables of pages are views of it.

pandas takes half a second to load, so the functions here import it, and what only verifies never calls them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalogue import registry
from ..model.results import HostTiming, Measurement, Run, StageResult
from ..model.stage import Place
from ..records import store
from . import derived

if TYPE_CHECKING:
    from pandas import DataFrame, Series

STAGE, LIBRARY, OTHER, HOST = "stage", "library", "other", "host"
"""What a row is of: a stage; a library that ran interleaved with stages; an implementation that was timed like a stage;
a library on the CPU."""

COLUMNS = {
    "operation": "name of the operation, or of the experiment",
    "problem": "the problem as text that `workbench verify --problem` takes; missing where nothing was timed",
    "stage": "name of the stage, or of another implementation that was timed like one",
    "verdict": "how the stage was verified: `pass`, `mismatch`, `race` and others; empty for other implementations",
    "time_us": "cold median in microseconds: the L2 was flushed before every sample",
    "tflops": "operations of the problem divided by that time, in TFLOP/s",
    "gbytes_per_s": "bytes that the problem has to move divided by that time, in GB/s (1e9 bytes)",
    "of_vendor": "throughput as a share of that of the fastest library timed interleaved with it: 1.0 is equal",
    "of_roofline": "the least time that the peaks of the device allow, as a share of that time",
    "gain": "speed-up over the parent, or over the nearest ancestor timed on the problem in the same run",
    "device": "name of the device",
    "commit": "the commit that was measured; a star stands for uncommitted changes",
    "label": "the problem as reports name it",
    "sustained_us": "median of launches back to back, in microseconds",
    "samples_us": "all cold samples, in microseconds",
    "date": "when the run began, in UTC",
}
"""The columns of the table that users get, and what they are. A figure that is not known is NaN."""


def of(runs: Iterable[Run]) -> DataFrame:
    """The stages of these runs, and what was timed like them, under `COLUMNS`: a row for each problem timed, and one
    for a stage without times."""
    import pandas as pd

    parts = []
    for run in runs:
        for operation in dict.fromkeys([s.operation for s in run.stages] + [p.operation for p in run.peers]):
            stages = [(stage, run) for stage in run.stages if stage.operation == operation]
            timed = table(stages, registry.tree(operation), runs=[run], operation=operation)
            parts.append(timed[timed.kind.isin((STAGE, OTHER))])
    found = pd.concat(parts, ignore_index=True) if parts else table([], {})
    return found[list(COLUMNS)]


def results(folder: str | Path = "build/reports") -> DataFrame:
    """Every published figure of a folder of reports as a table of pandas.

    - `folder`: a folder, with all folders below it, or one file of results.

    The table has a row for each stage on each problem that was timed, and one for each stage that was only verified: of
    `workbench run` and `workbench bench`, of experiments, and of benchmarks that time stages. The columns are those of
    `Outcome.frame`. Files that hold none of these are left out.

    Raises ResultsError where there are no results, or where a file of results is damaged; ImportError without pandas.

    >>> import workbench
    >>> table = workbench.results("reports")  # doctest: +SKIP
    >>> table[table.stage == "stream_k"].groupby("problem").tflops.max()  # doctest: +SKIP
    """
    return of(store.everything(Path(folder)))


def table(
    entries: Iterable[tuple[StageResult, Run]],
    tree: Mapping[str, Place],
    order: Sequence[str] = (),
    runs: Sequence[Run] = (),
    operation: str = "",
) -> DataFrame:
    """Everything timed of one operation. `entries` are its stages in ladder order, each with the run it is from, and
    `tree` says where they stand. Rows are sorted by problem (those whose labels are in `order` first), then by kind.

    A row of a library has the samples of all stages' runs. What else was timed is taken from the first of `runs` that
    has it. Beside `COLUMNS` there are `kind`, `shown` (the name with the mark of a branch), `track`, `quartiles`,
    `measurement` and `run`."""
    import pandas as pd

    entries = list(entries)
    rows = [*_stages(entries, tree), *_libraries(entries), *_others(entries, runs, operation)]
    made = pd.DataFrame(rows, columns=["kind", "shown", "track", "measurement", "run", "flops", "bytes", *COLUMNS])
    timed = made.samples_us.map(len) > 0
    made["time_us"] = made.samples_us.map(_median)
    made["quartiles"] = made.samples_us.map(lambda samples: derived.quartiles(samples) if samples else None)
    for column, work in (("tflops", made.flops / 1e12), ("gbytes_per_s", made.bytes / 1e9)):
        made[column] = work.astype(float) / (made.time_us * 1e-6)
    roofline = [m.roofline_us if isinstance(m, Measurement) and m.roofline_us > 0 else None for m in made.measurement]
    made["of_roofline"] = pd.Series(roofline, dtype=float) / made.time_us
    made["gain"] = pd.Series(_gains(made, tree), dtype=float)
    made["of_vendor"] = made.of_vendor.astype(float)
    made["sustained_us"] = made.sustained_us.astype(float)
    labels = [*dict.fromkeys((*order, *made.label[timed]))]
    kinds = [STAGE, LIBRARY, OTHER, HOST]
    made["_label"], made["_kind"] = made.label.map({x: i for i, x in enumerate(labels)}), made.kind.map(kinds.index)
    return made.sort_values(["_label", "_kind"], kind="stable", ignore_index=True).drop(columns=["_label", "_kind"])


def of_operation(run: Run, operation: str) -> Iterator[tuple[str, DataFrame]]:
    """What one run timed of an operation, a problem after the other, as `ladders` has it; nothing, and no pandas, where
    it timed none of its stages."""
    stages = [(stage, run) for stage in run.stages if stage.operation == operation]
    if any(stage.measurements for stage, _ in stages):
        yield from ladders(table(stages, registry.tree(operation), runs=[run]))


def ladders(times: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The problems on which stages were timed: the label, and its rows."""
    for label, rows in times[times.samples_us.map(len) > 0].groupby("label", sort=False):
        yield str(label), rows


def only(rows: DataFrame, *kinds: str) -> DataFrame:
    """The rows of these kinds."""
    return rows[rows.kind.isin(kinds)]


def best(rows: DataFrame) -> Series:
    """The row of the stage with the lowest cold median."""
    return rows.loc[only(rows, STAGE).time_us.idxmin()]


def column(metric: str) -> str:
    """The column of a metric, `TFLOP/s` or `GB/s`."""
    return "gbytes_per_s" if metric == derived.GBPS else "tflops"


def medians(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """The rows of a benchmark's record as a table; of columns of samples (`cold_us`) the medians."""
    import pandas as pd

    made = pd.DataFrame(list(rows))
    sampled = [name for name in made.columns if name.endswith("_us") and made[name].map(type).eq(list).any()]
    return made.assign(**{name: made[name].map(_median) for name in sampled})


def geometric_mean(ratios: Series) -> float:
    """Of ratios of times; NaN of none."""
    return math.exp(float(ratios.map(math.log).mean()))


def _median(samples: Sequence[float]) -> float:
    return derived.median(samples) if samples else float("nan")


def _row(run: Run, operation: str, kind: str, stage: str, m: Any = None, **more: Any) -> dict[str, Any]:
    """What every row has; `m` is a measurement, or the timing of a library on the CPU."""
    made = run.environment
    row = {"operation": operation, "kind": kind, "stage": stage, "shown": stage, "verdict": "", "run": run}
    row |= {"device": run.device.name, "commit": made.commit + "*" * made.dirty, "date": made.date, "samples_us": []}
    if m is not None:
        row |= {name: getattr(m, name) for name in ("problem", "label", "flops", "bytes")} | {"measurement": m}
    return row | more


def _measured(m: Measurement) -> dict[str, Any]:
    timing, share = m.timing, derived.share_of_vendor(m)
    return {"samples_us": timing.cold_us, "sustained_us": _median(timing.sustained_us), "of_vendor": share}


def _stages(entries: Sequence[tuple[StageResult, Run]], tree: Mapping[str, Place]) -> Iterator[dict[str, Any]]:
    for stage, run in entries:
        place = tree.get(stage.stage)
        more = {"verdict": str(stage.verification.verdict), "track": place.track if place else ""}
        more["shown"] = place.shown(stage.stage) if place else stage.stage
        for m in stage.measurements:
            yield _row(run, stage.operation, STAGE, stage.stage, m, **more, **_measured(m))
        if not stage.measurements:
            yield _row(run, stage.operation, STAGE, stage.stage, **more)


def _libraries(entries: Sequence[tuple[StageResult, Run]]) -> Iterator[dict[str, Any]]:
    """A row for each library on each problem; its work and its roofline are those of the first stage there."""
    pooled: dict[tuple[str, str], dict[str, Any]] = {}
    back_to_back: dict[tuple[str, str], list[float]] = {}
    first: dict[str, Measurement] = {}
    for stage, run in entries:
        for m in stage.measurements:
            for timing in m.baselines:
                key = m.label, timing.name
                work = first.setdefault(m.label, m)
                row = pooled.setdefault(key, _row(run, stage.operation, LIBRARY, timing.name, work))
                row["samples_us"] += timing.cold_us
                back_to_back.setdefault(key, []).extend(timing.sustained_us)
    for key, row in pooled.items():
        yield row | {"sustained_us": _median(back_to_back[key])}


def _others(
    entries: Sequence[tuple[StageResult, Run]], runs: Sequence[Run], operation: str
) -> Iterator[dict[str, Any]]:
    """Other implementations, and libraries on the CPU. Where stages were timed, on the problems of those alone."""
    operations = {stage.operation for stage, _ in entries} or {operation}
    labels = {m.label for stage, _ in entries for m in stage.measurements}
    seen = set()
    for run in runs:
        measured: list[tuple[str, str, str, Measurement | HostTiming]]
        measured = [(p.operation, OTHER, p.name, m) for p in run.peers for m in p.measurements]
        measured += [(t.operation, HOST, t.name, t) for t in run.host]
        for name, kind, stage, m in measured:
            key = kind, stage, m.label
            if name not in operations or (entries and m.label not in labels) or key in seen:
                continue
            seen.add(key)
            figures = _measured(m) if isinstance(m, Measurement) else {"samples_us": m.samples_us}
            yield _row(run, name, kind, stage, m, **figures)


def _gains(made: DataFrame, tree: Mapping[str, Place]) -> list[float | None]:
    """The speed-up of each row over its parent, or over the nearest ancestor that has a row of the same run."""
    timed = {(id(row.run), row.label, row.stage): row.time_us for row in made.itertuples() if row.kind == STAGE}
    found: list[float | None] = []
    for row in made.itertuples():
        parent = tree[row.stage].parent if row.kind == STAGE and row.stage in tree else None
        while parent is not None and (id(row.run), row.label, parent) not in timed:
            parent = tree[parent].parent if parent in tree else None
        found.append(timed[id(row.run), row.label, parent] / row.time_us if parent is not None else None)
    return found
