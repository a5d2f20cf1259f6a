"""Calls that are made in C++ do what those do that are made in Python, and are made where they can be."""

from __future__ import annotations

import ctypes
import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import pytest
from emulated_gpu import EmulatedGpu

from workbench import ops
from workbench.devices.ready import NO_CONTEXT
from workbench.model import calls
from workbench.ops import _launch, arrays, launched


@pytest.fixture
def in_c(gpu: EmulatedGpu) -> Iterator[EmulatedGpu]:
    """Counts calls made in C++ since; a class that was not prepared is not."""
    gpu.entered = 0
    yield gpu


def half(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(-2, 3, shape).astype(np.float16)


def test_a_call_of_a_known_class_is_made_in_c_and_answers_as_python_does(in_c, rng, monkeypatch) -> None:
    x, w, b, dy = (in_c.upload(half(rng, *shape)) for shape in ((6, 64), (64,), (64,), (6, 64)))
    cases = {"softmax": (x,), "layer_norm": (x, w, b), "layer_norm_backward": (x, w, dy), "transpose": (x,)}
    for name, given in cases.items():
        function = getattr(ops, name)
        function(*given)  # the first one
        in_c.entered = 0
        found = function(*given)
        assert in_c.entered, name
        with monkeypatch.context() as patch:
            patch.delitem(calls.HOT, cupy.ndarray)
            before = in_c.entered
            right = function(*given)
            assert in_c.entered == before and type(found) is type(right)
        for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, right)), strict=True):
            assert (ours.shape, ours.strides, ours.dtype) == (theirs.shape, theirs.strides, theirs.dtype)
            assert np.array_equal(in_c.download(ours), in_c.download(theirs)), name


def test_what_is_not_known_is_left_to_python(in_c, rng) -> None:
    x = in_c.upload(half(rng, 4, 64))
    ops.softmax(x)
    in_c.current = 1  # another device
    ops.softmax(x)
    in_c.current = 0
    ops.softmax(in_c.upload(half(rng, 5, 64)))
    with pytest.raises(TypeError, match="epsilon"):
        ops.softmax(x, epsilon=[])
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        ops.rms_norm(x, np.ones(64, np.float16))
    assert in_c.entered == 0


def test_an_out_over_an_input_is_refused_in_a_class_that_is_known(in_c) -> None:
    memory = in_c.upload(np.zeros(256, np.float32))
    x, apart, over = (memory[first : first + 64].reshape(4, 16) for first in (0, 96, 32))  # equally aligned
    ops.softmax(x, out=apart)
    assert ops.softmax(x, out=apart) is apart and in_c.entered == 1
    with pytest.raises(ValueError, match="out overlaps the memory of an input"):
        ops.softmax(x, out=over)
    assert in_c.entered == 1


def test_what_goes_wrong_in_a_launch_is_raised(in_c, rng) -> None:
    x = in_c.upload(half(rng, 4, 64))
    ops.softmax(x)
    in_c.refuse = [700]
    with pytest.raises(Exception, match="was rejected: 700"):
        ops.softmax(x)
    cupy.cuda.set_allocator(lambda nbytes: (_ for _ in ()).throw(MemoryError("none is left")))
    with pytest.raises(MemoryError, match="none is left"):
        ops.softmax(x)
    cupy.cuda.set_allocator(in_c.allocate)
    assert np.isfinite(in_c.download(ops.softmax(x))).all()


@pytest.mark.parametrize("status", NO_CONTEXT)
def test_a_launch_without_a_context_is_made_again_in_that_of_the_device(in_c, rng, status: int) -> None:
    x = in_c.upload(half(rng, 4, 64))
    right = in_c.download(ops.softmax(x))
    in_c.refuse = [status]
    assert np.array_equal(in_c.download(ops.softmax(x)), right)
    assert (in_c.entered, in_c.log["enter"]) == (2, 1)
    in_c.refuse = [status, status]
    with pytest.raises(Exception, match=f"was rejected: {status}"):
        ops.softmax(x)


