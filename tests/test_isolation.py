"""Kernels that hang, crash or spoil the context cost their own verdict and nothing else; kill -9 costs no result.

The device in the worker process is a fake one that misbehaves in earnest; the processes are real.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakes
import pytest

from workbench import harness
from workbench.catalogue import registry
from workbench.checks import hazards
from workbench.devices import DeviceUnavailable, Fault, IsolatedDevice, open_device, worker
from workbench.devices.base import Device
from workbench.devices.emulated import EmulatedDevice
from workbench.devices.isolated import IsolatedPlan
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.problem import Size
from workbench.model.results import Run, Verdict, Verification
from workbench.records import store
from workbench.records.store import Folder
from workbench.run.verifier import Session
from workbench.toolchain.compiler import Compiled, compile_source, with_headers

Open = Callable[..., IsolatedDevice]
HERE = Path(__file__).parent


@pytest.fixture
def isolated() -> Iterator[Open]:
    """A misbehaving device in a process of its own, which ends with the test."""
    opened: list[IsolatedDevice] = []

    def open_(
        behaviour: Callable[[], None] | None = None, least_seconds: float = 0.5, name: str = "emulator"
    ) -> IsolatedDevice:
        behaviours = {"1_naive.cu": behaviour} if behaviour else {}
        opened.append(IsolatedDevice(functools.partial(fakes.MisbehavingDevice, behaviours, name), least_seconds))
        return opened[-1]

    yield open_
    for device in opened:
        device.close()


def verify(device: Device, spec: str = "vector_add:naive", examples: int = 10) -> Verification:
    (stage,) = registry.select([spec])
    return harness.verify(stage, device, examples=examples, seed=0)


@pytest.mark.parametrize(
    ("behaviour", "verdict", "part"),
    [
        (fakes.hang, Verdict.TIMEOUT, "not over after 0.5 s"),
        (fakes.exit_at_once, Verdict.CRASH, "exited with code 3"),
        (fakes.segfault, Verdict.CRASH, "SIGSEGV"),
        (fakes.raise_what_nobody_foresaw, Verdict.CRASH, "a bug of the driver's binding"),
        (fakes.eat_memory, Verdict.OUT_OF_MEMORY, "not enough memory"),
        (fakes.access_illegally, Verdict.ILLEGAL_ACCESS, "an illegal memory access"),
        (fakes.be_killed, Verdict.CRASH, "killed twice"),
    ],
)
def test_a_launch_that_never_comes_back_is_a_verdict_and_the_next_stage_fares_as_without_it(
    isolated: Open,
    behaviour: Callable[[], None],
    verdict: Verdict,
    part: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "SHRINK_SECONDS", 0.0)
    device = isolated(behaviour)
    started = time.monotonic()
    outcome = verify(device)
    assert outcome.verdict is verdict
    assert part in outcome.failure.message
    assert outcome.failure.problem.startswith("n=")
    if verdict is Verdict.TIMEOUT:
        assert time.monotonic() - started < device.least_seconds + 5
    after, alone = (verify(d, "vector_add:vectorized") for d in (device, fakes.MisbehavingDevice({}, "emulator")))
    after.seconds = alone.seconds
    assert after == alone
    assert after.verdict is Verdict.PASS


def test_a_process_serves_all_problems_of_all_stages(isolated: Open) -> None:
    device = isolated()
    before = device.worker.pid
    for stage in ("naive", "vectorized"):
        assert verify(device, f"vector_add:{stage}").verdict is Verdict.PASS
    assert (device.worker.pid, device.worker.generation) == (before, 1)


def test_a_lost_context_is_replaced_even_though_the_process_lives(isolated: Open) -> None:
    device = isolated(fakes.access_illegally)
    (stage,) = registry.select(["vector_add:naive"])
    problem = registry.operations()["vector_add"].problem.parse("n=4")
    failure = harness.run_problem(stage, device, problem).failure
    assert failure.verdict is Verdict.ILLEGAL_ACCESS
    assert not device.worker.alive()


def test_a_failure_on_a_gpu_is_replayed_in_the_emulator(
    isolated: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    source = tmp_path / "1_naive.cu"
    source.write_text(stage.path.read_text().replace("i < n", "i <= n"))
    monkeypatch.setattr(harness, "SHRINK_SECONDS", 0.0)
    monkeypatch.setattr(registry.operations()["vector_add"], "cuda_size", Size(300, 300))  # for the emulator
    planted = dataclasses.replace(stage, source=str(source))
    outcome = hazards.beside(planted, isolated(fakes.access_illegally, name="cuda"), examples=5, seed=0)
    assert outcome.verdict is Verdict.ILLEGAL_ACCESS
    assert "the emulator, on the same problem: out_of_bounds" in outcome.failure.message
    assert "1_naive.cu:" in outcome.failure.message
    right = hazards.beside(stage, isolated(fakes.access_illegally, name="cuda"), examples=5, seed=0)
    assert "the emulator finds nothing wrong with the same problem" in right.failure.message


class Lucky(EmulatedDevice):
    """A GPU on which a missing barrier does no harm: what it runs is the stage as it should be."""

    name = "cuda"

    def bind(self, compiled: Compiled, *arguments: Any, **options: Any) -> Any:
        (stage,) = registry.select(["gemm:vectorized"])
        right = compile_source(stage.path, dict(compiled.defines))
        return super().bind(right, *arguments, **options)


def test_a_hazard_behind_right_answers_fails_the_stage_all_the_same(tmp_path: Path) -> None:
    (stage,) = registry.select(["gemm:vectorized"])
    assert hazards.beside(stage, Lucky(), examples=3, seed=0).verdict is Verdict.PASS
    for path in with_headers(stage.path):
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace("__syncthreads();", "", 1) if path == stage.path else text)
    planted = dataclasses.replace(stage, source=str(tmp_path / stage.path.name))
    outcome = hazards.beside(planted, Lucky(), examples=3, seed=0)
    assert outcome.verdict is Verdict.RACE
    assert outcome.failure.message.startswith("the GPU's answers are right")
    assert "05_vectorized.cu:" in outcome.failure.message
    assert "--device emulator" in outcome.failure.replay


def test_the_deadline_grows_with_the_work(isolated: Open) -> None:
    (stage,) = registry.select(["gemm:naive"])
    tiny, large = (stage.plan(registry.operations()["gemm"].problem.parse(p)) for p in ("1x1x1", "8192x8192x8192"))
    assert tiny.expected_seconds < 1e-6
    assert 1.2 < large.expected_seconds < 60  # the naive stage takes 1.2 s on an H200


def test_a_worker_killed_at_random_moments_changes_no_verdict(isolated: Open) -> None:
    device, done, kills, progress = isolated(least_seconds=60), threading.Event(), 0, itertools.count()
    (stage,) = registry.select(["vector_add:naive"])
    rng = random.Random(0)
    solved = 0

    def kill_now_and_then() -> None:  # and not twice over the same problem, which would be a crash
        nonlocal kills
        before = 0
        while not done.wait(rng.uniform(0.02, 0.2)):
            if device.worker.alive() and solved > before + 4:
                before = solved
                kills += 1
                os.kill(device.worker.pid or 0, signal.SIGKILL)

    def on_problem(count: int) -> None:
        nonlocal solved
        solved = next(progress)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    outcomes = []
    try:
        while kills < 4:
            outcomes.append(harness.verify(stage, device, examples=30, seed=0, on_problem=on_problem))
    finally:
        done.set()
        killer.join()
    assert {o.verdict for o in outcomes} == {Verdict.PASS}
    assert {o.problems for o in outcomes} == {30}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_no_answer_to_be_taken_for_the_next(isolated: Open) -> None:
    device = isolated(fakes.hang, least_seconds=30)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        verify(device)
    assert not device.worker.alive()
    assert verify(device, "vector_add:vectorized").verdict is Verdict.PASS


def _bound(device: IsolatedDevice, n: int) -> IsolatedPlan:
    (stage,) = registry.select(["vector_add:naive"])
    problem = VectorAddProblem(n=n)
    case = harness.Case.of(problem)
    compiled = compile_source(stage.path, stage.defines(problem))
    return device.bind(compiled, stage.plan(problem), case.arrays, case.storage())


def _run_in_turns(plans: list[fakes.NumpyDevice], extra: int) -> tuple[int, int, int]:
    for plan in plans:
        plan.run()
    return len(plans), extra, os.getpid()


def test_plans_bound_on_one_device_work_together_there(isolated: Open) -> None:
    device = isolated()
    plans = [_bound(device, 5), _bound(device, 7)]
    assert device.together(plans, _run_in_turns, 100, seconds=1) == (2, 100, device.worker.pid)
    device.close()
    assert device.together(plans, _run_in_turns, 0, seconds=1) == (2, 0, device.worker.pid)  # bound again
    assert device.worker.pid != os.getpid()


def test_what_is_read_is_what_is_there_now(isolated: Open) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    case = harness.Case.of(VectorAddProblem(n=4))
    other = harness.Case.of(VectorAddProblem(n=4, seed=1))
    plan = isolated().bind(
        compile_source(stage.path, stage.defines(case.problem)), stage.plan(case.problem), case.arrays, case.storage()
    )
    for each in (case, other):
        plan.refill(each.storage())
        plan.run()
        assert each.judge(plan.read)[0] is None
    plan.apply(_refill, case.storage(), seconds=1.0)
    assert case.judge(plan.read)[0] is None


def _refill(plan: Any, storage: Any) -> None:
    plan.refill(storage)


def test_plans_that_hang_together_are_stopped(isolated: Open) -> None:
    device = isolated(fakes.hang)
    with pytest.raises(Fault, match=r"was not over after 0\.5 s") as raised:
        device.together([_bound(device, 5)], _run_in_turns, 0, seconds=0.01)
    assert raised.value.verdict is Verdict.TIMEOUT


def test_a_device_that_cannot_be_opened_says_why() -> None:
    with pytest.raises(DeviceUnavailable, match="there is no device 'tpu'"):
        IsolatedDevice(functools.partial(open_device, "tpu"))
    with pytest.raises(DeviceUnavailable, match="exited with code 3"):
        IsolatedDevice(fakes.exit_at_once)  # type: ignore[arg-type]


def test_what_is_printed_there_is_not_on_stdout(isolated: Open, capfd: pytest.CaptureFixture[str]) -> None:
    verify(isolated(functools.partial(print, "from a kernel", flush=True)), examples=1)
    out, err = capfd.readouterr()
    assert "from a kernel" not in out
    assert "from a kernel" in err


def test_the_emulator_gives_the_same_verdict_from_a_process_of_its_own() -> None:
    device = open_device("emulator", isolate=True)
    try:
        isolated, inside = (verify(d, "gemm:cp_async") for d in (device, open_device("emulator")))
    finally:
        device.close()  # type: ignore[attr-defined]
    isolated.seconds = inside.seconds
    assert isolated == inside


# kill -9 of everything


def _marked(mark: str) -> list[int]:
    """Processes whose environment holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _gone(mark: str, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while _marked(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class _Unending:
    """A forked process that verifies stages of vector_add and saves them until it is killed.

    `finished` in its folder counts the stages that are verified, before each is saved.
    """

    def __init__(self, folder: Path, isolated: bool, behaviour: Callable[[], None] | None = None) -> None:
        folder.mkdir()
        self.folder, self.mark = folder, f"WORKBENCH_TEST_MARK={folder}"
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._run(isolated, {"1_naive.cu": behaviour} if behaviour else {})
            finally:
                os._exit(1)

    def _run(self, isolated: bool, behaviours: dict[str, Callable[[], None]]) -> None:
        os.environ["WORKBENCH_TEST_MARK"] = str(self.folder)  # inherited by the worker
        open_here = functools.partial(fakes.MisbehavingDevice, behaviours, "emulator")
        device: Device = IsolatedDevice(open_here, least_seconds=60) if isolated else open_here()
        session = Session(device, examples=2, seed=0, folder=Folder(self.folder))
        listener = SimpleNamespace(verified=lambda problems: None)
        (stage,) = registry.select(["vector_add:naive"])
        for count in itertools.count(1):
            if session.run.stages:
                (self.folder / "new").write_text(str(count))
                (self.folder / "new").replace(self.folder / "finished")
            session.stage(stage, listener)  # type: ignore[arg-type]

    def kill(self, after: int, delay: float) -> tuple[int, int]:
        """Kill it so many results and seconds later; how many stages it had finished, and how many are saved."""
        finished = self.folder / "finished"
        until = time.monotonic() + 60
        while not finished.exists() or int(finished.read_text()) <= after:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(delay)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        assert _gone(self.mark), "a worker outlived the process that started it"
        (run,) = store.load(self.folder)  # raises where it is damaged
        assert all(s.verification.problems == 2 for s in run.stages)
        return int(finished.read_text()), len(run.stages)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_kill_9_at_any_moment_leaves_whole_results_and_no_process(tmp_path: Path) -> None:
    rng = random.Random(1)
    running: list[_Unending] = []
    counts = []
    for number in range(12):
        running.append(_Unending(tmp_path / str(number), isolated=number % 4 == 0))
        if len(running) == 2:
            counts.append(running.pop(0).kill(rng.randrange(4), rng.uniform(0.0, 0.1)))
    counts += [last.kill(0, 0.0) for last in running]
    assert len(counts) == 12
    # the stage in flight is lost at most: `finished` is written when one begins that all before it are saved for
    assert all(saved - begun in (-1, 0) for begun, saved in counts), counts
    assert len({saved for _, saved in counts}) > 1, "the moments did not differ"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent whatever it does")
def test_a_worker_that_hangs_ends_with_its_parent(tmp_path: Path) -> None:
    run = _Unending(tmp_path / "run", isolated=True, behaviour=fakes.hang)
    until = time.monotonic() + 60
    while not _marked(run.mark):
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.7)  # long enough for it to have begun; were it not, the test would still hold
    os.kill(run.pid, signal.SIGKILL)
    os.waitpid(run.pid, 0)
    assert _gone(run.mark)


def test_a_full_disk_keeps_what_was_saved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = (
        "import resource, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from synthetic import emulated_run, timed_run; from workbench.model.results import Run\n"
        "path = Path(sys.argv[1]); emulated_run('vector_add').save(path)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "try: timed_run('gemm').save(path)\n"
        "except OSError as error: print(error.filename)\n"
    )
    path = tmp_path / "results.json"
    done = subprocess.run([sys.executable, "-c", script, path, HERE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(path)
    assert len(Run.load(path).stages) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_the_worker_ends_what_does_not_even_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 0.5)
    with pytest.raises(worker.Late):
        worker.Worker(fakes.hang).ready()
