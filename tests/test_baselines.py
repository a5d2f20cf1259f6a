"""Other implementations are found, judged and timed like stages, and none of them costs a run.

Where PyTorch and Triton are installed, without a GPU too, their calls and our Triton kernels solve random problems.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from fakes import NumpyDevice
from synthetic import timed_run
from synthetic_clock import COLD_US, Clock, ClockGpu, ClockPlan, synthetic

from workbench import baseline_error, simple_operation
from workbench.catalogue import registry
from workbench.cli import main as cli
from workbench.cli import sessions
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.matvec import MatvecProblem
from workbench.kernels.vector_add import VECTOR_ADD, VectorAddProblem
from workbench.measure import baselines, peers, timing
from workbench.measure.baselines import Prepared, host
from workbench.model.arrays import Array
from workbench.model.errors import BadOperation
from workbench.model.operation import Baseline, Operation
from workbench.model.problem import Problem
from workbench.model.results import HostTiming, Measurement, Run
from workbench.records import store

ADD = VectorAddProblem(n=100_000, dtype="fp32")


class Peer:
    """Adds vectors in NumPy by the rules of a synthetic clock, `error` too much, after `refusal` was asked for."""

    name, solves = "peer", True

    def __init__(self, clock: Clock, error: float = 0.0, refusal: str | None = None, found: bool = True) -> None:
        self.clock, self.error, self.refusal, self.found = clock, error, refusal, found

    def version(self) -> str | None:
        return "1.2" if self.found else None

    def refuses(self, problem: Problem) -> str | None:
        return self.refusal

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Any) -> Prepared:
        answer: list[np.ndarray[Any, Any]] = []

        def enqueue() -> None:
            self.clock.now += COLD_US / 2
            answer[:] = [buffers["a"] + buffers["b"] + np.float32(self.error)]

        def deliver() -> None:
            buffers["c"] = answer[0]

        return Prepared(enqueue, deliver)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _bench(monkeypatch: pytest.MonkeyPatch, clock: Clock, peer: Any) -> Measurement | str:
    for module in (timing, peers):
        monkeypatch.setattr(module, "peers_of", lambda operation: {"peer": peer})
    effort = timing.Effort(warm_up_seconds=0.0, seconds=60.0, sustained_seconds=1e-3)
    with synthetic(clock):
        return peers.bench_peer("peer", "vector_add", ClockGpu(clock), ADD, effort)  # type: ignore[arg-type]


def test_a_peer_is_timed_like_a_stage_and_its_version_kept(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    measured = _bench(monkeypatch, clock, Peer(clock))
    assert isinstance(measured, Measurement)
    assert set(measured.timing.cold_us) == {COLD_US / 2}
    assert (measured.timing.name, measured.timing.version) == ("peer", "1.2")
    assert measured.problem == str(ADD)


def test_a_peer_with_a_wrong_result_has_no_time(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    reason = _bench(monkeypatch, clock, Peer(clock, error=1.0))
    assert reason == "wrong after timing: 100000 of 100000 elements of c are wrong"


def test_a_peer_says_what_it_does_not_take(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    assert _bench(monkeypatch, clock, Peer(clock, refusal="only even sizes")) == "only even sizes"


def test_a_peer_that_breaks_is_a_reason_and_no_crash(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    peer = Peer(clock)

    def prepare(*arguments: Any) -> Prepared:
        raise RuntimeError("no C compiler\nand more lines")

    monkeypatch.setattr(peer, "prepare", prepare)
    assert _bench(monkeypatch, clock, peer) == "peer cannot be used: no C compiler"


def test_only_what_is_found_is_asked(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(baselines, "peers_of", lambda operation: {"peer": Peer(clock, found=False)})
    assert peers.peers_found("vector_add", ClockGpu(clock)) == {}  # type: ignore[arg-type]
    monkeypatch.setattr(baselines, "peers_of", lambda operation: {"peer": Peer(clock)})
    assert peers.peers_found("vector_add", ClockGpu(clock)) == {"peer": "1.2"}  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "rejected"), [(0.0, []), (1.0, ["vendor"])])
def test_a_vendors_library_with_a_wrong_result_is_left_out(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, error: float, rejected: list[str]
) -> None:
    class Vendor(Peer):
        name = "vendor"

        def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Any) -> Prepared:
            def enqueue() -> None:
                clock.now += COLD_US / 2
                buffers["c"][:] = buffers["a"] + buffers["b"] + np.float32(error)

            return Prepared(enqueue)

    monkeypatch.setattr(ClockPlan, "filled_like", lambda plan, name: np.empty_like(plan.buffers[name]), raising=False)
    monkeypatch.setattr(timing, "forget", lambda buffer: None)
    (stage,) = registry.select(["vector_add:naive"])
    with synthetic(clock):
        monkeypatch.setattr(timing, "baselines_for", lambda operation: [Vendor(clock)])
        measured = timing.bench(stage, ClockGpu(clock), ADD, timing.Effort(seconds=60.0, sustained_seconds=1e-3))  # type: ignore[arg-type]
    assert isinstance(measured, Measurement)
    assert list(measured.rejected) == rejected
    assert [b.name for b in measured.baselines] == ([] if rejected else ["vendor"])


# NumPy on the CPU


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(m=40, n=30, k=20, dtype="bf16", out="bf16", layout="nn", pad_a=3, pad_b=1, pad_c=5),
        GemmProblem(m=40, n=30, k=20, dtype="fp16", out="fp32", layout="nt"),
        MatvecProblem(n=30, k=70, dtype="bf16", out="fp32", pad_b=2),
        VectorAddProblem(n=1000, dtype="fp16"),
    ],
    ids=str,
)
def test_numpy_is_timed_and_judged(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = next(name for name, o in registry.operations().items() if isinstance(problem, o.problem))
    monkeypatch.setattr(host, "SECONDS", 0.0)
    timed = peers.time_host(operation, problem)
    assert isinstance(timed, HostTiming)
    assert len(timed.samples_us) == host.LEAST
    assert timed.version == f"numpy {np.__version__}"
    right = baselines.host_baseline(operation)
    spoiled = dataclasses.replace(right, call=lambda p, **x: right.call(p, **right.arguments(x)) * 1.1)
    monkeypatch.setattr(peers, "host_baseline", lambda operation: spoiled)
    wrong = peers.time_host(operation, problem)
    assert isinstance(wrong, str)
    assert wrong.startswith("NumPy gives a wrong result: ")


def test_numpy_is_not_asked_for_what_takes_it_minutes() -> None:
    assert peers.time_host("gemm", GemmProblem(m=8192, n=8192, k=8192)) == "NumPy is not asked for more than 300 GFLOP"


# in a session


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`workbench bench vector_add` on a device that adds vectors; times are synthetic."""
    samples = {(s.stage, m.label): m for s in timed_run("vector_add").stages for m in s.measurements}

    def stage_time(stage: Any, device: Any, problem: Any) -> Measurement:
        return samples[stage.name, problem.label]

    def peer_time(name: str, operation: str, device: Any, problem: Any) -> Measurement | str:
        if problem.dtype == "bf16":
            return "it takes no bf16"
        made = samples["naive", problem.label]
        effort = dataclasses.asdict(timing.Effort())
        return dataclasses.replace(made, problem=str(problem), effort=effort, timing=dataclasses.replace(made.timing))

    def host_time(operation: str, problem: Any) -> HostTiming | str:
        return HostTiming(operation, "NumPy", "numpy 2", str(problem), problem.label, 1, 1, [1e6])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "open_device", lambda name: NumpyDevice("cuda"))
    monkeypatch.setattr(timing, "bench", stage_time)
    monkeypatch.setattr(peers, "bench_peer", peer_time)
    monkeypatch.setattr(peers, "time_host", host_time)
    monkeypatch.setattr(peers, "peers_found", lambda operation, device: {"Triton": "triton 3.6"})

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli.main, ["bench", "vector_add", "--examples", "2", "--suite", *options])

    return run


