"""Wrong answers that a weak harness passes, and times that it believes: each gets the verdict that names it.

Kernels are real ones with a piece of their source replaced, executed in the emulator. Times come from a device whose
clock is a number, so that what cheats does so by an exact amount.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import H200

from workbench import comparison, harness, operation, registry, timing
from workbench.devices import Device, open_device
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.matvec import MatvecProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.launch import Array, Launch, Plan
from workbench.operation import Problem, Stage, Tier
from workbench.results import Conditions, DeviceInfo, Failure, Measurement, Verdict, Verification
from workbench.session import CHANGED, Session

ADD = "from_float<IN>(to_float(a[i]) + to_float(b[i]))"
SUM = "sum += to_float(a[k]) * to_float(b[k * b_step])"

Verify = Callable[..., Verification]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage[Any]]:
    """A stage with pieces of its source replaced, each of which is there once."""
    sources = tmp_path / "cuda_src"
    shutil.copytree(operation.SOURCES, sources)
    monkeypatch.setattr(operation, "SOURCES", sources)

    def plant(spec: str, *replacements: tuple[str, str], **changes: Any) -> Stage[Any]:
        (stage,) = registry.select([spec])
        text = stage.path.read_text()
        for old, new in replacements:
            assert text.count(old) == 1, f"{old!r} is in the source {text.count(old)} times"
            text = text.replace(old, new)
        stage.path.write_text(text)
        return dataclasses.replace(stage, **changes)

    return plant


@pytest.fixture
def verify() -> Verify:
    def verify_in_emulator(stage: Stage[Any], problem: Problem | None = None, examples: int = 12) -> Verification:
        return harness.verify(stage, open_device("emulator"), examples=examples, seed=0, problem=problem)

    return verify_in_emulator


def failure_of(verification: Verification, verdict: Verdict) -> Failure:
    assert verification.verdict is verdict, verification
    assert verification.failure is not None
    return verification.failure


# wrong answers


def test_24_nothing_is_done_and_the_answer_is_not_there_already(planted: Any, verify: Verify) -> None:
    problem = VectorAddProblem(n=50, dtype="fp32", tier=Tier.BOUNDED)
    (right,) = registry.select(["vector_add:naive"])
    assert verify(right, problem).verdict is Verdict.PASS  # leaves the answer behind where memory is used again
    idle = planted("vector_add:naive", (f"if (i < n) c[i] = {ADD};", ""))
    failure = failure_of(verify(idle, problem), Verdict.MISMATCH)
    assert failure.wrong_count == failure.element_count == 50
    assert {e.got for e in failure.wrong} == {"nan"}
    assert "written" in failure.looks_like


def test_25_half_is_written_over_what_was_right(planted: Any, verify: Verify) -> None:
    problem = VectorAddProblem(n=50, dtype="fp32", tier=Tier.BOUNDED)
    half = planted("vector_add:naive", ("if (i < n) c[i]", "if (i < n && i % 2) c[i]"))
    failure = failure_of(verify(half, problem), Verdict.MISMATCH)
    assert failure.wrong_count == 25
    assert {e.got for e in failure.wrong} == {"nan"}


@pytest.mark.parametrize("tier", Tier)
def test_26_zeros_are_wrong_in_both_tiers(planted: Any, verify: Verify, tier: Tier) -> None:
    zeros = planted("gemm:naive", (SUM, "sum += 0.f"))
    failure = failure_of(verify(zeros, GemmProblem(m=9, n=7, k=40, tier=tier)), Verdict.MISMATCH)
    assert {e.got for e in failure.wrong} == {"0"}
    assert failure.wrong_count > 40


def test_27_nan_is_never_right(planted: Any, verify: Verify) -> None:
    nan = planted("vector_add:naive", (ADD, "from_float<IN>(__int_as_float(0x7fc00000))"))
    failure = failure_of(verify(nan), Verdict.MISMATCH)
    assert failure.problem.startswith("n=1,")
    assert {e.got for e in failure.wrong} == {"nan"}


def test_28_inputs_are_not_the_kernels_to_change(planted: Any, verify: Verify) -> None:
    store = f"{{ c[i] = {ADD}; const_cast<IN*>(b)[i] = from_float<IN>(7.f); }}"
    changes = planted(
        "vector_add:naive",
        (f"c[i] = {ADD};", store),
        ("const IN* __restrict__ b", "const IN* b"),
    )
    failure = failure_of(verify(changes), Verdict.INPUT_CHANGED)
    assert "1_naive.cu:" in failure.message
    assert "writes b[0], which must not change" in failure.message


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("i < n", "i <= n", "one past the end of"),
        ("to_float(b[i])", "to_float(b[i + 1]) * 0.f + to_float(b[i])", "b["),
    ],
)
def test_29_past_the_end(planted: Any, verify: Verify, old: str, new: str, what: str) -> None:
    failure = failure_of(verify(planted("vector_add:naive", (old, new))), Verdict.OUT_OF_BOUNDS)
    assert what in failure.message
    assert "1_naive.cu:" in failure.message


def test_29_between_the_rows_of_an_input_too(planted: Any, verify: Verify) -> None:
    padding = "float sum = m + 1 < M && lda > K ? 0.f * to_float(a[K]) : 0.f;"  # times zero, for all who find zeros
    reads = planted("gemm:naive", ("float sum = 0.f;", padding))
    assert verify(reads, GemmProblem(m=3, n=2, k=4)).verdict is Verdict.PASS
    failure = failure_of(verify(reads, GemmProblem(m=3, n=2, k=4, pad_a=1)), Verdict.MISMATCH)
    assert (failure.wrong_count, {e.got for e in failure.wrong}) == (4, {"nan"})


def test_30_the_last_terms_are_missed_among_many(planted: Any, verify: Verify) -> None:
    drops = planted("gemm:naive", ("k < K; ++k", "k < K - K / 256; ++k"))
    problem = GemmProblem(m=16, n=16, k=512, dtype="bf16", out="fp32", tier=Tier.BOUNDED)
    failure = failure_of(verify(drops, problem), Verdict.MISMATCH)
    assert "k" in failure.looks_like


def test_31_an_accumulator_of_half_the_width(planted: Any, verify: Verify) -> None:
    half = planted("gemm:naive", (SUM, f"sum = __half2float(__float2half(sum + {SUM.removeprefix('sum += ')}))"))
    problem = GemmProblem(m=16, n=16, k=512, dtype="fp16", out="fp32", tier=Tier.BOUNDED)
    failure = failure_of(verify(half, problem), Verdict.MISMATCH)
    assert "precision" in failure.looks_like or "fp16" in failure.looks_like


def test_32_one_wrong_tile_in_a_right_matrix(planted: Any, verify: Verify) -> None:
    tile = planted("gemm:naive", ("from_float<OUT>(sum)", "from_float<OUT>(m / 8 == 3 && n / 8 == 2 ? -sum : sum)"))
    failure = failure_of(verify(tile, GemmProblem(m=128, n=64, k=8, tier=Tier.BOUNDED)), Verdict.MISMATCH)
    assert 48 < failure.wrong_count <= 64
    assert failure.element_count == 128 * 64


STALE = """__device__ long long kept_n;
__device__ float kept[4096];
extern "C" __global__"""


def test_33_right_for_the_first_inputs_and_stale_afterwards(planted: Any, verify: Verify) -> None:
    keep = "if (i < n) { if (kept_n != n) kept[i] = to_float(a[i]) + to_float(b[i]); c[i] = from_float<IN>(kept[i]); }"
    stale = planted(
        "vector_add:naive",
        ('extern "C" __global__', STALE),
        (f"if (i < n) c[i] = {ADD};", f"{keep} __syncthreads(); if (i == 0) kept_n = n;"),
    )
    failure = failure_of(verify(stale, VectorAddProblem(n=40, dtype="fp32")), Verdict.STALE)
    assert "keeps something from one launch to the next" in failure.message
    assert failure.wrong_count > 30


def test_33_right_again_when_nothing_is_kept(planted: Any, verify: Verify) -> None:
    unused = planted("vector_add:naive", ('extern "C" __global__', STALE))
    assert verify(unused, VectorAddProblem(n=40, dtype="fp32")).verdict is Verdict.PASS


def test_34_another_kernel_than_that_of_the_source(planted: Any, verify: Verify) -> None:
    falls_back = planted("vector_add:vectorized")
    plan = falls_back.plan_for

    def other(problem: Any, size: Mapping[str, int]) -> Launch:
        return dataclasses.replace(plan(problem, size), kernel="vector_add_naive")

    failure = failure_of(verify(dataclasses.replace(falls_back, plan_for=other)), Verdict.LAUNCH_ERROR)
    assert "no kernel vector_add_naive" in failure.message
    assert "vector_add_vectorized" in failure.message


def test_35_a_launch_that_is_refused_leaves_no_answer(planted: Any, verify: Verify) -> None:
    stage = planted("vector_add:naive")
    plan = stage.plan_for

    def refused(problem: Any, size: Mapping[str, int]) -> Launch:
        launch = plan(problem, size)
        return dataclasses.replace(launch, shared_bytes=300_000) if problem.n > 3 else launch

    failure = failure_of(verify(dataclasses.replace(stage, plan_for=refused)), Verdict.LAUNCH_ERROR)
    assert failure.problem.startswith("n=4,")
    assert "300000" in failure.message
    assert "232448" in failure.message


def test_35_a_declaration_that_raises_is_a_failure_of_its_stage(planted: Any, verify: Verify) -> None:
    def broken(problem: Any, size: Mapping[str, int]) -> Launch:
        raise ZeroDivisionError("n // 0")

    failure = failure_of(verify(planted("vector_add:naive", plan_for=broken)), Verdict.LAUNCH_ERROR)
    assert "declaration of the stage" in failure.message
    assert "n // 0" in failure.message


def test_36_cleared_by_one_block_while_others_add(planted: Any, verify: Verify) -> None:
    races = planted(
        "matvec:naive",
        ("if (n >= N) return;", "if (blockIdx.x == 0 && threadIdx.x == 0) for (int i = 0; i < N; ++i) c[i] = OUT();\n"
         "  if (n >= N) return;"),
    )  # fmt: skip
    failure = failure_of(verify(races, MatvecProblem(n=600, k=3, dtype="fp32", out="fp32")), Verdict.RACE)
    assert "1_naive.cu:" in failure.message


def test_37_the_last_bit_depends_on_who_comes_first(planted: Any, verify: Verify) -> None:
    late = "if (sum != rintf(sum) && (atomicAdd(&arrived, 1u) & 32u)) sum = __int_as_float(__float_as_int(sum) ^ 1);"
    changing = planted(
        "matvec:naive",
        ('extern "C" __global__', '__device__ unsigned arrived;\nextern "C" __global__'),
        ("c[n] = from_float<OUT>(sum);", f"{late}\n  c[n] = from_float<OUT>(sum);"),
    )
    problem = MatvecProblem(n=256, k=64, dtype="fp32", out="fp32", tier=Tier.BOUNDED)
    failure = failure_of(verify(changing, problem), Verdict.NOT_DETERMINISTIC)
    assert "launched a second time" in failure.message
    declared = dataclasses.replace(changing, deterministic=False)
    assert verify(declared, problem).verdict is Verdict.PASS


def test_37_the_last_bit_depends_on_where_the_arrays_lie(planted: Any, verify: Verify) -> None:
    change = "if (reinterpret_cast<unsigned long long>(a) >> 20 & 1) sum = __int_as_float(__float_as_int(sum) ^ 1);"
    changing = planted("matvec:naive", ("c[n] = from_float<OUT>(sum);", f"{change}\n  c[n] = from_float<OUT>(sum);"))
    problem = MatvecProblem(n=256, k=64, dtype="fp32", out="fp32", tier=Tier.BOUNDED)
    failure = failure_of(verify(changing, problem), Verdict.NOT_DETERMINISTIC)
    assert "256 of 256 elements" in failure.message


FAST_PATH = """const auto where = reinterpret_cast<unsigned long long>(a);
  if (where % 64 == 0) { if (i < n) c[i] = a[i]; return; }
  if (i < n) c[i] ="""


def test_38_right_for_arrays_that_are_badly_aligned_only(planted: Any, verify: Verify) -> None:
    partly = planted("vector_add:naive", ("if (i < n) c[i] =", FAST_PATH))
    assert verify(partly, VectorAddProblem(n=50, seed=0)).verdict is Verdict.PASS
    verdicts = {verify(partly, VectorAddProblem(n=50, seed=seed)).verdict for seed in (1, 3, 5, 7)}
    assert verdicts == {Verdict.PASS, Verdict.MISMATCH}
    assert verify(partly).verdict is not Verdict.PASS  # also when nobody knows what to look for


@pytest.mark.parametrize(
    ("wrong_if", "part"), [("sizeof(IN) == 2", "dtype=bf16"), ("TRANS_B", "layout=nt")], ids=["bf16", "nt"]
)
def test_38_right_for_one_type_or_layout_only(planted: Any, verify: Verify, wrong_if: str, part: str) -> None:
    partly = planted("gemm:naive", ("from_float<OUT>(sum)", f"from_float<OUT>({wrong_if} ? sum + 1.f : sum)"))
    failure = failure_of(verify(partly), Verdict.MISMATCH)
    problem = GemmProblem.parse(failure.problem)
    assert problem.dtype != "fp32" if "dtype" in part else problem.layout == "nt"


def test_39_a_define_cannot_remove_the_check(planted: Any, verify: Verify) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    unchecked = planted(
        "vector_add:naive",
        (ADD, "from_float<IN>(to_float(a[i]))"),
        parameters={**stage.parameters, "NDEBUG": 1},
    )
    assert verify(unchecked).verdict is Verdict.MISMATCH


@pytest.mark.parametrize(
    ("bound", "part"),
    [
        (lambda right: {"c": {1e-3}}, "{0.001}"),
        (lambda right: {"c": 1e-3}, "0.001"),
        (lambda right: {1e-3}, "{0.001}"),
        (lambda right: {"c": -1.0 - abs(right)}, "negative"),
        (lambda right: {"c": np.full(right.shape, 2.0**8)}, "all zeros"),  # 2^-8, inverted
    ],
)
def test_40_a_tolerance_that_is_none(
    verify: Verify, monkeypatch: pytest.MonkeyPatch, bound: Callable[[Any], Any], part: str
) -> None:
    monkeypatch.setattr(VectorAddProblem, "bound", lambda problem, inputs, expected: bound(expected["c"]))
    (stage,) = registry.select(["vector_add:naive"])
    failure = failure_of(verify(stage), Verdict.WEAK_CHECK)
    assert part in failure.message


# stages that reach for what judges them


def _wrong_but(planted: Any, tamper: Callable[[], None]) -> Stage[Any]:
    """A stage that gives wrong answers and changes something whenever it is asked for its launch."""
    wrong = planted("vector_add:naive", (ADD, "from_float<IN>(0.f)"))
    plan = wrong.plan_for

    def tampering(problem: Any, size: Mapping[str, int]) -> Launch:
        tamper()
        launch: Launch = plan(problem, size)
        return launch

    return dataclasses.replace(wrong, plan_for=tampering)


def _accept_everything() -> None:
    harness.Case.judge = lambda *arguments: (None, 0.0)  # type: ignore[method-assign]


def _no_error() -> None:
    comparison.errors.__code__ = (lambda array, got, expected, bound, tier: expected * 0.0).__code__


def _stop_the_clock() -> None:
    import time

    time.perf_counter = lambda: 0.0  # type: ignore[assignment]


def _instant() -> None:
    timing.Stopwatch.cold = lambda watch, work: 1e-3  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("tamper", "name"),
    [
        (_accept_everything, "workbench.harness.Case.judge"),
        (_no_error, "workbench.comparison.errors"),
        (_stop_the_clock, "time.perf_counter"),
        (_instant, "workbench.timing.Stopwatch.cold"),
    ],
)
def test_changing_what_judges_is_found_out_and_put_back(
    planted: Any, verify: Verify, tamper: Callable[[], None], name: str
) -> None:
    failure = failure_of(verify(_wrong_but(planted, tamper)), Verdict.TAMPERING)
    assert name in failure.message
    (right,) = registry.select(["vector_add:vectorized"])
    assert verify(right).verdict is Verdict.PASS
    wrong = planted("vector_add:grid_stride", ("to_float(x.x[j]) + to_float(y.x[j])", "to_float(x.x[j])"))
    assert verify(wrong).verdict is Verdict.MISMATCH


# times


class Clock:
    """A GPU's clock and cache, as numbers: a launch that finds the L2 flushed takes 100 us, another one 40."""

    def __init__(self) -> None:
        self.now = 0.0
        self.in_cache = False
        self.pending = 0.0
        self.slower = 1.0


