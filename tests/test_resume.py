"""An interrupted bench goes on where it was, and only with figures of the same code in the same environment."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes import NumpyDevice
from synthetic import timed_run

from workbench import harness
from workbench.catalogue import registry
from workbench.checks import hazards
from workbench.cli import main as cli
from workbench.cli import sessions
from workbench.measure import timing
from workbench.model.results import Failure, Run, Verdict, Verification
from workbench.records import environment, store, versions
from workbench.toolchain import compiler

VERIFY = harness.verify
LADDER = registry.operations()["vector_add"]
ALL = [f"{stage.spec} {problem.label}" for stage in LADDER.stages for problem in LADDER.suite]


class Bench:
    """`timing.bench` with synthetic samples. It remembers what it was asked for; Ctrl-C comes before call `stop`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stop: int | None = None
        self._samples = {(s.stage, m.label): m for s in timed_run("vector_add").stages for m in s.measurements}

    def __call__(self, stage: Any, device: Any, problem: Any) -> Any:
        if len(self.calls) == self.stop:
            raise KeyboardInterrupt
        self.calls.append(f"{stage.spec} {problem.label}")
        return dataclasses.replace(
            self._samples[stage.name, problem.label],
            problem=str(problem),
            binary_sha256=compiler.compile_source(stage.path, stage.defines(problem)).binary_digest(),
            effort=dataclasses.asdict(timing.Effort()),
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(timing, "bench", made)
    return made


@cache
def _verification(name: str, examples: int, seed: int) -> Verification:
    """What verifying a stage of the ladder gives."""
    (stage,) = registry.select([f"vector_add:{name}"])
    return VERIFY(stage, NumpyDevice("cuda"), examples=examples, seed=seed)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that were verified, in order. Asked again for the same, it gives what it gave before. No search for
    hazards is made in the emulator, which takes longer."""
    calls = []
    monkeypatch.setattr(hazards, "HazardSearch", NoSearch)

    def verify(stage: Any, device: Any, *, examples: int, seed: int, **options: Any) -> Verification:
        calls.append(stage.name)
        return copy.deepcopy(_verification(stage.name, examples, seed))

    monkeypatch.setattr(harness, "verify", verify)
    return calls


class NoSearch:
    """Looks for no hazards in the emulator."""

    def __init__(self, stage: Any, seed: int) -> None: ...

    def __enter__(self) -> NoSearch:
        return self

    def __exit__(self, *_: object) -> None: ...

    def found(self) -> None: ...


@pytest.fixture
def workbench(here: Path, verified: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(sessions, "open_device", lambda name: NumpyDevice("cuda"))

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli.main, ["bench", "vector_add", "--examples", "2", "--suite", *options])

    return run


def test_an_operation_without_a_suite_says_why_nothing_is_timed(
    workbench: Callable[..., Result], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LADDER, "suite", ())
    assert "not timed on every problem: the operation has no suite of problems: name one" in workbench().output


def _interrupt(workbench: Callable[..., Result], bench: Bench, after: int) -> None:
    """A bench that ends so many measurements after its start."""
    bench.stop = after
    assert workbench().exit_code == 130
    bench.calls, bench.stop = [], None


def _saved(folder: Path) -> Run:
    (found,) = store.load(folder / "reports" / "nvidia-h200")
    return found


def _replace(folder: Path, run: Run) -> None:
    """Put another run in the place of all that is saved."""
    device = folder / "reports" / "nvidia-h200"
    for path in store.files(device):
        path.unlink()
    run.save(device / "results.json")


@pytest.mark.parametrize("after", [0, 1, 4, len(ALL) - 1])
def test_what_was_done_is_not_done_again(
    after: int, workbench: Any, bench: Bench, verified: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(workbench, bench, after)
    first, described = _saved(tmp_path), environment.describe()
    assert not first.finished
    verified.clear()
    later = dataclasses.replace(described, date="2999-01-01T00:00:00Z")
    monkeypatch.setattr(environment, "describe", lambda: dataclasses.replace(later))
    result = workbench()
    assert result.exit_code == 0, result.output
    assert bench.calls == ALL[after:]
    assert verified == [s.name for s in LADDER.stages][after // len(LADDER.suite) + 1 :]
    whole = _saved(tmp_path)
    assert whole.finished
    assert [f"{s.operation}:{s.stage} {m.label}" for s in whole.stages for m in s.measurements] == ALL
    assert whole.stages[0].measurements[:after] == first.stages[0].measurements[:after]
    assert not any(s.untimed for s in whole.stages)
    assert whole.environment.date == first.environment.date
    assert f"are those of a run of {first.environment.date} that was interrupted" in result.stderr


def test_two_interruptions_lose_nothing(workbench: Any, bench: Bench, tmp_path: Path) -> None:
    _interrupt(workbench, bench, 5)
    _interrupt(workbench, bench, 0)
    assert workbench().exit_code == 0
    assert bench.calls == ALL[5:]
    assert _saved(tmp_path).finished


def test_a_finished_run_is_made_again(workbench: Any, bench: Bench) -> None:
    assert workbench().exit_code == 0
    bench.calls = []
    assert workbench().exit_code == 0
    assert bench.calls == ALL


@pytest.mark.long
def test_a_bench_verifies_nothing_again_that_passed_as_it_is(
    workbench: Any, bench: Bench, verified: list[str], tmp_path: Path
) -> None:
    assert workbench().exit_code == 0
    first = _saved(tmp_path)
    for _ in range(2):
        verified.clear()
        result = workbench()
        assert result.exit_code == 0, result.output
        assert verified == []
        assert f"{len(LADDER.stages)} stages had passed before" in result.stderr
        again = [s.verification for s in _saved(tmp_path).stages]
        assert {v.date for v in again} == {first.environment.date}
        assert [dataclasses.replace(v, date="") for v in again] == [s.verification for s in first.stages]


@pytest.mark.parametrize("options", [("--fresh",), ("--seed", "5"), ("--examples", "3")])
def test_a_bench_that_asks_for_something_else_verifies_again(
    options: Any, workbench: Any, bench: Bench, verified: list[str]
) -> None:
    assert workbench().exit_code == 0
    verified.clear()
    assert workbench(*options).exit_code == 0
    assert verified == [s.name for s in LADDER.stages]


def test_a_stage_that_failed_since_it_passed_is_verified_again(
    workbench: Any, bench: Bench, verified: list[str]
) -> None:
    assert workbench().exit_code == 0
    failed = Failure(Verdict.MISMATCH, "n=7", "wrong", "replay")
    versions.of(LADDER.stages[1]).remember(LADDER.stages[1], "cuda", failed)
    verified.clear()
    assert workbench().exit_code == 0
    assert verified == [LADDER.stages[1].name]


def test_what_passed_is_verified_again_when_a_header_has_changed(
    workbench: Any, bench: Bench, verified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workbench().exit_code == 0
    real = versions.Snapshot.of

    def changed(stage: Any) -> versions.Snapshot:
        found = real(stage)
        return dataclasses.replace(found, files={name: content + b"\n" for name, content in found.files.items()})

    monkeypatch.setattr(versions.Snapshot, "of", changed)
    verified.clear()
    assert workbench().exit_code == 0
    assert verified == [s.name for s in LADDER.stages]


def _other_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dataclasses.replace(environment.describe(), code_sha256="another")
    monkeypatch.setattr(environment, "describe", lambda: changed)


def _other_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataclasses.replace(NumpyDevice("cuda").info(), driver="another")
    monkeypatch.setattr(NumpyDevice, "info", lambda self: info)


def _other_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("verifier", "timer"):
        monkeypatch.setattr(f"workbench.run.{module}.source_digest", lambda path: "another")


@pytest.mark.parametrize("change", [_other_environment, _other_driver])
def test_what_passed_under_other_circumstances_is_verified_again(
    change: Callable[[pytest.MonkeyPatch], None],
    workbench: Any,
    bench: Bench,
    verified: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert workbench().exit_code == 0
    change(monkeypatch)
    verified.clear()
    assert workbench().exit_code == 0
    assert verified == [s.name for s in LADDER.stages]


@pytest.mark.parametrize("change", [_other_environment, _other_driver, _other_source])
def test_what_was_done_under_other_circumstances_is_done_again(
    change: Callable[[pytest.MonkeyPatch], None], workbench: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(workbench, bench, 4)
    change(monkeypatch)
    assert workbench().exit_code == 0
    assert bench.calls == ALL


@pytest.mark.parametrize("options", [("--fresh",), ("--seed", "5"), ("--examples", "3")])
def test_options_that_ask_for_something_else_start_anew(options: Any, workbench: Any, bench: Bench) -> None:
    _interrupt(workbench, bench, 4)
    assert workbench(*options).exit_code == 0
    assert bench.calls == ALL


@pytest.mark.parametrize("field", ["binary_sha256", "effort"])
def test_a_measurement_of_another_binary_or_effort_is_made_again(
    field: str, workbench: Any, bench: Bench, tmp_path: Path
) -> None:
    _interrupt(workbench, bench, 4)
    saved = _saved(tmp_path)
    setattr(saved.stages[0].measurements[1], field, {"effort": {}, "binary_sha256": "another"}[field])
    _replace(tmp_path, saved)
    assert workbench().exit_code == 0
    assert bench.calls == [ALL[1], *ALL[4:]]


def test_a_stage_that_failed_is_looked_at_again(
    workbench: Any, bench: Bench, tmp_path: Path, verified: list[str]
) -> None:
    _interrupt(workbench, bench, 4)
    saved = _saved(tmp_path)
    saved.stages[0].verification.verdict = Verdict.MISMATCH
    _replace(tmp_path, saved)
    verified.clear()
    assert workbench().exit_code == 0
    assert verified[0] == "naive"


def test_what_a_record_says_of_the_code_loads_no_module(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("raise SystemExit('loaded')\n")
    script = """
import importlib.util, sys
from workbench.records import environment
spec = importlib.util.find_spec("late")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["late"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
environment.code_digest()
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