def _saved() -> Run:
    (run,) = store.load(Path("reports/nvidia-h200"))
    return run


@pytest.mark.long
def test_other_implementations_are_timed_once_a_problem_when_asked_for(bench: Callable[..., Result]) -> None:
    assert bench().exit_code == 0
    assert (_saved().peers, _saved().host) == ([], [])
    result = bench("--baselines", "all")
    assert result.exit_code == 0, result.output
    (peer,) = _saved().peers
    assert (peer.name, peer.version) == ("Triton", "triton 3.6")
    assert [m.label for m in peer.measurements] == ["1048576 fp32", "268435456 fp32"]
    assert peer.untimed == {"67108864 bf16": "it takes no bf16"}
    assert len(_saved().host) == 3
    assert "Triton not timed on 67108864 bf16: it takes no bf16" in result.stdout
    assert "NumPy on the CPU: 1.00 s" in result.stdout


@pytest.mark.long
def test_an_interrupted_run_keeps_what_was_timed_of_them(
    bench: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = peers.bench_peer, []

    def counted(name: str, operation: str, device: Any, problem: Any) -> Any:
        calls.append(problem.label)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(name, operation, device, problem)

    monkeypatch.setattr(peers, "bench_peer", counted)
    assert bench("--baselines", "all").exit_code == 130
    assert bench("--baselines", "all").exit_code == 0
    # the first was timed, the second is refused again, at the third Ctrl-C came
    assert calls == ["1048576 fp32", "67108864 bf16", "268435456 fp32", "67108864 bf16", "268435456 fp32"]
    (peer,) = _saved().peers
    assert [m.label for m in peer.measurements] == ["1048576 fp32", "268435456 fp32"]


# the kernels and the calls themselves, on a CPU

SOLVE = Path(__file__).parent / "baselines_on_cpu.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "needed"),
    [("triton", ("torch", "triton")), ("liger", ("torch", "triton", "liger_kernel")), ("pytorch", ("torch",))],
)
def test_they_solve_problems(what: str, needed: tuple[str, ...]) -> None:
    if any(importlib.util.find_spec(name) is None for name in needed):
        pytest.skip(f"needs {' and '.join(needed)}")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run([sys.executable, SOLVE, what], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_cudnn_takes_products_that_are_convolutions() -> None:
    cudnn = baselines.peers_of("gemm")["cuDNN"]
    assert cudnn.refuses(GemmProblem(m=8, n=8, k=8, out="bf16")) is None
    assert "layout nt" in str(cudnn.refuses(GemmProblem(m=8, n=8, k=8, out="bf16", layout="nn")))
    assert "padding" in str(cudnn.refuses(GemmProblem(m=8, n=8, k=8, out="bf16", pad_a=1)))
    assert "one type" in str(cudnn.refuses(GemmProblem(m=8, n=8, k=8, out="fp32")))


def test_operations_have_a_triton_kernel_and_numpy() -> None:
    with_triton = {o for o in registry.operations() if "Triton" in baselines.peers_of(o)}
    attention = {"attention", "attention_backward", "attention_varlen"}
    assert with_triton == {*attention, "conv2d", "gemm", "matvec", "ssd", "vector_add"}
    for operation in registry.operations():
        assert host.refuses(baselines.host_baseline(operation), registry.operations()[operation].problem()) is None


# how they are declared


def declared(call: Callable[..., Any], **more: Any) -> Baseline[Any]:
    return Baseline("made", call, ("numpy",), **more)


def test_a_baseline_gets_the_arrays_that_it_names_and_returns_outputs_in_any_form() -> None:
    arrays = {"x": 1, "w": 2, "y": 3}
    assert declared(lambda p, w, y: None).arguments(arrays) == {"w": 2, "y": 3}
    assert declared(lambda p, **every: None).arguments(arrays) == arrays
    assert declared(lambda p, x, v=None, w=None: None).arguments(arrays) == {"x": 1, "w": 2}
    with pytest.raises(BadOperation, match="asks for v; the arrays are x, w, y"):
        declared(lambda p, v: None).arguments(arrays)
    made = declared(lambda p: None)
    assert made.outputs(None, ["y", "z"]) == {}
    assert made.outputs((5, 6), ["y", "z"]) == {"y": 5, "z": 6}
    assert made.outputs({"z": 6, "y": 5}, ["y", "z"]) == {"y": 5, "z": 6}
    assert made.outputs(5, ["y"]) == {"y": 5}
    for returned in (5, (5,), (5, 6, 7), {"y": 5}):
        with pytest.raises(BadOperation, match="has to return 2 outputs: y, z"):
            made.outputs(returned, ["y", "z"])


def test_what_cannot_be_a_baseline_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ValueError, match="has to require one of numpy, cupy, torch, cublas first"):
        Baseline("made", lambda p: None, ("jax",))
    with pytest.raises(ValueError, match="only PyTorch compiles a call"):
        Baseline("made", lambda p: None, ("numpy",), compiled=True)
    with pytest.raises(ValueError, match="already has a baseline 'NumPy'"):
        VECTOR_ADD.baseline("NumPy", requires="numpy")(lambda p, a: a)


