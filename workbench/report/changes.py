"""What changed between two records: each stage on each problem is the same, faster, slower, or nobody can tell.

The quantity is the ratio of two medians, B / A, with a bootstrap interval. Bootstrapping knows only what varies inside
a run. That clocks, temperature and neighbours differ from one run to the next is seen in the vendor's library, which
was timed interleaved with every stage and has not changed: the median over all its measurements in an operation is how
far the second run drifted, and times are divided by it. On one problem alone the library varies more between two runs
than a stage does, so that dividing by its time there finds changes where there are none; `--by vendor` does it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from ..model.errors import WorkbenchError, WrongUsage
from ..model.results import Measurement, Run, Timing
from ..records import store
from . import derived

COLD, SUSTAINED = "cold", "sustained"

CONFIDENCE = 0.95
RESAMPLES = 2000

RESOLUTION_US = 0.4
"""By so much an unchanged launch of a few microseconds differs from one process to the next."""

OTHER_CHIP = {COLD: 0.05, SUSTAINED: 0.10}
"""By so much an unchanged launch differs between two chips of one model, beyond what the vendor's library does: of 507
rows of the same code on three pairs of chips, 504 cold and 503 sustained times differed by less."""

DRIFT_ROWS = 5
"""Fewer measurements of the vendor's library say more about themselves than about the run."""

Key = tuple[str, str, str]
"""Operation, stage and problem."""


class Incomparable(WrongUsage, ValueError):
    """The times of two records cannot be compared; the message says why."""


class StatisticsUnavailable(WorkbenchError, RuntimeError):
    """SciPy is missing; the message says how to get it."""


class By(StrEnum):
    """What a time is divided by: nothing, the drift of the run, or the vendor's time on the same problem."""

    DRIFT = "drift"
    VENDOR = "vendor"
    TIME = "time"


