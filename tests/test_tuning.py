"""Tuning: what is wrong is never timed, the best is found, and nothing found is lost. The clock is a number."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import HostPlan
from synthetic import H200

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.devices.base import OnMachine
from workbench.harness import Case
from workbench.kernels.vector_add import VECTOR_ADD, VectorAddProblem
from workbench.measure import configurations, places, plausibility, timing, tuning
from workbench.measure.places import Here, There
from workbench.measure.tuning import Proposals, Tuning, allowed, tune
from workbench.model import launch
from workbench.model.arrays import Array, Arrays
from workbench.model.launch import Plan
from workbench.model.problem import Size
from workbench.model.results import DeviceInfo
from workbench.model.stage import Stage
from workbench.records.tuned import Table, Trial
from workbench.toolchain import compiler
from workbench.toolchain.compiler import Assembled, Compiled, CompileError, KernelUsage

Parameters = Mapping[str, int]

PROBLEM = VectorAddProblem(n=5000, dtype="fp32")
SPACE = {"THREADS": (32, 64, 128, 256, 512), "UNROLL": (1, 2, 4, 8), "GROUP": (1, 2, 4, 8, 16, 32)}
COMPILING, VERIFYING = 0.2, 0.5
"""Seconds of a configuration: with 16 cores, and for a matrix product of 4096^3."""


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Inline(Executor):
    """Does the work at once."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


class Gpu(OnMachine):
    """Adds vectors in NumPy, in a time that depends on the parameters with which the kernel was compiled."""

    name, machine, times = "cuda", launch.H200, True

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock, self.random = clock, random.Random(seed)
        self.wrong: Callable[[Parameters], bool] = lambda parameters: False
        self.interrupt_after = float("inf")
        self.timed: list[dict[str, int]] = []
        self.open = 0

    def microseconds(self, p: Parameters) -> float:
        """Best at THREADS=128 UNROLL=4 GROUP=8; more unrolling wants fewer threads."""
        threads, unroll, group = (np.log2(p[name]) for name in SPACE)
        return float(
            100 * (1 + 0.05 * (threads + unroll - 9) ** 2 + 0.04 * (unroll - 2) ** 2 + 0.02 * (group - 3) ** 2)
        )

    def info(self) -> DeviceInfo:
        return H200

    def bind(
        self, compiled: Compiled, plan: Plan, arrays: Mapping[str, Array], storage: Arrays, seed: int = 0
    ) -> GpuPlan:
        return GpuPlan(self, {k: int(v) for k, v in compiled.defines if k in SPACE}, arrays, dict(storage))

    def together(self, plans: Sequence[GpuPlan], function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        return function(plans, *arguments)


class GpuPlan(HostPlan):
    def __init__(
        self, gpu: Gpu, parameters: dict[str, int], arrays: Mapping[str, Array], memory: dict[str, Any]
    ) -> None:
        super().__init__(arrays, memory)
        self.gpu, self.parameters = gpu, parameters
        gpu.open += 1

    def _solve(self) -> None:
        self.buffers["c"] = self.buffers["a"] + self.buffers["b"] + self.gpu.wrong(self.parameters)

    def run(self) -> None:
        self._solve()
        if len(self.buffers["c"]) == PROBLEM.n:
            self.gpu.clock.now += VERIFYING

    def enqueue(self) -> None:
        self.gpu.timed.append(self.parameters)
        if len(self.gpu.timed) > self.gpu.interrupt_after:
            raise KeyboardInterrupt
        drift = 1 + 0.3 * np.sin(self.gpu.clock.now / 20)  # a shared machine
        noise = self.gpu.random.gauss(1, 0.01)
        self.gpu.clock.now += 1e-6 * self.gpu.microseconds(self.parameters) * drift * noise
        self._solve()

    def close(self) -> None:
        self.gpu.open -= 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gpu(clock: Clock) -> Iterator[Gpu]:
    made = Gpu(clock)
    yield made
    assert made.open == 0, "memory of the device is left behind"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "tuned.sqlite3")