class FakeWatch:
    """A stopwatch that reads that clock."""

    clock: Clock

    def __init__(self, l2_bytes: int) -> None:
        pass

    def cold(self, work: Callable[[], None]) -> float:
        self.clock.in_cache = False
        return self.sustained(work, 1)

    def sustained(self, work: Callable[[], None], count: int) -> float:
        started = self.clock.now
        for _ in range(count):
            work()
        return (self.clock.now - started) / count

    def leftover(self, work: Callable[[], None]) -> float:
        work()
        left, self.clock.pending = self.clock.pending, 0.0
        return left


class FakeGpu:
    """Adds vectors in NumPy and lets its clock run. `cheat` says how it deceives."""

    name, architecture = "cuda", 90

    def __init__(self, clock: Clock, cheat: str = "") -> None:
        self.clock, self.cheat = clock, cheat

    def info(self) -> DeviceInfo:
        return H200

    def bind(self, compiled: Any, plan: Plan, arrays: Any, storage: Any, seed: int = 0) -> FakePlan:
        return FakePlan(self, arrays, {name: values.copy() for name, values in storage.items()})


class FakePlan:
    def __init__(self, gpu: FakeGpu, arrays: Mapping[str, Array], memory: dict[str, Any]) -> None:
        self.gpu, self.arrays, self.memory = gpu, arrays, memory
        self.buffers = memory
        self.calls = 0
        self.kept: dict[bytes, Any] = {}

    def enqueue(self) -> None:
        clock, cheat = self.gpu.clock, self.gpu.cheat
        self.calls += 1
        cost = 40.0 if clock.in_cache else 100.0
        clock.in_cache = True
        if cheat == "throttled" and self.calls > 25:
            cost *= 2
        key = self.memory["a"].tobytes()
        if cheat == "once" and self.calls > 1:
            cost = 1.0
        elif cheat == "content" and key in self.kept:
            cost, self.memory["c"] = 1.0, self.kept[key].copy()
        else:
            total = self.memory["a"].astype(np.float64) + self.memory["b"].astype(np.float64)
            self.memory["c"] = self.kept[key] = total.astype(self.memory["c"].dtype)
        if cheat == "drift" and self.calls > 30:
            self.memory["c"] = self.memory["c"] + 1
        if cheat == "stream":
            clock.pending, cost = cost - 2.0, 2.0
        clock.now += cost if cheat != "impossible" else 1e-3

    def run(self) -> None:
        self.enqueue()

    def wait(self) -> None:
        self.gpu.clock.pending = 0.0

    def poison(self) -> None:
        self.memory["c"] = self.arrays["c"].poisoned()

    def roll(self, elements: int) -> None:
        for name in ("a", "b"):
            self.memory[name] = np.roll(self.memory[name], elements)

    def apply(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        return function(self, *arguments)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self.memory[name]

    def close(self) -> None:
        pass


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measurement | str]:
    clock = Clock()
    monkeypatch.setattr(FakeWatch, "clock", clock, raising=False)
    monkeypatch.setattr(timing, "Stopwatch", FakeWatch)
    monkeypatch.setattr(timing, "baselines_for", lambda operation: [])
    monkeypatch.setattr(timing.nvml, "sample", lambda conditions: None)
    effort = timing.Effort(warm_up_seconds=0.0, seconds=60.0, enough=40, sustained_seconds=1e-3)

    def timed(cheat: str = "", n: int = 1000) -> Measurement | str:
        (stage,) = registry.select(["vector_add:naive"])
        device: Device = FakeGpu(clock, cheat)  # type: ignore[assignment]
        return timing.bench(stage, device, VectorAddProblem(n=n, dtype="fp32"), effort)

    return timed