class Outcome(StrEnum):
    """How a row has changed."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True)
class Ratio:
    """B / A with its confidence interval; without one where a side has a single sample."""

    estimate: float
    low: float | None = None
    high: float | None = None

    def __truediv__(self, other: Ratio) -> Ratio:
        """The ratio of two independent ratios; relative errors add in quadrature."""
        estimate = self.estimate / other.estimate
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return Ratio(estimate)
        down = math.hypot(math.log(self.estimate / self.low), math.log(other.high / other.estimate))
        up = math.hypot(math.log(self.high / self.estimate), math.log(other.estimate / other.low))
        return Ratio(estimate, estimate * math.exp(-down), estimate * math.exp(up))

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.estimate:.3f} (one sample)"
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def judge(ratio: Ratio, tolerance: float) -> Outcome:
    """What a ratio means where a change by `tolerance` (0.02 is 2 %) matters.

    The same: within the tolerance, and twice the tolerance is ruled out. Slower and faster: beyond the tolerance, and
    no change is ruled out. Everything else is ambiguous."""
    if ratio.low is None or ratio.high is None:
        return Outcome.AMBIGUOUS
    if ratio.estimate > 1 + tolerance and ratio.low > 1:
        return Outcome.SLOWER
    if ratio.estimate < 1 - tolerance and ratio.high < 1:
        return Outcome.FASTER
    if abs(ratio.estimate - 1) <= tolerance and ratio.low >= 1 - 2 * tolerance and ratio.high <= 1 + 2 * tolerance:
        return Outcome.SAME
    return Outcome.AMBIGUOUS


@dataclass(frozen=True)
class Change:
    """One stage on one problem, `cold` or `sustained`. Times are in microseconds, as `typical` says.

    `time` is as measured; `of_vendor` the same divided by what the vendor's library, interleaved with the stage, shows;
    `used` what the outcome is of. `tolerance` is larger than asked for where a launch takes few microseconds, and
    where the chip is another one."""

    operation: str
    stage: str
    problem: str
    label: str
    kind: str
    before_us: float
    after_us: float
    time: Ratio
    of_vendor: Ratio | None
    used: Ratio
    tolerance: float
    outcome: Outcome

    @property
    def key(self) -> Key:
        """What it is a row of."""
        return self.operation, self.stage, self.problem


@dataclass(frozen=True)
class Drift:
    """How far one run drifted from another: what times of an operation are divided by, and why.

    A record of stages that were run one by one is of several runs; the dates say which two these are."""

    operation: str
    kind: str
    before: str
    after: str
    ratio: Ratio
    reason: str


@dataclass
class Comparison:
    """All rows that two records share, and what else there is to say of them."""

    changes: list[Change] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)
    only_before: list[str] = field(default_factory=list)
    only_after: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def slower(self) -> bool:
        """Whether any row is."""
        return any(c.outcome is Outcome.SLOWER for c in self.changes)

    @property
    def summary(self) -> str:
        """`12 rows: 10 SAME, 2 SLOWER`."""
        counts = Counter(c.outcome for c in self.changes)
        found = ", ".join(f"{counts[o]} {o}" for o in Outcome if counts[o])
        return f"{len(self.changes)} rows: {found}" if self.changes else "there is no row that both have"


def typical(samples: Sequence[float], kind: str) -> float:
    """The figure that stands for some samples: the median, of cold ones the mean of the medians of both halves.

    In a round of a contest (A B B A) every contestant is once the earlier one and once the later, and what runs just
    before a sample matters to it. Where that makes two clusters of samples, the median of all lies anywhere between."""
    return float(np.mean([derived.median(part) for part in _strata(samples, kind)]))


def ratio(before: Sequence[float], after: Sequence[float], kind: str) -> Ratio:
    """typical(after) / typical(before) with its percentile bootstrap interval, always the same for the same samples.

    Samples back to back heat the chip, and the first ones are faster: they are resampled in pairs, the first of a run
    with the first of the other."""
    estimate = typical(after, kind) / typical(before, kind)
    parts = [_strata(before, kind), _strata(after, kind)]
    if min(len(part) for side in parts for part in side) < 2:
        return Ratio(estimate)
    count = len(parts[0])

    def statistic(*resampled: np.ndarray[Any, Any], axis: int) -> Any:
        medians = [np.median(part, axis) for part in resampled]
        return sum(medians[count:]) / sum(medians[:count])

    low, high = _interval(statistic, parts[0] + parts[1], kind == SUSTAINED and len(before) == len(after))
    return Ratio(estimate, min(low, estimate), max(high, estimate))


def _strata(samples: Sequence[float], kind: str) -> list[Sequence[float]]:
    return [samples[::2], samples[1::2]] if kind == COLD and len(samples) > 1 else [samples]


def _interval(statistic: Any, samples: Sequence[Sequence[float]], paired: bool = False) -> tuple[float, float]:
    try:
        from scipy import stats
    except ImportError:
        raise StatisticsUnavailable(
            "SciPy is needed for confidence intervals; install it with: pip install 'kernel-workbench[stats]'"
        ) from None
    found = stats.bootstrap(
        samples,
        statistic,
        paired=paired,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class _Pair:
    """One row of both records, in one kind of timing; those of a `group` have the same drift."""

    key: Key
    group: tuple[str, str, str, str]
    label: str
    kind: str
    before_us: float
    after_us: float
    time: Ratio
    vendor: Ratio | None
    library: str
    one_chip: bool


def compare(before: Sequence[Run], after: Sequence[Run], tolerance: float = 0.02, by: By = By.DRIFT) -> Comparison:
    """Compare two records, each the runs of one device of which every stage's first counts.

    Raises Incomparable for different devices and StatisticsUnavailable without SciPy."""
    rows_before, rows_after = rows(before), rows(after)
    shared = [key for key in rows_after if key in rows_before]
    made = Comparison(
        only_before=[_name(key, rows_before) for key in rows_before if key not in rows_after],
        only_after=[_name(key, rows_after) for key in rows_after if key not in rows_before],
        notes=list(_differences(before, after)),
    )
    pairs = [pair for key in shared for pair in _pairs(key, rows_before[key], rows_after[key])]
    drifts = {group: _drift(group, pairs, by) for group in dict.fromkeys(p.group for p in pairs)}
    made.drifts = list(drifts.values())
    made.changes = [_change(pair, drifts[pair.group], tolerance, by) for pair in pairs]
    return made


Rows = dict[Key, tuple[Measurement, Run]]


def rows(runs: Iterable[Run]) -> Rows:
    """What was measured, and in which run, by operation, stage and problem."""
    return {(s.operation, s.stage, m.problem): (m, run) for s, run in store.current(runs) for m in s.measurements}


def _name(key: Key, among: Rows) -> str:
    return f"{key[0]}:{key[1]} on {among[key][0].label}"


def _pairs(key: Key, one_row: tuple[Measurement, Run], other_row: tuple[Measurement, Run]) -> Iterator[_Pair]:
    (before, run_before), (after, run_after) = one_row, other_row
    library, same = _library(before, after)
    for kind in (COLD, SUSTAINED):
        one, other = _samples(before.timing, kind), _samples(after.timing, kind)
        if not one or not other:
            continue
        vendor, name = None, ""
        if library and same and _samples(library, kind) and _samples(same, kind):
            vendor = ratio(_samples(library, kind), _samples(same, kind), kind)
            name = f"{library.name} ({library.version})" if library.version else library.name
        yield _Pair(
            key,
            (key[0], kind, run_before.environment.date, run_after.environment.date),
            after.label,
            kind,
            typical(one, kind),
            typical(other, kind),
            ratio(one, other, kind),
            vendor,
            name,
            run_before.device.chip == run_after.device.chip,
        )


def _library(before: Measurement, after: Measurement) -> tuple[Timing | None, Timing | None]:
    """The library that was interleaved with the stage in both runs, in one version; Nones where there is none."""
    library = derived.vendor(before)
    found = [b for b in after.baselines if library and (b.name, b.version) == (library.name, library.version)]
    return (library, found[0]) if found else (None, None)


def _samples(timing: Timing, kind: str) -> list[float]:
    return timing.cold_us if kind == COLD else timing.sustained_us


def _drift(group: tuple[str, str, str, str], pairs: Iterable[_Pair], by: By) -> Drift:
    """What the vendor's library says of two runs, in one operation and kind of timing."""
    none = Ratio(1.0, 1.0, 1.0)
    if by is By.TIME:
        return Drift(*group, none, "times are compared as measured, as asked for")
    if by is By.VENDOR:
        reason = "times are divided by the vendor's on the same problem, as asked for, where both runs have it"
        return Drift(*group, none, reason)
    seen = [(p.vendor.estimate, p.library) for p in pairs if p.group == group and p.vendor]
    if len(seen) < DRIFT_ROWS:
        found = f"{len(seen)} measurements in both runs" if seen else "no measurement in the same version in both runs"
        return Drift(*group, none, f"times are compared as measured: the vendor's library has {found}")
    logs = np.log([estimate for estimate, _ in seen])
    low, high = _interval(np.median, (logs.tolist(),))
    drift = Ratio(*(math.exp(x) for x in (float(np.median(logs)), low, high)))
    libraries = " and ".join(sorted({library for _, library in seen}))
    return Drift(
        *group,
        drift,
        f"times are divided by {drift}, which {libraries} took in B of its time in A (median of {len(seen)})",
    )