@pytest.fixture
def stage() -> Stage[Any]:
    (declared,) = registry.select(["vector_add:vectorized"])
    parameters = {"THREADS": 256, "UNROLL": 1, "GROUP": 1}
    return dataclasses.replace(declared, parameters=parameters, space=SPACE)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> dict[str, Callable[[Parameters], bool]]:
    """Compiles nothing, in no time but the clock's. A test says which parameters are refused, and which spill."""
    faults: dict[str, Callable[[Parameters], bool]] = {"refused": lambda p: False, "spills": lambda p: False}
    seen = set()

    def compile_(path: Path, digest: str, defines: tuple[tuple[str, str], ...], architecture: str) -> Compiled:
        parameters = {k: int(v) for k, v in defines if k in SPACE}
        if faults["refused"](parameters):
            raise CompileError("a static assertion failed")
        clock.now += 0 if defines in seen else COMPILING
        seen.add(defines)
        usage = KernelUsage(32, 0, 8 if faults["spills"](parameters) else 0, 0)
        made = Assembled(path, {"vector_add_vectorized": usage})
        return Compiled(str(defines), path.name, str(path), digest, defines, architecture, "", made)

    monkeypatch.setattr(compiler, "_compile", compile_)
    return faults


class OneWorker:
    """A cluster of one worker, which is this process."""

    count = slots = 1

    def __init__(self, device: Any) -> None:
        self.device = device

    def among(self, position: int, of: int) -> OneWorker:
        assert (position, of) == (0, 1)
        return self

    def submit_prepared(self, prepare: Callable[[], Any], function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        prepare()
        return Inline().submit(function, *arguments)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@pytest.fixture
def search(
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    gpu: Gpu,
    table: Table,
    stage: Stage[Any],
    compiled: Any,
) -> Iterator[Callable[..., Tuning]]:
    """Tune the stage on the GPU with that clock; as a cluster's worker does where `there`."""
    pytest.importorskip("optuna")

    class Watch:
        def __init__(self, l2_bytes: int) -> None:
            pass

        def cold(self, work: Callable[[], None]) -> float:
            return self.sustained(work, 1)

        def sustained(self, work: Callable[[], None], count: int) -> float:
            started = clock.now
            for _ in range(count):
                work()
            return 1e6 * (clock.now - started) / count

        def graph(self, work: Callable[[], None], count: int) -> None:
            """This clock knows none."""

        def overhead(self) -> float:
            return 2.0

        def leftover(self, work: Callable[[], None]) -> float:
            work()
            return 0.0

    monkeypatch.setattr(timing, "Stopwatch", Watch)
    monkeypatch.setattr(timing.time, "monotonic", clock)
    monkeypatch.setattr(timing.nvml, "sample", lambda conditions: None)
    monkeypatch.setattr(timing, "baselines_for", lambda operation: [])
    monkeypatch.setattr(plausibility, "roofline_bound", lambda problem, info: (50.0, "memory"))
    monkeypatch.setattr(VECTOR_ADD, "cuda_size", Size(300, 300))

    def run(**options: Any) -> Tuning:
        settings = {"seconds": 60.0, "clock": clock, **options}
        here = Here(gpu, Inline(), ahead=settings.pop("ahead", 4))  # type: ignore[arg-type]
        place = here if not settings.pop("there", False) else There(OneWorker(gpu))  # type: ignore[arg-type]
        return tune(settings.pop("stage", stage), place, PROBLEM, table, **settings)  # type: ignore[arg-type]

    yield run
    while places._judges:
        places._judges.pop().close()


def _is(**wanted: int) -> Callable[[Parameters], bool]:
    return lambda parameters: all(parameters[name] == value for name, value in wanted.items())


@pytest.mark.parametrize("seed", range(5))
def test_a_minute_finds_within_3_percent_of_what_an_exhaustive_search_finds(
    search: Callable[..., Tuning], gpu: Gpu, stage: Stage[Any], seed: int
) -> None:
    gpu.random.seed(seed)
    found = search(seed=seed)
    best = min(gpu.microseconds(c) for c in stage.configurations())
    assert found.best is not None and found.best.settled
    assert gpu.microseconds(found.best.parameters) <= 1.03 * best
    assert found.seconds <= 60
    assert len(found.trials) < 0.8 * found.allowed, "the space is so small that any search finds the best"


def test_workers_of_a_cluster_find_the_same_and_one_that_comes_late_takes_part(
    search: Callable[..., Tuning], gpu: Gpu, stage: Stage[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.wrong = _is(THREADS=32, UNROLL=1)

    def by_a_new_worker(function: Callable[..., Any]) -> Callable[..., Any]:
        def there(*arguments: Any) -> Any:
            while places._judges:
                places._judges.pop().close()
            return function(*arguments)

        return there

    for task in ("_judged", "_at_length"):
        monkeypatch.setattr(places, task, by_a_new_worker(getattr(places, task)))
    narrow = dataclasses.replace(stage, space={**SPACE, "THREADS": (32, 256), "GROUP": (1, 8)})
    found = search(there=True, stage=narrow, seconds=1000.0)
    assert found.best is not None and found.best.settled
    assert found.best.parameters == min(narrow.configurations(), key=gpu.microseconds)
    assert len(found.trials) == 16
    for trial in found.trials:  # each interleaved with the declared one, on its worker
        gain = gpu.microseconds(trial.parameters) / gpu.microseconds(stage.parameters)
        assert trial.reason or trial.relative == pytest.approx(gain, rel=0.05)
    rejected = [t.parameters for t in found.trials if t.reason]
    assert sorted(rejected, key=str) == [{"THREADS": 32, "UNROLL": 1, "GROUP": group} for group in (1, 8)]


@pytest.mark.long
def test_what_cannot_be_used_is_recorded_with_its_reason_and_never_timed(
    search: Callable[..., Tuning], gpu: Gpu, table: Table, compiled: Any, stage: Stage[Any]
) -> None:
    compiled["refused"], compiled["spills"] = _is(UNROLL=2), _is(UNROLL=8)
    gpu.wrong = _is(THREADS=32)
    found = search(seconds=1000.0)
    assert len(found.trials) == found.allowed == 5 * 4 * 6
    reasons = {frozenset(t.parameters.items()): t.reason for t in table.trials(found.best.key)}
    assert reasons == {frozenset(t.parameters.items()): t.reason for t in found.trials}
    for configuration in stage.configurations():
        reason = reasons[frozenset(configuration.items())]
        expected = "static assertion" if compiled["refused"](configuration) else ""
        expected = expected or ("spills 8 bytes" if compiled["spills"](configuration) else "")
        expected = expected or ("mismatch" if gpu.wrong(configuration) else "")
        assert (expected in reason) if expected else not reason
        assert (configuration in gpu.timed) == (not expected)


def test_what_does_not_fit_on_the_device_is_not_launched(
    search: Callable[..., Tuning], gpu: Gpu, stage: Stage[Any]
) -> None:
    wide = dataclasses.replace(stage, space={"THREADS": (256, 2048)})
    found = search(stage=wide)
    assert [t.reason for t in found.trials] == ["", "does not fit: more than 1024 threads a block"]
    assert all(p["THREADS"] == 256 for p in gpu.timed)


def test_an_answer_wrong_only_for_the_tuned_problem_is_not_timed(search: Callable[..., Tuning], gpu: Gpu) -> None:
    launch = GpuPlan.run

    def run(plan: GpuPlan) -> None:
        launch(plan)
        if plan.parameters["GROUP"] == 8 and len(plan.buffers["c"]) == PROBLEM.n:
            plan.buffers["c"][-1] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GpuPlan, "run", run)
        found = search()
    assert found.best is not None and found.best.parameters["GROUP"] != 8
    assert not any(p["GROUP"] == 8 for p in gpu.timed)


def test_an_answer_with_the_bits_of_a_right_one_is_not_compared_again(
    search: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    judge = Case.judge

    def count(case: Case, read: Any) -> Any:
        compared.append(case.problem)
        return judge(case, read)

    monkeypatch.setattr(Case, "judge", count)
    found = search()
    assert len(found.trials) > 5
    assert compared.count(timing.solved(PROBLEM).problem) == 1  # the bits after the last round are the same


@pytest.mark.long
def test_what_the_constraint_rules_out_is_not_even_compiled(search: Callable[..., Tuning], stage: Stage[Any]) -> None:
    constrained = dataclasses.replace(
        stage, constraint=lambda p, size: "too many threads" if size["THREADS"] > 128 and size["UNROLL"] > 1 else None
    )
    found = search(stage=constrained, seconds=1000.0)
    assert found.allowed == len(found.trials) == 120 - 2 * 3 * 6
    assert found.excluded == {"too many threads": 2 * 3 * 6}
    assert json.loads(json.dumps(dataclasses.asdict(found)))["excluded"] == found.excluded


def test_the_declared_parameters_stay_where_nothing_is_faster(search: Callable[..., Tuning], stage: Stage[Any]) -> None:
    best = stage.with_parameters({"THREADS": 128, "UNROLL": 4, "GROUP": 8})
    found = search(stage=best)
    assert found.best is not None and found.best.settled
    assert found.best.parameters == best.parameters
    assert found.best.default_us == found.best.us


def test_what_is_hardly_faster_does_not_replace_what_is_declared(
    search: Callable[..., Tuning], gpu: Gpu, stage: Stage[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.random, "gauss", lambda mean, deviation: mean)
    monkeypatch.setattr(gpu, "microseconds", lambda p: 100.0 if _is(**stage.parameters)(p) else 99.8)
    found = search()
    assert found.best is not None and found.best.settled
    assert found.best.parameters == stage.parameters


@pytest.mark.long
def test_a_winner_that_cannot_be_believed_makes_room_for_the_next(
    search: Callable[..., Tuning], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, doubted = timing.bench, set[int]()

    def doubt(stage: Stage[Any], *arguments: Any) -> Any:
        return "not steady" if stage.parameters["GROUP"] in doubted else bench(stage, *arguments)

    monkeypatch.setattr(timing, "bench", doubt)
    first = search().best
    doubted.add(first.parameters["GROUP"])
    found = search()
    assert found.ok and found.best is not None and found.best.settled
    assert found.best.parameters["GROUP"] not in doubted
    assert "in the last round: not steady" in [t.reason for t in found.trials]
    doubted.update(SPACE["GROUP"])
    found = search()
    assert not found.ok
    assert "not steady" in found.trouble
    assert not table.entries(), "what was found before is of the same stage, which cannot be timed"


def test_a_declared_configuration_that_is_wrong_ends_the_search(search: Callable[..., Tuning], gpu: Gpu) -> None:
    gpu.wrong = lambda parameters: True
    found = search()
    assert not found.ok
    assert "mismatch" in found.trouble
    assert not gpu.timed


@pytest.mark.long
def test_a_time_below_the_physical_floor_is_no_record(search: Callable[..., Tuning], gpu: Gpu) -> None:
    honest = gpu.microseconds
    gpu.microseconds = lambda p: 10.0 if p["GROUP"] == 32 else honest(p)  # type: ignore[method-assign]
    found = search(seconds=1000.0)
    assert found.best is not None and found.best.parameters["GROUP"] == 8
    assert all("roofline bound" in t.reason for t in found.trials if t.parameters["GROUP"] == 32)


def test_an_interrupted_search_keeps_what_it_found(search: Callable[..., Tuning], gpu: Gpu, table: Table) -> None:
    gpu.interrupt_after = 2500
    found = search()
    assert found.interrupted
    (entry,) = table.entries()
    assert entry == found.best and not entry.settled
    timed = [t for t in table.trials(entry.key) if t.relative is not None]
    assert len(timed) > 3
    assert {**timed[0].parameters} == {n: entry.parameters[n] for n in SPACE}  # the fastest comes first


def test_an_interrupt_whose_exception_is_lost_ends_the_search_all_the_same(
    search: Callable[..., Tuning], gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, run = signal.getsignal(signal.SIGINT), GpuPlan.run

    def lose(plan: GpuPlan) -> None:
        if len({tuple(p.values()) for p in gpu.timed}) == 3:
            with contextlib.suppress(KeyboardInterrupt):  # as Python does in a callback of its garbage collector
                signal.raise_signal(signal.SIGINT)
        run(plan)

    monkeypatch.setattr(GpuPlan, "run", lose)
    with tuning.interrupts() as interrupted:
        found = search(interrupted=interrupted)
        signal.raise_signal(signal.SIGINT)  # once more, while things are tidied up
    assert found.interrupted
    assert 3 <= len(found.trials) <= 4
    assert signal.getsignal(signal.SIGINT) is before


def test_code_of_a_stage_that_changes_the_clock_is_found_out(
    search: Callable[..., Tuning], stage: Stage[Any], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "median_error", timing.median_error)  # put back, should the search not do it

    def tampering(problem: Any, size: Parameters) -> None:
        timing.median_error = lambda samples: 0.0  # type: ignore[assignment]

    found = search(stage=dataclasses.replace(stage, constraint=tampering))
    assert not found.ok
    assert "workbench.measure.timing.median_error" in found.trouble
    assert not table.entries()


def test_in_the_emulator_every_configuration_is_verified_and_nothing_is_timed(table: Table) -> None:
    (stage,) = registry.select(["vector_add:vectorized"])
    found = tune(stage, Here(open_device("emulator"), Inline(), 1), PROBLEM, table, seconds=600)
    assert found.ok and not found.timed
    assert [t.reason for t in found.trials] == [""] * found.allowed
    assert found.best is None and not table.entries()


def test_a_constraint_that_lets_a_wrong_configuration_through_is_found_in_the_emulator(table: Table) -> None:
    (stage,) = registry.select(["vector_add:vectorized"])
    half = dataclasses.replace(  # of 128 threads, half as many blocks as it takes
        stage, plan_for=lambda p, size: stage.plan_for(p, {"THREADS": max(size["THREADS"], 256)})
    )
    narrow = dataclasses.replace(half, space={"THREADS": (128, 256)})
    found = tune(narrow, Here(open_device("emulator"), Inline(), 1), PROBLEM, table, seconds=600)
    assert not found.ok
    (rejected,) = found.rejected
    assert rejected.parameters == {"THREADS": 128}
    assert rejected.reason


@pytest.mark.parametrize("stage", [s for s in registry.stages() if s.space], ids=lambda s: s.spec)
def test_what_a_stage_is_declared_with_is_allowed_and_comes_first(stage: Stage[Any]) -> None:
    for problem in registry.operations()[stage.operation].suite:
        if stage.supports(problem) is None:
            found, excluded = allowed(stage, problem)
            assert found[0] == {name: stage.parameters[name] for name in stage.space}
            assert len(found) > 1
            assert len(found) + excluded.total() == len(list(stage.configurations()))


def test_a_space_has_to_hold_the_declared_value() -> None:
    with pytest.raises(ValueError, match="the space of THREADS lacks its declared value"):
        VECTOR_ADD.stage(
            "new", source="vector_add/1_naive.cu", idea="", parameters={"THREADS": 96}, space={"THREADS": (32, 64)}
        )(lambda p, size: Plan(()))


def test_small_problems_are_solved_by_the_binary_that_is_tuned() -> None:
    (stage,) = registry.select(["gemm:cp_async"])
    problem = registry.operations()["gemm"].problem.parse("512x512x512,dtype=fp16,out=fp16,layout=nn")
    found = configurations.small_problems(stage, open_device("emulator"), problem, seed=0)
    assert len(found) == configurations.SMALL_PROBLEMS
    assert all(stage.defines(p) == stage.defines(problem) for p in found)
    assert any(p.k % 8 for p in found) and len({p.m for p in found}) > 3


def test_every_configuration_is_proposed_once_and_the_declared_one_first() -> None:
    pytest.importorskip("optuna")
    configurations = [{"A": a, "B": b} for a in (2, 1, 3) for b in (5, 7, 6)]
    proposals = Proposals({"A": (1, 2, 3), "B": (5, 6, 7)}, configurations[:-1], seed=0, timed=True)
    order = []
    while (configuration := proposals.next()) is not None:
        order.append(configuration)
        proposals.tell(Trial(configuration, 1.0, configuration["A"] / 2))
    assert order[0] == configurations[0]
    assert sorted(map(str, order)) == sorted(map(str, configurations[:-1]))


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("5m", 300), ("1.5h", 5400), ("90", 90), (" 2 m", 120)])
def test_a_budget_has_a_unit(text: str, seconds: float) -> None:
    assert tuning.parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0s", "-5s", "5d", "s"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 60s, 5m or 1h"):
        tuning.parse_budget(text)
