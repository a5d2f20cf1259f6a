"""Two records are compared row by row: the same is called so, what is slower is found, drift is not a change."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from command_line import git, invoke, said
from synthetic import emulated_run, timed_run

from workbench.model.results import Measurement, Run, Timing
from workbench.records import store
from workbench.report import changes
from workbench.report.changes import By, Outcome, Ratio

REPORT = Path(__file__).parent.parent / "reports" / "nvidia-h200"


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of fewer resamples: enough for what is told apart here, and quick."""
    monkeypatch.setattr(changes, "RESAMPLES", 300)


def _scaled(run: Run, factor: Callable[[str, Measurement, Timing], float]) -> Run:
    """The run with every sample of a stage's contest multiplied by `factor(stage, measurement, contestant)`."""
    made = copy.deepcopy(run)
    for stage in made.stages:
        for m in stage.measurements:
            for timing in (m.timing, *m.baselines):
                by = factor(stage.stage, m, timing)
                timing.cold_us = [by * x for x in timing.cold_us]
                timing.sustained_us = [by * x for x in timing.sustained_us]
    return made


def _gemm() -> Run:
    """Half a dozen stages of the ladder on some problems: rows enough to say how far a run drifted."""
    run = timed_run("gemm")
    for stage in run.stages[:6]:
        stage.measurements = stage.measurements[::2]
    return dataclasses.replace(run, stages=run.stages[:6])


def _outcomes(found: changes.Comparison) -> set[Outcome]:
    return {c.outcome for c in found.changes}


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (Ratio(1.0, 0.99, 1.01), Outcome.SAME),
        (Ratio(1.019, 1.01, 1.039), Outcome.SAME),  # surely a change, and one that does not matter
        (Ratio(1.019, 0.99, 1.041), Outcome.AMBIGUOUS),
        (Ratio(0.99, 0.959, 1.0), Outcome.AMBIGUOUS),
        (Ratio(1.021, 1.001, 1.1), Outcome.SLOWER),
        (Ratio(1.021, 0.999, 1.03), Outcome.AMBIGUOUS),
        (Ratio(0.979, 0.9, 0.999), Outcome.FASTER),
        (Ratio(0.979, 0.9, 1.001), Outcome.AMBIGUOUS),
        (Ratio(1.0), Outcome.AMBIGUOUS),
    ],
)
def test_an_outcome_follows_from_estimate_and_interval(ratio: Ratio, outcome: Outcome) -> None:
    assert changes.judge(ratio, 0.02) is outcome


def test_the_ratio_of_ratios_has_the_errors_of_both() -> None:
    found = Ratio(1.2, 1.2 / 1.03, 1.2 * 1.03) / Ratio(1.1, 1.1 / 1.04, 1.1 * 1.04)
    assert found.estimate == pytest.approx(1.2 / 1.1)
    assert found.high / found.estimate == pytest.approx(1.05, abs=1e-3)
    assert found.estimate / found.low == pytest.approx(1.05, abs=1e-3)


def test_a_record_is_the_same_as_itself() -> None:
    run = _gemm()
    found = changes.compare([run], [run])
    assert _outcomes(found) == {Outcome.SAME}
    assert len(found.changes) == 2 * sum(len(s.measurements) for s in run.stages)
    assert not found.only_before and not found.only_after and not found.notes
    assert changes.compare([run], [run]) == found


def test_only_the_stage_that_changed_is_called_so() -> None:
    run = _gemm()
    slow = _scaled(run, lambda stage, m, t: 1.05 if stage == "smem_tiling" and t is m.timing else 1.0)
    for one, other, outcome in ((run, slow, Outcome.SLOWER), (slow, run, Outcome.FASTER)):
        found = changes.compare([one], [other])
        by_stage = {(c.stage == "smem_tiling", c.outcome) for c in found.changes if c.before_us > 20}
        assert by_stage == {(True, outcome), (False, Outcome.SAME)}


def test_a_run_that_drifted_as_a_whole_has_not_changed() -> None:
    run = _gemm()
    drifted = _scaled(run, lambda stage, m, t: 1.05)
    assert _outcomes(changes.compare([run], [drifted])) == {Outcome.SAME}
    as_measured = changes.compare([run], [drifted], by=By.TIME)
    assert {c.outcome for c in as_measured.changes if c.before_us > 20} == {Outcome.SLOWER}


def test_every_two_runs_have_a_drift_of_their_own() -> None:
    run = _gemm()
    first, last = (dataclasses.replace(run, stages=stages) for stages in (run.stages[:3], run.stages[3:]))
    earlier = _scaled(last, lambda stage, m, t: 1.05)  # those stages were run on another day
    earlier.environment = dataclasses.replace(run.environment, date="2025-12-31T00:00:00Z")
    found = changes.compare([first, earlier], [run])
    assert _outcomes(found) == {Outcome.SAME}
    drifts = {d.before[:10]: d.ratio.estimate for d in found.drifts if d.kind == changes.COLD}
    assert drifts == {"2026-01-02": 1.0, "2025-12-31": pytest.approx(1 / 1.05)}