def _change(pair: _Pair, drift: Drift, tolerance: float, by: By) -> Change:
    of_vendor = pair.time / pair.vendor if pair.vendor else None
    used = of_vendor if by is By.VENDOR and of_vendor else pair.time / drift.ratio
    chip = 0.0 if pair.one_chip else OTHER_CHIP[pair.kind]
    tolerance = max(tolerance, math.hypot(RESOLUTION_US / pair.before_us, chip))  # independent of each other
    return Change(
        *pair.key,
        pair.label,
        pair.kind,
        pair.before_us,
        pair.after_us,
        pair.time,
        of_vendor,
        used,
        tolerance,
        judge(used, tolerance),
    )


def _differences(before: Sequence[Run], after: Sequence[Run]) -> Iterator[str]:
    """What is not the same in both records, a sentence each. Raises Incomparable for different devices."""
    one, other = (" and ".join(sorted({run.device.name for run in runs})) for runs in (before, after))
    if one != other:
        raise Incomparable(f"A was measured on {one} and B on {other}: times of different devices cannot be compared")
    described = [_circumstances(runs) for runs in (before, after)]
    parts = " and ".join(f"{100 * part:.0f} % ({kind})" for kind, part in OTHER_CHIP.items())
    least = f": nothing below {parts} is called a change"
    for what in dict.fromkeys(key for side in described for key in side):
        one, other = (", ".join(sorted(side.get(what, set()))) or "not recorded" for side in described)
        if one != other:
            yield f"{what}: A {one}, B {other}{least if what == 'chip' else ''}"
    for name, runs in (("A", before), ("B", after)):
        if not all(run.finished for run in runs):
            yield f"{name} was interrupted and is not complete"


def _circumstances(runs: Sequence[Run]) -> dict[str, set[str]]:
    """What can make a difference besides the code, by its name; what older records do not say is left out."""
    found: dict[str, set[str]] = {}
    for run in runs:
        device, made = run.device, run.environment
        facts = {
            "chip": device.chip,
            "driver": device.driver,
            "maximum SM clock": f"{device.sm_clock_mhz} MHz",
            "maximum memory clock": f"{device.memory_clock_mhz} MHz",
            "power limit": f"{device.power_limit_w:.0f} W",
            "CUDA": made.cuda,
            "host": made.host,
            "Python": made.python,
            **made.packages,
        }
        for name, value in facts.items():
            if value:
                found.setdefault(name, set()).add(value)
    return found
