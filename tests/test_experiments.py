"""Experiments: what is counted is what theory says, nothing wrong is counted, and the page says what the JSON does."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from click.testing import CliRunner, Result
from command_line import said
from synthetic import H200, environment, verification
from test_report import COMMITTED

from workbench import experiments
from workbench.cli import main as cli
from workbench.devices import Device, open_device
from workbench.devices.emulated import EmulatedDevice
from workbench.experiments import EXPERIMENTS, Experiment, Outcome, Point, hardware, page, study
from workbench.experiments.base import Counts
from workbench.measure import timing
from workbench.model.problem import Problem
from workbench.model.results import Measurement, ResultsError, Timing, Verdict
from workbench.model.stage import Stage
from workbench.report import plots
from workbench.toolchain import compiler, ncu
from workbench.toolchain.compiler import cache_folder

NAMES = [experiment.name for experiment in EXPERIMENTS]
SMS = 132


def _wave_rows(group: int, wave: int, side: int = 256) -> int:
    """Different rows of A and B behind the first `wave` elements of C, walked `group` rows at a time."""
    elements = [(b // (group * side) * group + b % group, b % (group * side) // group) for b in range(wave)]
    return len({i for i, _ in elements}) + len({j for _, j in elements})


WIDTHS = {"4 bytes a thread": 4, "16 bytes": 16, "4 x 16 bytes": 64}
TILES = {"tiles of 64": 64, "tiles of 256": 256}

THEORY: dict[str, Callable[[str, int, Counts], tuple[float | None, ...]]] = {
    "coalescing": lambda _, stride, c: (min(4 * stride, 32), 32 / min(stride, 8)),
    "bank_conflicts": lambda _, pitch, c: (math.gcd(pitch, 32), 1),
    "swizzles": lambda _, span, c: (32 * 16 / span, 1 - span / 128),
    "divergence": lambda _, ways, c: (32 if ways == 1 else None, None, 0 if ways == 1 else None),
    "occupancy": lambda series, blocks, c: (8 * blocks, 256 * blocks * WIDTHS[series] / 1024),
    "arithmetic_intensity": lambda _, terms, c: (terms / 4, None),
    "tile_quantisation": lambda series, n, c: (-(-n // TILES[series]), n / TILES[series] / -(-n // TILES[series])),
    "wave_quantisation": lambda _, blocks, c: (-(-blocks // SMS), blocks / SMS / -(-blocks // SMS)),
    "raster_order": lambda _, group, c: (
        _wave_rows(group, SMS * c["resident_blocks"]),
        2 * SMS * c["resident_blocks"] / _wave_rows(group, SMS * c["resident_blocks"]),
    ),
}
"""The quantities of a point by series, value and counts, of which only resources are used; None where the compiler
has a say."""


def counted(experiment: Experiment) -> Iterator[tuple[str, int, Counts, tuple[float, ...]]]:
    """Series, value, counts and quantities of every point."""
    for declared in experiment.operation.stages:
        for value in experiment.values(SMS):
            stage, problem, _ = experiment.at(declared, value)
            counts = study.count(experiment, stage, problem, SMS)
            yield declared.name, value, counts, tuple(quantity.of(counts) for quantity in experiment.quantities)


@pytest.mark.parametrize("name", NAMES)
def test_the_emulator_counts_what_theory_says(name: str) -> None:
    (experiment,) = experiments.select([name])
    for series, value, counts, found in counted(experiment):
        expected = THEORY[name](series, value, counts)
        wanted = tuple(f if e is None else e for e, f in zip(expected, found, strict=True))
        assert found == pytest.approx(wanted), (series, value)


def test_a_warp_executes_every_way_that_a_lane_goes() -> None:
    (experiment,) = experiments.select(["divergence"])
    found = {ways: quantities for _, ways, _, quantities in counted(experiment)}
    for ways, (lanes, instructions, divergent) in found.items():
        assert instructions / found[1][1] == pytest.approx(ways, rel=0.2)
        assert 32 / ways <= lanes <= 32 / ways + 3
        assert (divergent > 0) == (ways > 1)


def test_arithmetic_crowds_out_everything_else() -> None:
    (experiment,) = experiments.select(["arithmetic_intensity"])
    shares = [share for *_, (_, share) in counted(experiment)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2 < 0.8 < shares[-1] < 1


@pytest.mark.parametrize("name", NAMES)
def test_no_experiment_spills_registers(name: str) -> None:
    (experiment,) = experiments.select([name])
    points = [experiment.at(stage, value) for stage in experiment.operation.stages for value in experiment.values(SMS)]
    assert [r for stage, problem, _ in points for r in compiler.resources(stage, problem) if r.spill_bytes] == []


def few(experiment: Experiment, values: tuple[int, ...]) -> Experiment:
    return dataclasses.replace(experiment, values=lambda multiprocessors: values)


def studied(experiment: Experiment) -> Outcome:
    return study.study(experiment, open_device("emulator"), examples=3, seed=0, on_point=lambda done: None)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_right(name: str) -> None:
    (experiment,) = experiments.select([name])
    made = studied(few(experiment, experiment.values(SMS)[-1:]))
    assert study.ok(made), made
    for point in made.points:
        assert point.verification.problems >= 3  # and edge cases
        assert point.verification.wrong_rejected > 0
        assert point.counts
        assert point.untimed == study.NO_GPU


def wrong(experiment: Experiment, old: str, new: str) -> Experiment:
    """The experiment with one thing of its first stage's source replaced."""
    stage = experiment.operation.stages[0]
    text = stage.path.read_text()
    assert text.count(old) == 1
    return dataclasses.replace(
        experiment,
        operation=dataclasses.replace(experiment.operation, stages=[stage.with_code(text.replace(old, new))]),
    )