def test_a_library_that_changed_on_one_problem_changes_no_stage() -> None:
    run = _gemm()
    label = run.stages[0].measurements[0].label
    odd = _scaled(run, lambda stage, m, t: 0.9 if m.label == label and t is not m.timing else 1.0)
    assert _outcomes(changes.compare([run], [odd])) == {Outcome.SAME}
    by_vendor = changes.compare([run], [odd], by=By.VENDOR)
    assert {c.label for c in by_vendor.changes if c.outcome is Outcome.SLOWER} == {label}


@pytest.mark.parametrize("what", ["another version", "few rows"])
def test_without_a_yardstick_times_are_compared_as_measured(what: str) -> None:
    run = _gemm()
    if what == "few rows":
        run.stages = run.stages[:1]
        run.stages[0].measurements = run.stages[0].measurements[:2]
    other = _scaled(run, lambda stage, m, t: 1.05)
    if what == "another version":
        for m in (m for s in other.stages for m in s.measurements):
            m.baselines = [dataclasses.replace(b, version="2") for b in m.baselines]
    found = changes.compare([run], [other])
    assert Outcome.SLOWER in _outcomes(found)
    assert all("as measured" in d.reason for d in found.drifts)


def test_what_alternates_within_a_round_does_not_blur_the_ratio() -> None:
    rng = np.random.default_rng(0)
    one, other = ((np.tile([15.6, 16.5, 16.5, 15.6], 10)[:40] + rng.normal(0, 0.02, 40)).tolist() for _ in "AB")
    halves = [np.tile([15.6, 16.5], 20).tolist(), (np.tile([15.6, 16.5], 20) * 1.03).tolist()]
    assert changes.ratio(one, one, changes.COLD).estimate == 1
    found = changes.ratio(halves[0], halves[1], changes.COLD)
    assert (found.low, found.high) == (pytest.approx(1.03), pytest.approx(1.03))
    assert changes.judge(changes.ratio(one, other, changes.COLD), 0.02) is not Outcome.SLOWER


def test_a_chip_that_heats_up_alike_in_both_runs_is_no_uncertainty() -> None:
    one, other = [180.0, 205.0, 210.0, 211.0, 210.0], [180.5, 204.0, 209.0, 212.0, 210.5]
    assert changes.judge(changes.ratio(one, other, changes.SUSTAINED), 0.02) is Outcome.SAME


def test_launches_of_few_microseconds_are_given_their_resolution() -> None:
    run = timed_run("vector_add")
    label = run.stages[0].measurements[0].label

    def slower(stage: str, m: Measurement, t: Timing) -> float:
        return 1.04 if m.label == label and t is m.timing else 1.0

    found = [c for c in changes.compare([run], [_scaled(run, slower)]).changes if c.label == label]
    quick = [c for c in found if c.before_us < 9]
    assert quick and {c.outcome for c in quick} == {Outcome.SAME}
    assert {c.outcome for c in found if c.before_us > 20} == {Outcome.SLOWER}


def test_on_another_chip_a_launch_of_few_microseconds_is_given_both_tolerances() -> None:
    run = timed_run("vector_add")
    other = _scaled(run, lambda stage, m, t: 1.082 if t is m.timing else 1.0)
    other.device = dataclasses.replace(other.device, chip="another")
    cold = [c for c in changes.compare([run], [other]).changes if c.kind == changes.COLD]
    quick = [c for c in cold if c.before_us < 7]
    assert quick and all(5.2 < c.before_us < 6.1 for c in quick)  # 0.4 us are 7.7 % or less, with 5 % 8.2 % or more
    assert {c.outcome for c in quick} == {Outcome.SAME}
    assert {c.outcome for c in cold if c.before_us > 20} == {Outcome.SLOWER}


