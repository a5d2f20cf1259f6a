"""`workbench watch` follows saves of all that belongs to a stage, and nothing that is saved ends it."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import missing_gpu
from fakes import NumpyDevice
from synthetic import timed_run
from test_project import DECLARATION, HEADER, PROJECT, SOURCE

from workbench import harness
from workbench.catalogue import registry
from workbench.cli import main as cli
from workbench.devices.emulated import EmulatedDevice
from workbench.measure import timing
from workbench.model.results import Verdict
from workbench.records import versions
from workbench.records.versions import Snapshot
from workbench.run import watch

ROOT = Path(__file__).parent.parent

PATIENCE = 60.0
"""Seconds after which a watch that says nothing is ended, and the test fails."""

Event = dict[str, Any]


class Watching:
    """`workbench watch negation:naive` in a project of its own."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.source, self.header = root / "device/negation/1_naive.cu", root / "device/include/negated.cuh"
        self.declaration = root / "signs.py"
        for path, text in (
            (root / "pyproject.toml", PROJECT),
            (self.declaration, DECLARATION),
            (self.source, SOURCE),
            (self.header, HEADER),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environ = {k: v for k, v in os.environ.items() if k != versions.ELSEWHERE}
        command = [sys.executable, "-m", "workbench", "watch", "negation:naive", "--device", "emulator"]
        self.process = subprocess.Popen(
            [*command, "--examples", "12", "--json", *options],
            cwd=root,
            env=environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._patience = threading.Timer(PATIENCE, self._end_all)
        self._patience.start()

    def _end_all(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def next(self) -> Event:
        line = self.process.stdout.readline()
        assert line, f"it has ended: {self.process.stderr.read() if self.process.stderr else ''}"
        return json.loads(line)

    def events(self, last: str = "idle") -> dict[str, Event]:
        """What is told until the run is over, or until this."""
        found = {}
        while last not in found:
            event = self.next()
            found[event["event"]] = event
        return found

    def verdict(self) -> str:
        """The verdict of a whole run."""
        found = self.events()
        told = found.get("whole", {}).get("result") or found["first"]
        return str(told["verification"]["verdict"])

    def end(self, how: int) -> tuple[int, str, str]:
        """Send a signal; how it ends, and what else it says. Returns when no process of it is left that could."""
        self.process.send_signal(how)
        try:
            rest, errors = self.process.communicate(timeout=PATIENCE / 2)
        except subprocess.TimeoutExpired:
            self._end_all()
            raise
        finally:
            self._patience.cancel()
        return self.process.returncode, rest, errors


@pytest.fixture
def watching(tmp_path: Path, interruptible: None, request: pytest.FixtureRequest) -> Iterator[Watching]:
    pytest.importorskip("watchfiles")
    made = Watching(tmp_path / "project", *getattr(request, "param", ()))
    yield made
    if made.process.returncode is None:
        made.end(signal.SIGKILL)


def save(path: Path, text: str) -> None:
    """Replace a file in one step."""
    path.with_name("temporary").write_text(text)
    path.with_name("temporary").replace(path)


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def begin_a_run_without_end(watching: Watching) -> int:
    """Save a declaration with which a run never ends by itself; its process, when it is in there."""
    os.mkfifo(watching.root / "process")
    endless = "import os\nwith open('process', 'w') as told:\n    told.write(str(os.getpid()))\nwhile True:\n    pass\n"
    save(watching.declaration, endless)
    return int((watching.root / "process").read_text())


def test_a_save_of_the_source_a_header_or_the_declaration_is_a_run_and_what_passes_is_kept(watching: Watching) -> None:
    first = watching.events()
    assert first["began"]["saved"] == []
    assert first["first"]["verification"]["problems"] == watch.FIRST
    assert first["whole"]["result"]["verification"]["problems"] == 12
    assert first["whole"]["version"] == "negation:naive@1"
    for number, (path, old, new) in enumerate(
        [
            (watching.source, "negated(x[i])", "negated(x[i]) * 1"),
            (watching.header, "0 - x", "-x"),
            (watching.declaration, '{"THREADS": 128}', '{"THREADS": print("noise") or 64}'),
        ],
        2,
    ):
        changed(path, old, new)
        told = watching.events()
        assert [Path(p).name for p in told["began"]["saved"]] == [path.name]
        assert told["whole"]["version"] == f"negation:naive@{number}"
        assert [a["name"] for a in told["whole"]["against"]] == [f"@{number - 1}"]
    assert [r["block_threads"] for r in told["whole"]["result"]["resources"]] == [64]
    code, rest, errors = watching.end(signal.SIGINT)
    assert (code, rest, "interrupted" in errors, "Traceback" in errors) == (130, "", True, False), errors
    kept = versions.Versions(watching.root / versions.FOLDER / versions.FILE).of("negation", "naive")
    assert [v.number for v in kept] == [1, 2, 3, 4]
    assert not list(watching.root.rglob("*.pyc"))  # they are told from the source by the second in which it was saved


def test_a_wrong_result_and_a_hazard_are_shown_and_the_next_save_is_followed(watching: Watching) -> None:
    watching.events()
    changed(watching.source, "negated(x[i])", "x[i]")
    failure = watching.events()["first"]["verification"]["failure"]
    assert (failure["verdict"], failure["wrong"][0]["index"]) == ("mismatch", [0])
    changed(watching.source, "y[i] = x[i]", "y[i + 1] = x[i]")
    failure = watching.events()["first"]["verification"]["failure"]
    assert failure["verdict"] == "out_of_bounds"
    assert "1_naive.cu:6" in failure["message"]
    watching.source.write_text(SOURCE)
    assert watching.verdict() == "pass"
    kept = versions.Versions(watching.root / versions.FOLDER / versions.FILE).failures()
    assert {f.verdict for f in kept} >= {"out_of_bounds"}


def test_typing_errors_do_not_end_it(watching: Watching) -> None:
    watching.events()
    watching.source.write_text(SOURCE.replace("int i =", "int i"))
    failure = watching.events()["first"]["verification"]["failure"]
    assert failure["verdict"] == "compile_error"
    assert "1_naive.cu(5)" in failure["message"]
    watching.declaration.write_text(DECLARATION.replace("def naive(", "def naive(("))
    assert "signs.py" in watching.events()["trouble"]["message"]
    watching.declaration.write_text(DECLARATION.replace('"naive",', '"renamed",'))
    assert "the stages of negation are renamed" in watching.events()["trouble"]["message"]
    (watching.root / "pyproject.toml").write_text(PROJECT.replace("signs", "sings"))
    assert "there is no module sings" in watching.events()["trouble"]["message"]
    watching.declaration.write_text(DECLARATION)
    watching.events()
    (watching.root / "pyproject.toml").write_text(PROJECT)
    watching.events()
    watching.source.write_bytes(SOURCE.encode() + b"// \xff\n")
    assert watching.verdict() == "pass"


def test_deleted_files_and_folders_do_not_end_it(watching: Watching) -> None:
    watching.events()
    watching.source.unlink()
    assert "No such file" in watching.events()["trouble"]["message"]
    watching.source.write_text(SOURCE)
    assert watching.verdict() == "pass"
    watching.header.unlink()
    assert watching.verdict() == "compile_error"
    watching.header.write_text(HEADER)
    assert watching.verdict() == "pass"
    watching.declaration.unlink()
    assert "there is no module signs" in watching.events()["trouble"]["message"]
    watching.declaration.write_text(DECLARATION)
    assert watching.verdict() == "pass"
    shutil.rmtree(watching.source.parent)
    assert "No such file" in watching.events()["trouble"]["message"]
    whole = watching.root / "device/elsewhere"
    whole.mkdir()
    (whole / watching.source.name).write_text(SOURCE)
    whole.rename(watching.source.parent)
    assert watching.verdict() == "pass"
    watching.source.write_text(SOURCE + "// and it is still looked at\n")
    assert watching.verdict() == "pass"


def test_a_save_in_the_middle_of_a_run_begins_it_again(watching: Watching) -> None:
    watching.events()
    process = begin_a_run_without_end(watching)
    save(watching.declaration, DECLARATION)
    assert not watching.next()["cancelled"]
    told = watching.events()
    assert told["began"]["cancelled"]
    assert told["whole"]["result"]["verification"]["verdict"] == "pass"
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    save(watching.source, SOURCE + "// not in the middle of one\n")
    assert not watching.events()["began"]["cancelled"]


def test_a_kernel_without_end_has_a_verdict(watching: Watching) -> None:
    watching.events()
    changed(watching.source, "if (i < n)", "while (n > 0) __nanosleep(0);\n  if (i < n)")
    assert watching.verdict() in (Verdict.LIVELOCK, Verdict.TIMEOUT, Verdict.DEADLOCK)
    watching.source.write_text(SOURCE)
    assert watching.verdict() == "pass"


def test_whatever_ends_a_run_does_not_end_the_watch(watching: Watching) -> None:
    watching.events()
    for end in ("os.kill(os.getpid(), 9)", "os._exit(3)", "raise SystemExit", "1 / 0"):
        changed(watching.declaration, "    return Launch", f"    import os; {end}\n    return Launch")
        told = watching.events()
        assert "trouble" in told or told["first"]["verification"]["failure"]["verdict"] == "launch_error", end
        watching.declaration.write_text(DECLARATION)
        assert watching.verdict() == "pass", end


def test_other_files_do_not_matter(watching: Watching) -> None:
    watching.events()
    (watching.source.parent / "2_other.txt").write_text("notes")
    (watching.root / "notes.py").write_text("nothing")
    watching.source.write_text(SOURCE + "// saved\n")
    assert [Path(p).name for p in watching.events()["began"]["saved"]] == ["1_naive.cu"]


@pytest.mark.parametrize("watching", [["--isolate"]], indirect=True)
def test_a_device_in_a_process_of_its_own_as_a_gpu_always_is(watching: Watching) -> None:
    assert watching.verdict() == "pass"
    begin_a_run_without_end(watching)
    save(watching.declaration, DECLARATION)
    assert watching.verdict() == "pass"
    changed(watching.source, "negated(x[i])", "x[i]")
    assert watching.verdict() == "mismatch"
    code, rest, _ = watching.end(signal.SIGKILL)
    assert (code, rest) == (-signal.SIGKILL, "")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_when_it_ends_in_the_middle_of_a_run(watching: Watching, how: signal.Signals) -> None:
    watching.events()
    begin_a_run_without_end(watching)
    assert watching.next()["event"] == "began"
    code, rest, _ = watching.end(how)  # returns when nobody has its streams any longer
    assert (code, rest) == (130 if how is signal.SIGINT else -how, "")


# one run, in this process


@pytest.mark.parametrize("spec", ["gemm:naive", "gemm:tma_pipeline", "vector_add:grid_stride", "matvec:split_k"])
def test_the_first_problems_are_small_and_of_few_variants(spec: str) -> None:
    (stage,) = registry.select([spec])
    device = EmulatedDevice()
    first = watch.first_problems(stage, device, seed=0)
    assert len(first) == watch.FIRST
    assert len({str(sorted(stage.defines(p).items())) for p in first}) <= watch.FIRST_VARIANTS
    assert not any(stage.supports(p) for p in first)
    drawn = harness.drawn(stage, device, examples=watch.FIRST_DRAWN, seed=0)
    assert len({str(sorted(stage.defines(p).items())) for p in drawn}) > watch.FIRST_VARIANTS
    assert max(p.cost.flops + p.cost.bytes for p in first) < max(p.cost.flops + p.cost.bytes for p in drawn)


@pytest.mark.usefixtures("here")
def test_a_branch_is_set_beside_its_parent_and_not_the_stage_before_it() -> None:
    stages = {s.name: s for s in registry.operations()["matvec"].stages}
    for name in ("vectorized", "split_k"):
        record = timed_run("matvec")
        record.stages = [s for s in record.stages if s.stage == name]
        versions.of(stages[name]).keep(Snapshot.of(stages[name]), record)
    assert [name for name, _ in watch._others(stages["streamed"], "")] == ["matvec:vectorized@1"]


@pytest.mark.usefixtures("here")
def test_times_are_set_beside_those_of_the_last_good_version_and_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(name: str, factor: float) -> Any:
        made = timed_run("vector_add")
        made.stages = [s for s in timed_run("vector_add").stages if s.stage == "naive"]
        made.stages[0].stage = name
        for m in made.stages[0].measurements:
            m.timing.cold_us = [factor * x for x in m.timing.cold_us]
        return made

    measured = {m.problem: m for m in record("vectorized", 1.0).stages[0].measurements}
    monkeypatch.setattr(timing, "bench", lambda stage, device, problem: measured[str(problem)])
    before, stage, _ = registry.operations()["vector_add"].stages
    store = versions.of(stage)
    store.keep(Snapshot.of(before), record("naive", 3.0))
    old = dataclasses.replace(Snapshot.of(stage), declaration="another one")
    store.keep(old, record("vectorized", 2.0))
    told: list[Any] = []
    watch.run(watch.Job(stage.spec, "cuda", 5, 0, None), NumpyDevice("cuda"), told.append)
    first, verified, timed = told[1:]
    assert (type(first), first.verification.problems) == (watch.First, watch.FIRST)
    assert (verified.timed, timed.timed) == (False, True)
    assert timed.version == verified.version == f"{stage.spec}@2"
    assert [(a.name, set(a.gains)) for a in timed.against] == [
        ("@1", {"268435456 fp32"}),
        (f"{before.spec}@1", {"268435456 fp32"}),
    ]
    assert [list(a.gains.values()) for a in timed.against] == [pytest.approx([2.0]), pytest.approx([3.0])]
    assert len(versions.listed(stage)[1].measured()) == 1
    said = "\n".join(line for event in told[1:] for line in watch.lines(event))
    assert "pass, the smallest 10 problems" in said
    assert "pass, 5 problems (exact 5, bounded 5)" in said
    assert f"kept as {stage.spec}@2" in said
    assert "2.00x of @1, 3.00x of vector_add:naive@1" in said


@pytest.mark.usefixtures("here")
def test_a_failure_is_told_with_its_first_wrong_elements_and_its_id() -> None:
    (stage,) = registry.select(["vector_add:naive"])
    told: list[Any] = []
    watch.run(watch.Job(stage.spec, "emulator", 5, 0, None), NumpyDevice(wrong_after=0), told.append)
    (first,) = told[1:]
    said = "\n".join(watch.lines(first))
    assert "vector_add:naive: mismatch" in said
    assert "c[0]" in said
    assert "kept as " in said
    assert versions.listed(stage) == []


def test_one_problem_can_be_watched(tmp_path: Path) -> None:
    told: list[Any] = []
    watch.run(watch.Job("vector_add:naive", "emulator", 5, 0, "n=77"), NumpyDevice(), told.append)
    assert told[-1].result.verification.problems == 1
    assert told[-1].version is None


def test_nothing_that_is_declared_is_loaded_before_a_run() -> None:
    program = (
        "import sys, workbench.run.warm; print([m for m in sys.modules "
        "if m.startswith('workbench.kernels.') or m in ('workbench.reference', 'workbench.ops')])"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_that_ends_before_it_is_needed_is_one_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("watchfiles")
    started: list[Any] = []

    class Dead:
        """Has ended when it is asked to begin."""

        def __init__(self, job: watch.Job) -> None:
            started.append(self)
            self.connection, theirs = multiprocessing.Pipe()
            theirs.close()
            self.running = False

        def begin(self) -> None:
            self.running = True

        def listen(self) -> watch.Event:
            self.running = False
            return watch.Trouble("it has ended")

        def kill(self) -> None:
            self.connection.close()

    waited_for: list[int] = []

    def wait(connections: Sequence[Any]) -> Sequence[Any]:
        waited_for.append(len(connections))
        if len(waited_for) == 2:
            raise KeyboardInterrupt
        return connections[1:]

    monkeypatch.setattr(watch, "_Process", Dead)
    monkeypatch.setattr(watch, "wait", wait)
    told: list[watch.Event] = []
    job = watch.Job("vector_add:naive", "emulator", 5, 0, None)
    with pytest.raises(KeyboardInterrupt):
        watch.Watch(job, watch.Saves(), told.append).follow()
    assert [type(event) for event in told] == [watch.Began, watch.Trouble, watch.Idle]
    assert (len(started), waited_for) == (2, [2, 1])  # saves and the run, then saves alone


def test_where_saves_cannot_be_seen_it_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watchfiles = pytest.importorskip("watchfiles")

    def too_many(*_: Any, **__: Any) -> Iterator[Any]:
        raise OSError("too many open files")
        yield

    monkeypatch.setattr(watchfiles, "watch", too_many)
    saves = watch.Saves()
    saves.look_at([tmp_path])
    with pytest.raises(watch.WatchUnavailable, match="saves cannot be seen any longer: too many open files"):
        saves.changed()


# what is wrong from the beginning


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("naive",), 2, "naive names "),
        (("vector_add:nave",), 2, "did you mean"),
        (("vector_add:naive", "--problem", "n=0"), 2, "it has to be at least 1"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], code: int, message: str) -> None:
    pytest.importorskip("watchfiles")
    result = CliRunner().invoke(cli.main, ["watch", *arguments])
    assert (result.exit_code, result.stderr.count("Error: ")) == (code, 1)
    assert message in result.stderr


def test_without_watchfiles_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = CliRunner().invoke(cli.main, ["watch", "vector_add:naive"])
    assert result.exit_code == 1
    assert "pip install 'kernel-workbench[watch]'" in result.stderr


@pytest.mark.skipif(missing_gpu() is None, reason="there is a GPU")
def test_without_a_gpu_the_gpu_cannot_be_watched() -> None:
    pytest.importorskip("watchfiles")
    command = [sys.executable, "-m", "workbench", "watch", "vector_add:naive", "--device", "cuda"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("Error: "), "Traceback" in done.stderr) == (1, 1, False)


def test_what_was_deleted_is_not_called_saved(tmp_path: Path) -> None:
    (tmp_path / "there.cu").touch()
    (said,) = watch.lines(watch.Began([str(tmp_path / name) for name in ("there.cu", "gone.cu")], cancelled=False))
    assert said.endswith(" there.cu saved, gone.cu deleted")


def test_ctrl_c_does_not_reach_the_server_that_forks_the_processes_of_runs() -> None:
    process = watch._Process(watch.Job("vector_add:naive", "emulator", 1, 0, None, False))
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    blocked = re.search(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{server._forkserver_pid}/status").read_text(), re.MULTILINE)
    process.kill()
    assert blocked and int(blocked[1], 16) >> (signal.SIGINT - 1) & 1
