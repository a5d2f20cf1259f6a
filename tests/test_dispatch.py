"""Calls of operations: the first one of a class makes its launches ready, and later ones do nothing but launch."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest
from emulated_gpu import EmulatedArrays, EmulatedGpu

from workbench import Array, Launch, Operation, Plan, Size, ops, reference, simple_operation
from workbench.devices import Fault
from workbench.devices.cuda import CudaDevice
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model import calls
from workbench.model.calls import ArraySpec, Call
from workbench.model.dtypes import FP32
from workbench.ops import dispatch, prepared

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)


def integers(rng: np.random.Generator, *shape: int, dtype: np.dtype[Any] = BFLOAT16) -> np.ndarray[Any, Any]:
    return rng.integers(-2, 3, shape).astype(dtype)


WORK = ("choose", "compile_stage", "load", "encode")
"""What the first call of a class alone may do."""


LONG = 256
"""k of products of 64 rows and columns."""


@pytest.fixture
def mapped(gpu: EmulatedGpu) -> Any:
    """`ops.gemm` by a stage that has tensor maps, in a program that has not called it yet."""
    return ops.load("gemm", stage="streamed")


def test_only_the_first_call_of_a_class_chooses_compiles_loads_and_encodes(gpu: EmulatedGpu, mapped, rng) -> None:
    a, b = integers(rng, 64, LONG), integers(rng, 64, LONG)
    given, right = (gpu.upload(a), gpu.upload(b)), reference.gemm(a, b, trans_b=True)
    assert np.array_equal(gpu.download(mapped(*given, trans_b=True)), right)
    assert all(gpu.log[work] for work in WORK)
    before = {work: gpu.log[work] for work in WORK}
    for _ in range(2):
        assert np.array_equal(gpu.download(mapped(*given, trans_b=True)), right)
    others = integers(rng, 64, LONG), integers(rng, 64, LONG)
    found = mapped(*map(gpu.upload, others), trans_b=True)
    assert np.array_equal(gpu.download(found), reference.gemm(*others, trans_b=True))
    assert {work: gpu.log[work] for work in WORK} == before
    mapped(*given, trans_b=True, out_dtype=np.float32)
    assert gpu.log["choose"] == before["choose"] + 1


def test_a_class_whose_kernel_is_compiled_reads_no_source(gpu: EmulatedGpu, rng) -> None:
    for rows in (4, 8, 8):
        ops.softmax(gpu.upload(integers(rng, rows, 64, dtype=FLOAT32)))
    assert (gpu.log["choose"], gpu.log["compile_stage"]) == (2, 1)


def test_a_tensor_map_is_made_once_for_an_address_and_right_for_whatever_lies_there(
    gpu: EmulatedGpu, mapped, rng
) -> None:
    b = gpu.upload(integers(rng, 64, LONG))
    out = gpu.upload(np.zeros((64, 64), BFLOAT16))
    seen = set()
    for _ in range(4):  # memory is freed and used again
        a = integers(rng, 64, LONG)
        array = gpu.upload(a)
        seen.add(array.data.ptr)
        mapped(array, b, trans_b=True, out=out)
        assert np.array_equal(gpu.download(out), reference.gemm(a, gpu.download(b), trans_b=True))
        del array
    assert len(seen) == 1 and not gpu.log["replace"]
    kept = [gpu.upload(integers(rng, 64, LONG)) for _ in range(3)]
    for array in kept * 2:
        mapped(array, b, trans_b=True, out=out)
        assert np.array_equal(gpu.download(out), reference.gemm(gpu.download(array), gpu.download(b), trans_b=True))
    assert gpu.log["replace"] == 2


def test_maps_of_more_addresses_than_are_kept_are_made_again(gpu: EmulatedGpu, mapped, rng, monkeypatch) -> None:
    from workbench.devices import ready

    monkeypatch.setattr(ready, "MOST_MAPS", 2)
    b, out = gpu.upload(integers(rng, 64, LONG)), gpu.upload(np.zeros((64, 64), BFLOAT16))
    kept = [gpu.upload(integers(rng, 64, LONG)) for _ in range(5)]
    for array in kept * 2:
        mapped(array, b, trans_b=True, out=out)
        assert np.array_equal(gpu.download(out), reference.gemm(gpu.download(array), gpu.download(b), trans_b=True))
    assert gpu.log["replace"] > len(kept)
    gpu.log["replace"] = 0
    monkeypatch.setitem(calls.HOT, cupy.ndarray, None)  # through Python
    for array in kept * 2:
        mapped(array, b, trans_b=True, out=out)
    (prepared,) = mapped.ready.values()
    assert gpu.log["replace"] > len(kept)
    assert max(len(maps.known) for maps in prepared._plan.maps.values()) == 2


def test_a_map_whose_address_the_driver_does_not_replace_is_encoded(gpu: EmulatedGpu, mapped, rng, monkeypatch) -> None:
    monkeypatch.setattr(gpu, "replace_address", lambda tensor_map, address: 801, raising=False)
    b = integers(rng, 48, 64)
    for a in (integers(rng, 40, 64), integers(rng, 40, 64)):
        keep = gpu.upload(a)  # noqa: F841  # the next one lies elsewhere
        found = mapped(gpu.upload(a), gpu.upload(b), trans_b=True)
        assert np.array_equal(gpu.download(found), reference.gemm(a, b, trans_b=True))


def test_arrays_that_start_elsewhere_or_lie_otherwise_are_of_another_class(gpu: EmulatedGpu, rng) -> None:
    x, y = integers(rng, 1000, dtype=FLOAT32), integers(rng, 1000, dtype=FLOAT32)
    for align in (0, 4, 8, 16):
        found = ops.vector_add(gpu.upload(x, align), gpu.upload(y))
        assert np.array_equal(gpu.download(found), x + y)
    wide = integers(rng, 6, 100, dtype=FLOAT32)
    whole = gpu.upload(wide)
    for columns in (100, 64):
        found = ops.softmax(whole[:, :columns])
        assert np.allclose(gpu.download(found), reference.softmax(wide[:, :columns]), 1e-5, 1e-6)


def test_out_is_written_and_returned(gpu: EmulatedGpu, rng) -> None:
    x, w, residual = integers(rng, 2, 3, 96), integers(rng, 96), integers(rng, 2, 3, 96)
    out = tuple(gpu.upload(np.zeros((2, 3, 96), BFLOAT16)) for _ in "ys")
    for _ in range(2):
        found = ops.residual_rms_norm(gpu.upload(x), gpu.upload(residual), gpu.upload(w), out=out)
        assert found is out
        total = x.astype(np.float32) + residual
        assert np.array_equal(gpu.download(out[1]), total)
    y = gpu.upload(np.zeros((4, 7), np.float32))
    given = gpu.upload(integers(rng, 4, 7, dtype=FLOAT32))
    assert ops.softmax(given, out=y) is y
    assert np.allclose(gpu.download(y), reference.softmax(gpu.download(given)), 1e-5)


@pytest.mark.parametrize(
    ("out", "error", "says"),
    [
        (lambda g: g.upload(np.zeros((4, 6), np.float32)), ValueError, r"has shape \(4, 6\).* to have shape \(4, 7\)"),
        (lambda g: g.upload(np.zeros((4, 8), np.float32))[:, :7], ValueError, r"strides \(32, 4\) bytes"),
        (lambda g: g.upload(np.zeros((4, 7), np.float16)), TypeError, "dtype float16; it has to be float32"),
        (lambda g: (g.upload(np.zeros((4, 7), np.float32)),) * 2, ValueError, "out has 2 arrays; there are 1 results"),
        (lambda g: np.zeros((4, 7), np.float32), TypeError, r"out is a numpy.ndarray"),
    ],
)
def test_an_out_that_cannot_hold_the_result_is_refused(gpu: EmulatedGpu, out, error, says) -> None:
    x = gpu.upload(np.zeros((4, 7), np.float32))
    with pytest.raises(error, match=says):
        ops.softmax(x, out=out(gpu))


def test_an_out_over_the_memory_of_an_input_is_refused_at_every_call(gpu: EmulatedGpu) -> None:
    memory = gpu.upload(np.zeros(100, np.float32))
    x, apart = memory[:32].reshape(4, 8), memory[32:64].reshape(4, 8)
    assert ops.softmax(x, out=apart) is apart
    for out in (x, memory[4:36].reshape(4, 8)):
        with pytest.raises(ValueError, match="out overlaps the memory of an input"):
            ops.softmax(x, out=out)
    assert ops.softmax(x, out=apart) is apart


def test_prepare_launches_nothing_and_returns_what_is_launched_for_arrays_of_that_class_alone(gpu: EmulatedGpu, rng):
    x, w = integers(rng, 5, 96), integers(rng, 96)
    prepared = ops.rms_norm.prepare(gpu.upload(x), gpu.upload(w), eps=0.5)
    assert not gpu.launched and gpu.log["compile_stage"] == 1
    assert prepared.problem.eps == 0.5 and prepared.stage.operation == "rms_norm"
    found = gpu.download(prepared(gpu.upload(x), gpu.upload(w))).astype(np.float64)
    assert np.allclose(found, reference.rms_norm(x, w, 0.5), 0.01, 0.01)
    assert ops.rms_norm.prepare(gpu.upload(x), gpu.upload(w), eps=0.5) is prepared
    for other in (x[:4], x.astype(np.float16)):
        with pytest.raises(ValueError, match="not of the class that was prepared"):
            prepared(gpu.upload(other), gpu.upload(w))
    with pytest.raises(ValueError, match="not of the class"):
        prepared(x, w)


def test_launches_are_made_on_the_current_stream_of_the_device_of_the_arrays(gpu: EmulatedGpu, rng) -> None:
    x = gpu.upload(integers(rng, 4, 32))
    ops.softmax(x)
    gpu.stream = 5
    ops.softmax(x)
    gpu.stream, gpu.current = 6, 1  # another device is current: that of the arrays is, while they are solved
    ops.softmax(x)
    assert [stream for stream, _ in gpu.launched] == [0, 5, 6]
    assert gpu.current == 1


def test_arrays_of_two_devices_are_refused(gpu: EmulatedGpu, rng) -> None:
    a = gpu.upload(integers(rng, 4, 32))
    pointer = cupy.cuda.memory.MemoryPointer(cupy.cuda.memory.UnownedMemory(1 << 30, 4096, None, 1), 0)
    elsewhere = cupy.ndarray((4, 32), BFLOAT16, pointer)
    with pytest.raises(ValueError, match="the arrays are on devices a 0, b 1; they have to be on the same"):
        ops.gemm(a, elsewhere, trans_b=True)


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads are switched as often as they can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_threads_share_what_is_ready_and_get_answers_of_their_own(gpu: EmulatedGpu, rng) -> None:
    inputs = [integers(rng, 3, 16, dtype=FLOAT32) for _ in range(6)]
    given = [(gpu.upload(x), gpu.upload(np.zeros_like(x))) for x in inputs]
    ready, wrong = threading.Barrier(len(inputs)), []

    def work(number: int) -> None:
        x, out = given[number]
        ready.wait()
        for _ in range(15):
            ops.softmax(x, out=out)
            if not np.allclose(gpu.download(out), reference.softmax(inputs[number]), 1e-5):
                wrong.append(number)
            gpu.memory.write(out.data.ptr, np.zeros_like(inputs[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    (prepared,) = ops.softmax.ready.values()
    assert gpu.log["choose"] == 1 and len(gpu.launched) == 15 * len(inputs)
    assert 1 <= len(prepared._plan._free) <= len(inputs)


def test_a_thread_without_a_context_gets_that_of_the_device(gpu: EmulatedGpu, rng) -> None:
    x = integers(rng, 4, 32, dtype=FLOAT32)
    gpu.refuse = [201]
    assert np.allclose(gpu.download(ops.softmax(gpu.upload(x))), reference.softmax(x), 1e-5)
    assert gpu.log["enter"] == 1


def test_a_launch_that_the_driver_rejects_is_an_error_and_the_next_one_is_none(gpu: EmulatedGpu, rng) -> None:
    x = integers(rng, 4, 32, dtype=FLOAT32)
    gpu.refuse = [700]
    with pytest.raises(Fault, match="was rejected: 700"):
        ops.softmax(gpu.upload(x))
    assert np.allclose(gpu.download(ops.softmax(gpu.upload(x))), reference.softmax(x), 1e-5)


def test_errors_are_the_same_at_every_call(gpu: EmulatedGpu, rng) -> None:
    x, w = gpu.upload(integers(rng, 4, 32)), gpu.upload(integers(rng, 31))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"for x \(4, 32\) it has to be \(32,\)"):
            ops.rms_norm(x, w)
        with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
            ops.softmax(x, epsilon=1)
        with pytest.raises(TypeError, match="missing a required argument: 'w'"):
            ops.rms_norm(x)
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            ops.softmax()
        with pytest.raises(TypeError, match=r"w is a numpy.ndarray; the first array is one of cupy"):
            ops.rms_norm(x, np.ones(32, np.float32))
    assert not ops.rms_norm.ready and not ops.softmax.ready


def test_arrays_may_be_given_by_name(gpu: EmulatedGpu, rng) -> None:
    x, w = integers(rng, 4, 32), integers(rng, 32)
    found = ops.rms_norm(w=gpu.upload(w), x=gpu.upload(x))
    assert np.allclose(gpu.download(found).astype(np.float64), reference.rms_norm(x, w, 1e-6), 0.01, 0.01)
    assert len(ops.rms_norm.ready) == 1


def test_more_classes_than_are_kept_begin_anew(gpu: EmulatedGpu, rng, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "MOST_CLASSES", 2)
    for rows in (1, 2, 3, 1):
        x = integers(rng, rows, 32, dtype=FLOAT32)
        assert np.allclose(gpu.download(ops.softmax(gpu.upload(x))), reference.softmax(x), 1e-5)
    assert len(ops.softmax.ready) == 2


def test_a_function_is_named_like_what_declares_it_and_survives_pickling(gpu: EmulatedGpu, rng) -> None:
    ops.softmax(gpu.upload(integers(rng, 4, 32)))
    assert ops.softmax.__doc__ and ops.softmax.__doc__.startswith("Softmax along the last axis")
    assert (
        str(ops.gemm.__signature__)
        == "(a: 'Any', b: 'Any', c: 'Any' = None, *, trans_b: 'bool' = False, out_dtype: 'Any' = None, "
        "alpha: 'float' = 1.0, beta: 'float' = 1.0, activation: 'str' = 'none', out: 'Any' = None)"
    )
    state = ops.softmax.__getstate__()
    assert state["ready"] == {} and pickle.loads(pickle.dumps(state["arrays"])) == ("x",)


def test_without_anybody_who_solves_calls_one_is_told_what_to_import(monkeypatch) -> None:
    monkeypatch.setattr(calls, "_solvers", [])
    with pytest.raises(RuntimeError, match=r"import workbench.ops to call softmax"):
        ops.softmax(np.zeros(3))


# what is between inputs and results


ZERO_LEFT = r"""
extern "C" __global__ void count(const float* x, float* y, unsigned* arrived, unsigned n) {
  if (threadIdx.x == 0) {
    if (atomicAdd(arrived, 1u) == gridDim.x - 1) { y[0] = x[0] + n; atomicExch(arrived, 0u); }
  }
}
"""


def counting() -> Operation[Any]:
    """An operation whose stage has scratch that is zero, of two sizes."""
    made: Operation[Any] = simple_operation(
        "counting", "x: n fp32 -> y: one fp32", fields={"one": 1}, not_exact="not tried here"
    )(lambda x, one: x[:1])

    @made.stage("naive", code=ZERO_LEFT, idea="the last block writes")
    def naive(p: Any, size: Mapping[str, int]) -> Plan:
        scratch = {"arrived": Array((p.n,), FP32, output=True, zero=True)}
        return Plan((Launch("count", (3, 1, 1), (32, 1, 1), ("x", "y", "arrived", np.uint32(0))),), scratch)

    made.function(lambda x: Call(made.problem(n=x.shape[0]), {"x": x}))
    return made


def test_scratch_that_is_left_zero_is_kept_by_stream_and_cleared_for_every_graph(gpu: EmulatedGpu) -> None:
    solve = counting().called
    small, large = (gpu.upload(np.full(n, 7, np.float32)) for n in (4, 9))

    def cleared(x: Any) -> int:
        before = gpu.log["clear"]
        assert gpu.download(solve(x))[0] == 7
        return gpu.log["clear"] - before

    solve.prepare(small), solve.prepare(large)  # which allocate, too
    assert [cleared(x) for x in (small, large, small, large)] == [0, 0, 0, 0]
    gpu.stream = 2
    assert [cleared(x) for x in (small, small, large, small)] == [1, 0, 1, 0]
    gpu.captured = True
    assert [cleared(small), cleared(small)] == [1, 1]
    gpu.captured = False
    assert cleared(small) == 0


def test_a_call_in_c_finds_scratch_that_is_left_zero_by_stream(gpu: EmulatedGpu) -> None:
    solve = counting().called
    x = gpu.upload(np.full(4, 7, np.float32))
    solve(x)
    found = next(iter(solve.ready.values()))
    asked: list[int] = []
    zeroed = found._zeroed
    found._zeroed = lambda stream: asked.append(stream) or zeroed(stream)
    for stream, clears in ((5, 1), (6, 1), (5, 0)):
        gpu.stream, gpu.entered, before = stream, 0, gpu.log["clear"]
        assert [gpu.download(solve(x))[0] for _ in range(3)] == [7, 7, 7]
        assert (gpu.entered, gpu.log["clear"] - before) == (3, clears)
    assert asked == [5, 6]


def test_a_handle_that_stands_for_a_stream_of_every_thread_has_scratch_for_each(gpu: EmulatedGpu) -> None:
    solve, gpu.stream = counting().called, 2
    assert solve is not None
    x = gpu.upload(np.full(4, 7, np.float32))
    solve(x), solve(x)
    before = gpu.log["clear"]
    thread = threading.Thread(target=lambda: (solve(x), solve(x)))
    thread.start()
    thread.join()
    assert gpu.log["clear"] == before + 1


@pytest.mark.parametrize(("kept", "clears"), [(1 << 24, 1), (0, 4)])
def test_inputs_that_are_left_out_are_zeros_that_are_kept_unless_they_are_many(
    gpu: EmulatedGpu, rng, monkeypatch, kept: int, clears: int
) -> None:
    monkeypatch.setattr(prepared, "MOST_KEPT", kept)
    x, b, c = (gpu.upload(rng.standard_normal((1, 5, 1, 16)).astype(ml_dtypes.bfloat16)) for _ in "xbc")
    decays, zeros = gpu.upload(np.full((1, 5, 1), -0.5, np.float32)), gpu.upload(np.zeros((1, 1, 16, 16), np.float32))
    right = [gpu.download(found) for found in ops.ssd(x, decays, b, c, zeros)]
    ops.ssd(x, decays, b, c)
    before, gpu.entered = gpu.log["clear"], 0
    for _ in range(4):
        found = ops.ssd(x, decays, b, c)
        assert all(np.array_equal(gpu.download(ours), theirs) for ours, theirs in zip(found, right, strict=True))
    assert (gpu.log["clear"] - before, gpu.entered) == (clears, 4)
    # of a graph, which may run when the arrays are gone
    gpu.captured, held = True, len(prepared._captured)
    ops.ssd(x, decays, b, c)
    assert len(prepared._captured) == held + 1


def test_scratch_of_several_launches_is_of_one_call(gpu: EmulatedGpu) -> None:
    made = counting()
    stage = made.stages[0]

    def twice(p: Any, size: Mapping[str, int]) -> Plan:
        plan: Plan = stage.plan(p)
        return Plan(plan.launches * 2, plan.scratch)

    made.stages[:] = [dataclasses.replace(stage, plan_for=twice)]
    assert made.called is not None
    x = gpu.upload(np.full(4, 7, np.float32))
    made.called(x)
    before = gpu.log["clear"]
    made.called(x), made.called(x)
    assert gpu.log["clear"] == before + 2


SCALED = r"""
extern "C" __global__ void scaled(const float* x, const float* table, float* total, float* low, float* high) {
  int i = threadIdx.x;
  total[i] += x[i] * table[i];
  low[i] = fminf(x[i], 0.f);
  high[i] = fmaxf(x[i], 0.f);
}
"""


def test_results_that_begin_as_inputs_prepared_tables_and_dropped_outputs(gpu: EmulatedGpu) -> None:
    from dataclasses import dataclass

    from hypothesis import strategies as st

    from workbench import Problem, Tier

    @dataclass(frozen=True)
    class Scaled(Problem):
        n: int = 1
        extents = ("n",)
        not_exact = "not tried here"
        tiers = (Tier.BOUNDED,)

        @property
        def label(self) -> str:
            return str(self.n)

        def arrays(self) -> dict[str, Array]:
            row = (self.n,)
            return {
                "x": Array(row, FP32),
                "table": Array(row, FP32, prepared=True),
                "total": Array(row, FP32, inout=True),
                "low": Array(row, FP32, output=True),
                "high": Array(row, FP32, output=True),
            }

        def prepare(self, inputs: Any) -> Any:
            return {"table": np.abs(inputs["x"]) + np.arange(self.n, dtype=np.float32)}

        def reference(self, inputs: Any) -> Any:
            raise NotImplementedError

        def bound(self, inputs: Any, expected: Any) -> Any:
            raise NotImplementedError

        cost = VectorAddProblem(n=1).cost

    made = Operation(
        "scaled", "", Scaled, lambda size, edges: st.just(Scaled()), (), lambda p: {}, Size(9, 9), Size(9, 9)
    )

    @made.stage("naive", code=SCALED, idea="one block")
    def naive(p: Any, size: Mapping[str, int]) -> Launch:
        return Launch("scaled", (1, 1, 1), (p.n, 1, 1), ("x", "table", "total", "low", "high"))

    def finish(found: dict[str, ArraySpec]) -> Any:
        return found["high"].reshape(2, -1), found["total"]

    solve = made.function(lambda x, total: Call(made.problem(n=x.shape[0]), {"x": x, "total": total}, finish))
    for x in (np.arange(-3, 3, dtype=np.float32), np.arange(-1, 5, dtype=np.float32)):
        total = np.full(6, 10, np.float32)
        given = gpu.upload(total)
        high, found = map(gpu.download, solve(gpu.upload(x), given))
        assert np.array_equal(high, np.maximum(x, 0).reshape(2, 3))
        assert np.array_equal(found, total + x * (np.abs(x) + np.arange(6)))
        assert np.array_equal(gpu.download(given), total)


def test_several_outputs_come_as_a_named_tuple_in_the_order_of_their_declaration(gpu: EmulatedGpu, rng) -> None:
    x, labels = integers(rng, 5, 40, dtype=FLOAT32), np.arange(5, dtype=np.int32)
    found = ops.cross_entropy(gpu.upload(x), gpu.upload(labels))
    assert type(found).__name__ == "cross_entropy_outputs"
    assert np.allclose(gpu.download(found[0]), reference.cross_entropy(x, labels), 1e-5, 1e-5)
    assert np.allclose(gpu.download(found[1]), reference.log_sum_exp(x), 1e-5)


def test_a_function_that_returns_no_outputs_is_told_so(gpu: EmulatedGpu) -> None:
    made = counting()
    solve = made.function(lambda x: Call(made.problem(n=x.shape[0]), {"x": x}, lambda found: x))
    with pytest.raises(TypeError, match="the function has to return outputs, each once"):
        solve(gpu.upload(np.zeros(4, np.float32)))


# array specs


def test_views_of_a_spec_are_those_of_numpy() -> None:
    whole = np.zeros((4, 6, 8), np.float32)
    for array in (whole, whole[:, :3], whole[:1], whole.transpose(2, 0, 1)):
        spec = ArraySpec(array.shape, array.strides, array.dtype)
        assert spec.contiguous == array.flags.c_contiguous
        assert (spec.T.shape, spec.T.strides) == (array.T.shape, array.T.strides)
        turned = array.transpose(0, 2, 1)
        assert (spec.transpose(0, 2, 1).shape, spec.transpose(0, 2, 1).strides) == (turned.shape, turned.strides)
        assert spec.size == array.size and spec.ndim == 3
        if spec.contiguous:
            flat = array.reshape(-1, 8)
            assert (spec.reshape(-1, 8).shape, spec.reshape(-1, 8).strides) == (flat.shape, flat.strides)
        else:
            with pytest.raises(ValueError, match="is not without gaps"):
                spec.reshape(-1, 8)
    spec = ArraySpec.whole((4, 6), FLOAT32)
    assert spec.span == 96
    for shape in ((5, 5), (-1, 7), (-1, -1)):
        with pytest.raises(ValueError, match="cannot have the shape"):
            spec.reshape(*shape)


# of a real device


def test_a_kernel_never_gets_less_dynamic_shared_memory_than_a_ready_launch_has() -> None:
    device = object.__new__(CudaDevice)
    function = types.SimpleNamespace(shared_size_bytes=0, max_dynamic_shared_size_bytes=0)
    module = types.SimpleNamespace(get_function=lambda name: function)
    device._lost, device._dynamic = None, {}
    compiled: Any = types.SimpleNamespace(key="k")
    device._modules = {"k": module}
    for shared in (100_000, 60_000, 200_000, 1000):
        device.function(compiled, Launch("kernel", (1, 1, 1), (32, 1, 1), (), shared_bytes=shared))
        assert function.max_dynamic_shared_size_bytes >= shared
    assert function.max_dynamic_shared_size_bytes == 200_000


def test_memory_of_cupy_is_read_without_asking_for_more_than_the_key(gpu: EmulatedGpu, rng) -> None:
    array = gpu.upload(integers(rng, 4, 32), align=8)
    (key, addresses) = EmulatedArrays(gpu).read((array,))
    assert key == ((4, 32), (64, 2), BFLOAT16, 0, 8)
    assert addresses == [array.data.ptr]
    with pytest.raises(AttributeError):
        EmulatedArrays(gpu).read((np.zeros(3),))