@pytest.mark.parametrize(
    ("factor", "here", "cold", "sustained"),
    [
        (1.04, Outcome.SLOWER, Outcome.SAME, Outcome.SAME),
        (0.96, Outcome.FASTER, Outcome.SAME, Outcome.SAME),
        (1.08, Outcome.SLOWER, Outcome.SLOWER, Outcome.SAME),
        (1.15, Outcome.SLOWER, Outcome.SLOWER, Outcome.SLOWER),
    ],
)
def test_on_another_chip_small_differences_are_no_changes(
    factor: float, here: Outcome, cold: Outcome, sustained: Outcome
) -> None:
    run = timed_run("vector_add")
    other = _scaled(run, lambda stage, measurement, timing: factor if timing.name.startswith("vector_add:") else 1.0)

    def outcomes(found: changes.Comparison) -> set[tuple[str, Outcome]]:
        return {(c.kind, c.outcome) for c in found.changes if c.before_us > changes.RESOLUTION_US / 0.02}

    assert outcomes(changes.compare([run], [other])) == {("cold", here), ("sustained", here)}
    other.device = dataclasses.replace(other.device, chip="another")
    found = changes.compare([run], [other])
    assert outcomes(found) == {("cold", cold), ("sustained", sustained)}
    assert any("nothing below 5 % (cold) and 10 % (sustained) is called a change" in note for note in found.notes)


def test_a_single_sample_says_nothing_of_its_spread() -> None:
    run = _gemm()
    run.stages[0].measurements[0].timing.sustained_us = [3.0]
    found = changes.compare([run], [run]).changes
    assert [c.outcome for c in found[:2]] == [Outcome.SAME, Outcome.AMBIGUOUS]


def _as_today(samples: list[float]) -> list[float]:
    """Sustained samples of the report, of which slow kernels had one, in the number that is taken now."""
    return samples if len(samples) >= 3 else samples[:1] * 3


BETWEEN_RUNS = {"cold": (0.0025, 0.006), "sustained": (0.0025, 0.01)}
"""By how much a stage's time and the library's differ from one run to another beyond what varies inside a run.

Standard deviations after half and three quarters of the rows of the two H200 runs in this repository's history, as far
as stages had not changed between them.
"""


def _session(
    real: Run, rng: np.random.Generator, slowed: frozenset[changes.Key] = frozenset(), factor: float = 1.03
) -> Run:
    """What another run of the same kernels might have measured, some of them slowed; the whole drifts by 1 %."""
    made, drift = copy.deepcopy(real), np.exp(rng.normal(0, 0.01))
    for stage in made.stages:
        for m in stage.measurements:
            by = drift * (factor if (stage.operation, stage.stage, m.problem) in slowed else 1.0)
            _measure_again(m.timing, rng, by, 0)
            for baseline in m.baselines:
                _measure_again(baseline, rng, drift, 1)
    return made


def _measure_again(timing: Timing, rng: np.random.Generator, by: float, who: int) -> None:
    cold, sustained = (by * np.exp(rng.normal(0, BETWEEN_RUNS[kind][who])) for kind in ("cold", "sustained"))
    rounds = np.reshape(timing.cold_us, (-1, 2))
    timing.cold_us = (cold * rounds[rng.integers(len(rounds), size=len(rounds))]).ravel().tolist()
    samples = np.array(_as_today(timing.sustained_us))
    timing.sustained_us = (sustained * samples * np.exp(rng.normal(0, 0.002, len(samples)))).tolist()


def _shows_drift(run: Run) -> bool:
    """Whether the library was timed often enough to say how far the whole run drifted."""
    return sum(bool(m.baselines) for stage in run.stages for m in stage.measurements) >= changes.DRIFT_ROWS


@pytest.mark.long
def test_of_two_runs_on_an_h200_the_unchanged_is_the_same_and_three_percent_are_found() -> None:
    real = [run for run in store.load(REPORT) if _shows_drift(run)]
    rng, keys = np.random.default_rng(0), list(changes.rows(real))
    unchanged: Counter[Outcome] = Counter()
    slowed: Counter[Outcome] = Counter()
    for _ in range(3):
        slow = frozenset(key for key in keys if rng.random() < 0.5)
        sessions = [_session(run, rng) for run in real], [_session(run, rng, slow) for run in real]
        for c in changes.compare(*sessions).changes:
            if c.key not in slow:
                unchanged[c.outcome] += 1
            elif c.before_us > changes.RESOLUTION_US / 0.02:  # 3 % of less are not above what a launch varies by
                slowed[c.outcome] += 1
    assert unchanged.total() > 1000 and slowed.total() > 1000
    # 2 in 1000 over six seeds of these draws, between 1 and 4
    assert unchanged[Outcome.SLOWER] <= unchanged.total() / 200
    assert unchanged[Outcome.SAME] >= 0.99 * unchanged.total()
    assert slowed[Outcome.SLOWER] >= 0.95 * slowed.total()


# the command


@pytest.fixture
def compare(here: Path) -> Callable[..., Result]:

    def run(*arguments: object) -> Result:
        return invoke("compare", *arguments)

    return run


def _save(run: Run, where: str) -> str:
    run.save(Path(where))
    return where