def test_an_honest_stage_is_timed(bench: Any) -> None:
    measured = bench()
    assert isinstance(measured, Measurement)
    assert set(measured.timing.cold_us) == {100.0}


@pytest.mark.parametrize(
    ("cheat", "part"),
    [
        pytest.param("stream", "work that was not timed", id="41 on another stream"),
        pytest.param("content", "answers are kept and given again", id="42 replayed by content"),
        pytest.param("once", "wrong after timing: 1000 of 1000", id="43 done once"),
        pytest.param("drift", "wrong after timing", id="44 drifts after calls"),
        pytest.param("throttled", "not steady", id="46 throttled half way"),
        pytest.param("impossible", "below the physical floor", id="47 below the floor"),
    ],
)
def test_times_of_what_cheats_are_not_believed(bench: Any, cheat: str, part: str) -> None:
    reason = bench(cheat)
    assert isinstance(reason, str)
    assert part in reason


def test_45_what_lies_in_the_l2_is_not_called_cold(bench: Any) -> None:
    measured = bench()
    assert set(measured.timing.cold_us) == {100.0}
    assert all(us < 50.0 for us in measured.timing.sustained_us)


def test_45_the_l2_is_flushed_before_each_launch_and_outside_of_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Event:
        def record(self) -> None:
            order.append("event")

        def synchronize(self) -> None:
            pass

    class Buffer:
        def __init__(self, size: int, dtype: Any) -> None:
            self.size = size

        def fill(self, value: int) -> None:
            order.append(f"flush {self.size}")

    from types import SimpleNamespace

    cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda start, stop: 1.0)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(empty=Buffer, uint8=np.uint8, cuda=cuda))
    timing.Stopwatch(60 << 20).cold(lambda: order.append("launch"))
    assert order == [f"flush {120 << 20}", "event", "launch", "event"]