@pytest.fixture
def workbench(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(cli.main, ["experiment", "--device", "emulator", *arguments])


def replaced(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    for module in (experiments, page):
        monkeypatch.setattr(module, "EXPERIMENTS", (experiment,))


def test_what_is_wrong_is_not_counted(
    workbench: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (experiment,) = experiments.select(["coalescing"])
    replaced(monkeypatch, wrong(few(experiment, (1, 2)), "factor * x[i]", "factor + x[i]"))
    result = workbench("--examples", "2")
    assert result.exit_code == 1, result.output
    assert "coalescing, strided, 2: mismatch" in result.stderr
    assert "workbench experiment coalescing --device emulator" in result.stderr
    outcome = Outcome.load(tmp_path / "reports/experiments/emulator/coalescing.json")
    assert [p.verification.verdict for p in outcome.points] == [Verdict.MISMATCH] * 2
    assert [p.counts for p in outcome.points] == [{}, {}]
    text = (tmp_path / "reports/experiments/emulator/README.md").read_text()
    assert "0 of 2 points are right" in text
    assert "- **strided, 2**: coalescing: mismatch" in text


def test_a_record_does_not_tell_where_the_checkout_lies() -> None:
    (experiment,) = experiments.select(["coalescing"])
    made = studied(wrong(few(experiment, (1,)), "factor * x[i]", "nonsense"))
    failure = made.points[0].verification.failure
    assert failure.verdict is Verdict.COMPILE_ERROR
    assert 'identifier "nonsense" is undefined' in failure.message
    assert str(cache_folder()) not in failure.message


@pytest.mark.long
def test_named_experiments_are_made_again_and_the_page_has_all(
    workbench: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reports/experiments/emulator"
    monkeypatch.setattr(plots, "save", lambda figure, path: (path.touch(), path)[1])
    assert workbench("bank_conflicts", "--examples", "1").exit_code == 0
    before = (folder / "bank_conflicts.json").read_bytes()
    result = workbench("swizzles", "--examples", "1", "--json")
    assert result.exit_code == 0, result.output
    (made,) = said(result)["outcomes"]
    assert [point["value"] for point in made["points"]] == [16, 32, 64, 128]
    assert (folder / "bank_conflicts.json").read_bytes() == before
    text = (folder / "README.md").read_text()
    assert text.index("bank_conflicts.png") < text.index("swizzles.png")
    assert re.search(r"\| +33 \| +1 \| +1 \|", text)
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if not (folder / link).is_file()] == []


def timed_outcome(experiment: Experiment) -> Outcome:
    """Made up: every point takes 10 µs more than the one before, sustained half of that; the last has no time."""
    made = Outcome(experiment.name, H200, environment(), 0, 3)
    counts: dict[str, int] = {"shared_load_requests": 2, "shared_store_requests": 2, "shared_store_wavefronts": 2}
    for i, value in enumerate(experiment.values(SMS), 1):
        point = Point("transpose", value, "p", verification(), {**counts, "shared_load_wavefronts": 2 * i})
        samples = Timing("t", [10.0 * i] * 5, [5.0 * i] * 5)
        point.timed = Measurement("n", "n", 0, 10**6 * i, 1.0, "memory", samples)
        made.points.append(point)
    made.points[-1].timed, made.points[-1].untimed = None, "it was not steady"
    return made


def test_a_page_with_times_says_what_was_timed_and_what_not(tmp_path: Path) -> None:
    (experiment,) = experiments.select(["bank_conflicts"])
    page.save(tmp_path, timed_outcome(experiment))
    written = page.write(tmp_path)
    text = written[0].read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert rows[0][3:] == ["cold", "sustained", "GB/s, cold"]
    assert rows[3] == ["33", "2", "1", "20.0 µs", "10.0 µs", "100"]
    assert rows[-1][3:] == ["-", "-", "-"]
    assert "- transpose, 64 was not timed: it was not steady" in text
    assert "Nothing was timed" not in text


def test_the_same_outcomes_give_the_same_bytes(tmp_path: Path) -> None:
    (experiment,) = experiments.select(["bank_conflicts"])
    for side in ("a", "b"):
        page.save(tmp_path / side, timed_outcome(experiment))
        with matplotlib.rc_context({"font.size": 30 if side == "a" else 5}):
            page.write(tmp_path / side)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert {p.suffix for p in files} == {".json", ".md", ".png"}
    assert [p for p in files if (tmp_path / "a" / p).read_bytes() != (tmp_path / "b" / p).read_bytes()] == []


class LikeGpu(EmulatedDevice):
    """The emulator, which says that it is a GPU."""

    name, times = "cuda", True


def test_on_a_gpu_every_point_is_timed_and_what_is_not_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    (experiment,) = experiments.select(["wave_quantisation"])
    asked: list[Problem] = []

    def bench(stage: Stage[Any], device: Device, problem: Problem) -> Measurement | str:
        asked.append(problem)
        made = Measurement(str(problem), "l", 1, 1, 0.0, "", Timing(stage.spec, [1.0]))
        return made if len(asked) == 1 else "it was not steady"

    monkeypatch.setattr(timing, "bench", bench)
    made = study.study(few(experiment, (3, 5)), LikeGpu(), examples=2, seed=0, on_point=lambda done: None)
    assert asked == [dataclasses.replace(experiment.operation.suite[0], m=blocks) for blocks in (3, 5)]
    assert [bool(point.timed) for point in made.points] == [True, False]
    assert [point.untimed for point in made.points] == ["", "it was not steady"]
    made.device = H200
    assert not study.ok(made)
    made.points.pop()
    assert study.ok(made)


@pytest.fixture
def raster() -> tuple[Experiment, Stage[Any], Problem]:
    """The experiment on hits in the L2, and a point of it."""
    (experiment,) = experiments.select(["raster_order"])
    stage, _, timed = experiment.at(experiment.operation.stages[0], 16)
    return experiment, stage, timed


def test_hits_in_the_l2_are_counted_by_ncu_and_shown(
    raster: tuple[Experiment, Stage[Any], Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, stage, timed = raster
    l1_hit, l1_read, hit, miss = experiment.metrics
    counted = {l1_hit: 60.0, l1_read: 100.0, hit: 30.0, miss: 10.0}
    asked: list[Any] = []

    def collect(*arguments: Any, flush: bool) -> tuple[list[dict[str, Any]], str]:
        asked.append((*arguments, flush))
        return [{"kernel": "raster", "metrics": counted | {"launch__waves": 1.0}}], ""

    monkeypatch.setattr(ncu, "find", lambda: "/bin/ncu")
    monkeypatch.setattr(ncu, "collect", collect)
    found = hardware.count(experiment, stage, timed, 16)
    assert found == counted
    path, metrics, kernels, command, *_, flush = asked[0]
    assert (path, metrics, kernels, flush) == ("/bin/ncu", [f"{m}.sum" for m in experiment.metrics], "^raster$", True)
    assert command[1:] == ["-m", "workbench.experiments.hardware", "raster_order", "grouped", "16"]

    counts = {"wave_blocks": 8, "wave_rows": 2, "wave_columns": 4}
    points = [Point("grouped", 16, "p", verification(), counts, hardware=found)]
    points.append(Point("grouped", 32, "p", verification(), counts, uncounted="ncu ended with 1"))
    page.save(tmp_path, Outcome("raster_order", H200, environment(), 0, 3, points))
    text = page.write(tmp_path)[0].read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert [row[-1] for row in rows] == ["share of the others that hit in the L2", rows[1][-1], "0.75", "-"]
    assert [row[-2] for row in rows[2:]] == ["0.6", "-"]
    assert "- ncu counted nothing: ncu ended with 1" in text


def test_without_ncu_nothing_of_the_hardware_is_said(
    raster: tuple[Experiment, Stage[Any], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise ncu.NcuUnavailable("there is no ncu: put it on the PATH")

    monkeypatch.setattr(ncu, "find", missing)
    assert hardware.count(*raster, 16) == "there is no ncu: put it on the PATH"
    monkeypatch.setattr(ncu, "find", lambda: "/bin/ncu")
    monkeypatch.setattr(
        ncu, "collect", lambda *arguments, flush: ([], "ncu ended with 1: cannot open /home/somebody/x")
    )
    assert hardware.count(*raster, 16) == "ncu ended with 1"


@pytest.mark.gpu
def test_what_ncu_watches_runs() -> None:
    hardware.launch_point("raster_order", "grouped", "16")


def test_an_outcome_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    (experiment,) = experiments.select(["bank_conflicts"])
    made = timed_outcome(experiment)
    assert Outcome.load(page.save(tmp_path, made)) == made


def test_results_of_no_experiment_are_refused(tmp_path: Path) -> None:
    (experiment,) = experiments.select(["bank_conflicts"])
    page.save(tmp_path, dataclasses.replace(timed_outcome(experiment), name="gone"))
    with pytest.raises(ResultsError, match="gone, which is not an experiment"):
        page.write(tmp_path)


def test_the_committed_outcomes_of_the_emulator_are_of_every_experiment_and_right() -> None:
    records = sorted((COMMITTED / page.FOLDER / "emulator").glob("*.json"))
    assert {path.stem for path in records} == set(NAMES)
    assert all(study.ok(Outcome.load(path)) for path in records)


@pytest.mark.gpu
def test_every_experiment_is_verified_and_timed_on_the_gpu() -> None:
    device: Any = open_device("cuda")
    for experiment in EXPERIMENTS:
        chosen = few(experiment, experiment.values(device.info().sm_count)[-1:])
        made = study.study(chosen, device, examples=10, seed=0, on_point=lambda done: None)
        assert study.ok(made), [(p.series, p.value, p.verification.failure, p.untimed) for p in made.points]