def test_compare_ends_with_1_where_something_is_slower(compare: Any) -> None:
    run = timed_run("vector_add")
    a = _save(run, "a.json")
    b = _save(_scaled(run, lambda stage, m, t: 1.06 if stage == "naive" and t is m.timing else 1.0), "b.json")
    slower = compare(a, b)
    assert slower.exit_code == 1
    assert {"SLOWER", "SAME"} <= set(slower.stdout.split())
    assert "times are divided by 1.000" in slower.stdout
    faster = compare(b, a)
    assert (faster.exit_code, "FASTER" in faster.stdout) == (0, True)
    assert compare(a, b, "--tolerance", "10").exit_code == 0


def test_compare_prints_json(compare: Any) -> None:
    a = _save(timed_run("vector_add"), "a.json")
    found = said(compare(a, a, "--json"))
    assert (found["slower"], found["changes"][0]["outcome"]) == (False, "SAME")
    assert found["changes"][0]["used"]["estimate"] == 1.0


def test_rows_of_one_side_only_are_said(compare: Any) -> None:
    run = timed_run("vector_add")
    fewer = dataclasses.replace(run, stages=run.stages[1:])
    label = run.stages[0].measurements[0].label
    a, b = _save(run, "a.json"), _save(fewer, "b.json")
    assert f"only in A: vector_add:naive on {label}" in compare(a, b).stdout
    assert f"only in B: vector_add:naive on {label}" in compare(b, a).stdout


def test_what_differs_besides_the_code_is_said(compare: Any) -> None:
    run = timed_run("vector_add")
    device = dataclasses.replace(run.device, driver="590.2", power_limit_w=500.0)
    packages = {**run.environment.packages, "torch": "2.12"}
    other = dataclasses.replace(
        run, device=device, environment=dataclasses.replace(run.environment, packages=packages), finished=False
    )
    shown = compare(_save(run, "a.json"), _save(other, "b.json")).stdout
    for line in (
        "driver: A 580.1, B 590.2",
        "power limit: A 700 W, B 500 W",
        "torch: A not recorded, B 2.12",
        "B was interrupted and is not complete",
    ):
        assert f"differs: {line}" in shown
    assert "numpy" not in shown


def _message(result: Result, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    for part in parts:
        assert part in result.stderr


def test_times_of_two_devices_are_not_compared(compare: Any) -> None:
    run = timed_run("vector_add")
    other = dataclasses.replace(run, device=dataclasses.replace(run.device, name="NVIDIA B200"))
    _message(compare(_save(run, "a.json"), _save(other, "b.json")), "NVIDIA H200", "NVIDIA B200", "cannot be compared")


def test_wrong_usage_is_not_taken_for_slower(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a = _save(timed_run("vector_add"), "a.json")
    Path("broken.json").write_text("{")
    _message(compare(a, "absent.json"), "absent.json is no file, no folder")
    _message(compare(a, "HEAD:absent.json"), "no COMMIT:path that git knows")
    _message(compare(a, "broken.json"), "broken.json is not JSON")
    _message(compare(a, "."), "there are no results in .")
    _message(compare(a), "Missing argument 'B'")
    _message(compare(a, a, "--tolerance", "0"), "--tolerance")
    monkeypatch.setitem(sys.modules, "scipy", None)
    _message(compare(a, a), "pip install 'kernel-workbench[stats]'")


def test_a_folder_of_reports_is_that_of_its_only_device(compare: Any) -> None:
    a = _save(timed_run("vector_add"), "reports/nvidia-h200/results.json")
    for where in ("reports", "reports/nvidia-h200"):
        assert compare(a, where).exit_code == 0
    _save(emulated_run(), "reports/emulator/results.json")
    _message(compare(a, "reports"), "choose one of reports/emulator, reports/nvidia-h200")


def test_git_has_the_results_of_a_commit(compare: Any) -> None:
    run = timed_run("vector_add")
    older = _scaled(run, lambda stage, m, t: 2.0 if stage == "naive" else 1.0)  # measured again since
    _save(dataclasses.replace(run, stages=run.stages[:1]), "r/gpu/results.json")
    _save(older, "r/gpu/results-20260101T000000Z.json")
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    Path("r/gpu/results-20260101T000000Z.json").unlink()
    _save(_scaled(run, lambda stage, m, t: 1.06 if t is m.timing else 1.0), "r/gpu/results.json")
    for where in ("HEAD:r", "HEAD:r/gpu", "HEAD:r/gpu/"):
        result = compare(where, "r")
        assert result.exit_code == 1
        assert "only in" not in result.stdout  # both of the folder's records were read
        assert "FASTER" not in result.stdout  # and the newer one counts
    assert "only in B: vector_add:vectorized" in compare("HEAD:r/gpu/results.json", "r").stdout
    _message(compare("HEAD:r/gpu/none", "r"), "no COMMIT:path")