def test_a_call_keeps_nothing(in_c, rng) -> None:
    x, w, dy = (in_c.upload(half(rng, *shape)) for shape in ((6, 64), (64,), (6, 64)))
    ops.layer_norm_backward(x, w, dy), ops.softmax(x)

    def blocks() -> int:
        gc.collect()
        return sum(len(free) for free in in_c.free.values())

    before = blocks()
    for _ in range(3):
        ops.layer_norm_backward(x, w, dy), ops.softmax(x)
    assert blocks() == before
    prepared = weakref.ref(next(iter(ops.softmax.ready.values())))
    ops.softmax.ready.clear()
    gc.collect()
    assert prepared() is None


# tensors, through DLPack's exchange in C


class View(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Tensor:
    """What PyTorch's are to the function in C++."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], device_type: int = 2) -> None:
        self.address, self.device_type, self.dtype, self.requires_grad = address, device_type, "float16", False
        count = len(shape)
        self.shape, self.strides = (ctypes.c_int64 * count)(*shape), (ctypes.c_int64 * count)(*strides)


VIEWS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(View))
STREAMS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("owning", ctypes.c_void_p * 3),
        ("view", VIEWS),
        ("stream", STREAMS),
    )


@VIEWS
def view(tensor: Tensor, out: Any) -> int:
    pointer = ctypes.POINTER(ctypes.c_int64)
    shape, strides = (ctypes.cast(array, pointer) for array in (tensor.shape, tensor.strides))
    out[0] = View(tensor.address, tensor.device_type, 0, len(tensor.shape), 2, 16, 1, shape, strides, 0)
    return 0


@STREAMS
def stream(kind: int, device: int, out: Any) -> int:
    out[0] = 77
    return 0


def capsule(table: Exchange) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(table), b"dlpack_exchange_api", None)


def test_tensors_are_read_through_the_exchange_of_dlpack_and_launched_on_its_stream(gpu: EmulatedGpu) -> None:
    table, grad = Exchange(1, 3, None, (ctypes.c_void_p * 3)(), view, stream), [False]
    called = launched.kind(capsule(table), (Tensor,), lambda: grad[0], recorded=lambda *given: given)
    seen: list[tuple[Any, ...]] = []

    def launch(config: int, function: int, parameters: int, extra: None) -> int:
        places = (ctypes.c_void_p * 3).from_address(parameters)
        words = [ctypes.c_uint64.from_address(places[0]).value, ctypes.c_uint64.from_address(places[2]).value]
        seen.append((ctypes.c_uint64.from_address(config + 32).value, *words, ctypes.string_at(places[1], 4)))
        return 0

    in_c = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(launch)
    points = (ctypes.cast(in_c, ctypes.c_void_p).value, *gpu.entry_points[1:])
    result = Tensor(0x9000, (4, 8), (8, 1))
    makers, steps = ((lambda: result, ()),), (("k", 5, (1, 1, 1), (32, 1, 1), 0, False, (0, b"abcd", 1)),)
    between: tuple[Any, ...] = (False, (), (), (tuple, ()))
    hot = _launch.ready(
        called.args[0], 0, points, 4, makers, (64,), (64,), None, *between, gpu.enter, gpu.failed, steps
    )
    known = types.SimpleNamespace(ready={((4, 8), (16, 1), "float16", 0, 16): types.SimpleNamespace(hot=hot)})
    x = Tensor(0x1010, (4, 8), (16, 1))
    assert called(known, (x, None), None, {}) is result
    assert seen == [(77, 0x1010, 0x9000, b"abcd")]
    others = [Tensor(0x1010, (4, 8), (8, 1)), Tensor(0x1010, (4, 8), (16, 1), 1), Tensor(0x1008, (4, 8), (16, 1))]
    assert [called(known, (other,), None, {}) for other in [*others, object()]] == [None] * 4
    x.requires_grad = True
    assert called(known, (x,), None, {}) is result
    grad[0] = True
    given = known, (others[0], x), None, {"eps": 1}
    assert called(*given) == given
    assert called(known, (x, object()), None, {}) is None
    assert len(seen) == 2


def test_cupy_has_the_function_in_c_that_says_the_stream() -> None:
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    assert valid(arrays.stream_in_c(), b"intptr_t (int)")


def test_an_exchange_of_another_version_is_refused() -> None:
    table = Exchange(2, 0, None, (ctypes.c_void_p * 3)(), view, stream)
    with pytest.raises(ValueError, match="not of DLPack 1"):
        launched.kind(capsule(table), (Tensor,), bool)
