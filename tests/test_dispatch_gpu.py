"""Calls of operations on a GPU: threads, streams, graphs, and memory that is used again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from workbench import ops, reference
from workbench.model import calls
from workbench.ops import dispatch

pytestmark = pytest.mark.gpu

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
THREADS, STREAMS, CALLS = 100, 4, 1000


@pytest.fixture
def products(cupy: Any, rng: np.random.Generator) -> list[tuple[Any, Any, np.ndarray[Any, Any]]]:
    """Operands and the product of a few, whose kernel takes tensor maps."""
    made = []
    for _ in range(8):
        a, b = (rng.integers(-1, 2, shape).astype(BFLOAT16) for shape in ((384, 1024), (512, 1024)))
        right = reference.gemm(a, b, trans_b=True)
        made.append((upload(cupy, a), upload(cupy, b), right))
    assert ops.gemm.prepare(*made[0][:2], trans_b=True)._plan.maps
    return made


def upload(cupy: Any, values: np.ndarray[Any, Any]) -> Any:
    return cupy.asarray(np.ascontiguousarray(values).view(np.uint8)).view(values.dtype)


def download(array: Any) -> np.ndarray[Any, Any]:
    return array.view(np.uint8).get().view(array.dtype)


def test_threads_on_several_streams_get_their_own_answers_and_leave_nothing(cupy: Any, products: Any) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
    ops.gemm.prepare(*products[0][:2], trans_b=True)
    cupy.cuda.Device().synchronize()
    pool, wrong = cupy.get_default_memory_pool(), []

    def work(number: int) -> None:
        a, b, right = products[number % len(products)]
        with streams[number % STREAMS]:
            for _ in range(CALLS):
                found = ops.gemm(a, b, trans_b=True)
            if not np.array_equal(download(found), right):
                wrong.append(number)

    def all_threads() -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    before = pool.used_bytes()
    all_threads()
    assert not wrong
    assert pool.used_bytes() == before


def test_a_thread_that_has_no_context_launches_all_the_same(cupy: Any, products: Any) -> None:
    a, b, right = products[0]
    out = cupy.empty((384, 512), BFLOAT16)
    prepared = ops.gemm.prepare(a, b, trans_b=True, out=out)
    thread = threading.Thread(target=lambda: prepared(a, b, out=out))
    thread.start()
    thread.join()
    cupy.cuda.Device().synchronize()
    assert np.array_equal(download(out), right)


@pytest.mark.parametrize("operation", ["gemm", "reduce", "softmax"])
def test_a_graph_replays_what_was_captured_on_what_lies_there_then(cupy: Any, rng: Any, operation: str) -> None:
    x = rng.integers(-2, 3, (300, 20_000 if operation == "reduce" else 512)).astype(np.float32)
    given = cupy.asarray(x)
    call = {
        "gemm": lambda out: ops.gemm(given, given, trans_b=True, out=out),
        "reduce": lambda out: ops.reduce(given, over="all", out=out),
        "softmax": lambda out: ops.softmax(given, out=out),
    }[operation]
    right = {
        "gemm": lambda: x @ x.T,
        "reduce": lambda: x.sum().reshape(1),
        "softmax": lambda: reference.softmax(x),
    }[operation]
    out = cupy.zeros_like(call(None))
    call(out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        call(out)
        graph = stream.end_capture()
    for _ in range(3):
        x[...] = rng.integers(-2, 3, x.shape)
        given.set(x)
        out[...] = 0
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert np.allclose(out.get(), right(), 1e-4, 1e-5)


def test_answers_stay_right_while_memory_is_freed_and_used_again(cupy: Any, rng: Any) -> None:
    for number in range(200):
        a, b = (rng.integers(-2, 3, (128, 256)).astype(BFLOAT16) for _ in "ab")
        keep = cupy.empty(int(rng.integers(1, 1 << 20)), np.uint8)  # other addresses for what follows
        found = ops.gemm(upload(cupy, a), upload(cupy, b), trans_b=True)
        del keep
        if number % 10 == 0:
            assert np.array_equal(download(found), reference.gemm(a, b, trans_b=True))


def test_a_map_whose_address_the_driver_replaces_is_the_one_that_it_encodes(cupy: Any, products: Any) -> None:
    (a, b, _), (other, _, _) = products[:2]
    prepared = ops.gemm.prepare(a, b, trans_b=True)
    prepared(other, b)
    maps = next(maps for maps in prepared._plan.maps.values() if other.data.ptr in maps.known)
    encoded = maps.argument.encode(other.data.ptr)
    assert ctypes.string_at(maps.known[other.data.ptr].address, 128) == encoded


@pytest.fixture
def second(cupy: Any) -> Iterator[int]:
    """The number of a second device."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    yield 1


def test_arrays_are_solved_on_their_device_whichever_is_current(cupy: Any, rng: Any, second: int) -> None:
    x = rng.integers(-2, 3, (64, 512)).astype(np.float32)
    for device in (0, second, 0, second):
        with cupy.cuda.Device(device):
            given = cupy.asarray(x)
        found = ops.softmax(given)
        assert found.device.id == device
        with cupy.cuda.Device(device):
            assert np.allclose(found.get(), reference.softmax(x), 1e-5)
    assert len({id(dispatch.device_of(device)) for device in (0, second)}) == 2


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_call_of_a_known_class_is_made_in_c_on_the_current_stream(cupy: Any, library: str) -> None:
    if library == "torch":
        torch = pytest.importorskip("torch", minversion="2.10")
        x = torch.rand(64, 512, device="cuda", dtype=torch.float16)
        stream: Any = torch.cuda.Stream()
        current, handle = torch.cuda.stream(stream), stream.cuda_stream
    else:
        x = cupy.random.rand(64, 512).astype(cupy.float16)
        current = stream = cupy.cuda.Stream(non_blocking=True)
        handle = stream.ptr
    cupy.cuda.Device().synchronize()
    right = ops.softmax(x)
    cupy.cuda.Device().synchronize()
    with current:
        assert dispatch.KINDS[type(x)].stream(0) == handle
        found = calls.HOT[type(x)](ops.softmax, (x,), None, {})
    stream.synchronize()
    assert found is not None and type(found) is type(right)
    assert found.shape == right.shape and bool((found == right).all())