def test_48_constant_inputs_are_not_timed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = VectorAddProblem.inputs
    monkeypatch.setattr(VectorAddProblem, "inputs", lambda p: {n: v * 0 for n, v in real(p).items()})
    monkeypatch.setattr(timing, "_case", timing._Cases())
    assert "every element of a, b has the same value" in bench()


def test_49_what_is_timed_is_what_was_verified(planted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = planted("vector_add:naive")
    timed: list[str] = []

    def bench_and_edit(stage: Stage[Any], device: Device, problem: Problem) -> str:
        timed.append(problem.label)
        stage.path.write_text(stage.path.read_text() + "// faster\n")
        return "no figure"

    class Quiet:
        def verified(self, problems: int) -> None:
            pass

        def timing(self, label: str) -> None:
            pass

    monkeypatch.setattr(timing, "bench", bench_and_edit)
    session = Session(open_device("emulator"), examples=2, seed=0, timed=True)
    result = session.stage(stage, Quiet())
    suite = registry.operations()["vector_add"].suite
    assert timed == [suite[0].label]
    assert {result.untimed[p.label] for p in suite[1:]} == {CHANGED}
    assert not session.ok()


def test_the_conditions_of_a_measurement_are_kept(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(conditions: Conditions) -> None:
        conditions.throttle_reasons.append("SwPowerCap")

    monkeypatch.setattr(timing.nvml, "sample", sample)
    assert "SwPowerCap" in bench().conditions.throttle_reasons