def two_outputs() -> Operation[Any]:
    return simple_operation("split", "x: n fp32 -> low: n fp32, high: n fp32", not_exact="not tried here")(
        lambda x: (np.minimum(x, 0), np.maximum(x, 0))
    )


def test_a_baseline_is_judged_on_the_cpu_with_all_of_its_outputs() -> None:
    operation = two_outputs()
    problem = operation.problem(n=50)
    right = declared(lambda p, x: (np.minimum(x, 0), np.maximum(x, 0)))
    assert baseline_error(right, problem) == ""
    swapped = declared(lambda p, x: (np.maximum(x, 0), np.minimum(x, 0)))
    assert baseline_error(swapped, problem).endswith("of 50 elements of low are wrong")
    with pytest.raises(BadOperation, match=r"does not take n=50.*: too few"):
        baseline_error(declared(lambda p, x: None, refuses=lambda p: "too few"), problem)
    with pytest.raises(BadOperation, match=r"takes arrays of cupy, which are on a GPU"):
        baseline_error(dataclasses.replace(right, requires=("cupy",)), problem)


def test_numpy_is_timed_with_several_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = two_outputs()
    right = declared(lambda p, x: (np.minimum(x, 0), np.maximum(x, 0)))
    monkeypatch.setattr(host, "SECONDS", 0.0)
    monkeypatch.setattr(peers, "host_baseline", lambda name: right)
    timed = peers.time_host("split", operation.problem(n=50))
    assert isinstance(timed, HostTiming)
    broken = declared(lambda p, x: x[:-1])
    monkeypatch.setattr(peers, "host_baseline", lambda name: broken)
    assert peers.time_host("split", operation.problem(n=50)) == (
        "made cannot be used: the baseline 'made' has to return 2 outputs: low, high"
    )


def test_a_baseline_that_raises_is_left_out_and_the_stage_is_timed(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    class Broken(Peer):
        name = "broken"

        def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Any) -> Prepared:
            raise RuntimeError("no such call\nand more")

    monkeypatch.setattr(ClockPlan, "filled_like", lambda plan, name: np.empty_like(plan.buffers[name]), raising=False)
    (stage,) = registry.select(["vector_add:naive"])
    with synthetic(clock):
        monkeypatch.setattr(timing, "baselines_for", lambda operation: [Broken(clock)])
        measured = timing.bench(stage, ClockGpu(clock), ADD, timing.Effort(seconds=60.0, sustained_seconds=1e-3))  # type: ignore[arg-type]
    assert isinstance(measured, Measurement)
    assert measured.rejected == {"broken": "it cannot be used: no such call"}
