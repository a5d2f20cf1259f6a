"""Arrays of libraries that are not known by name: taken by what they offer, and answered with their own kind."""

from __future__ import annotations

import sys
import types
from typing import Any

import cupy
import numpy as np
import pytest
from emulated_gpu import EmulatedGpu

from workbench import ops, reference
from workbench.ops import dispatch


class Interface:
    """An array with `__cuda_array_interface__`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.array.shape, "typestr": self.array.dtype.str, "data": (self.array.data.ptr, False)}


class Packed:
    """An array with DLPack on a device of this type, and a namespace."""

    def __init__(self, array: Any, device: int = 2) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.array

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=Packed)


@pytest.fixture
def taken(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> EmulatedGpu:
    """CuPy takes these arrays without asking a driver where their memory is."""
    monkeypatch.setattr(cupy, "from_dlpack", lambda array: array.__dlpack__())
    monkeypatch.setattr(cupy, "asarray", lambda array: array.array)
    return gpu


def test_arrays_with_dlpack_are_answered_with_those_of_their_namespace(taken: EmulatedGpu, rng) -> None:
    x, residual, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 64), (4, 64), 64))
    given = [Packed(taken.upload(values)) for values in (x, residual, w)]
    y, total = ops.residual_rms_norm(*given)
    assert type(y) is Packed and np.array_equal(taken.download(total.array), x + residual)
    assert np.allclose(taken.download(y.array), reference.rms_norm(x + residual, w, 1e-6), 1e-5)
    found = ops.cross_entropy(Packed(taken.upload(x)), Packed(taken.upload(np.arange(4, dtype=np.int32))))
    assert found._fields == ("loss", "lse") and type(found.loss) is Packed
    out = Packed(taken.upload(np.zeros((4, 64), np.float32)))
    assert ops.softmax(given[0], out=out) is out
    assert np.allclose(taken.download(out.array), reference.softmax(x), 1e-5)


def test_arrays_with_the_interface_are_answered_with_those_of_cupy(taken: EmulatedGpu, rng) -> None:
    x = rng.standard_normal((4, 64)).astype(np.float32)
    found = ops.softmax(Interface(taken.upload(x)))
    assert type(found) is cupy.ndarray
    assert np.allclose(taken.download(found), reference.softmax(x), 1e-5)


def test_a_package_that_makes_its_arrays_of_others_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = types.ModuleType("arrays_of_a_test")
    package.cuda = types.SimpleNamespace(as_cuda_array=lambda found: ("theirs", found))
    monkeypatch.setitem(sys.modules, "arrays_of_a_test", package)
    array = type("Array", (), {"__module__": "arrays_of_a_test.cuda"})()
    assert dispatch.converter(array)("x") == ("theirs", "x")
    package.cuda = types.SimpleNamespace()
    package.dlpack = types.SimpleNamespace(from_dlpack=lambda found: ("packed", found))
    assert dispatch.converter(array)("x") == ("packed", "x")


def test_memory_of_the_host_is_refused(taken: EmulatedGpu, rng) -> None:
    x = rng.standard_normal((4, 64)).astype(np.float32)
    with pytest.raises(TypeError, match=r"softmax: x is a numpy.ndarray; it has to be an array on a GPU"):
        ops.softmax(x)
    with pytest.raises(TypeError, match=r"softmax: x is a test_foreign.Packed; it has to be an array on a GPU"):
        ops.softmax(Packed(taken.upload(x), device=1))
    with pytest.raises(TypeError, match=r"rms_norm: w is a numpy.ndarray; it has to be an array on a GPU"):
        ops.rms_norm(Packed(taken.upload(x)), x[0])


@pytest.mark.gpu
def test_a_real_array_is_taken_by_either_protocol(rng) -> None:
    x = rng.standard_normal((4, 64)).astype(np.float32)
    array = cupy.asarray(x)

    interface = types.SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__)
    assert np.allclose(ops.softmax(interface).get(), reference.softmax(x), 1e-5)
    packed = type(
        "Packed", (), {name: staticmethod(getattr(array, name)) for name in ("__dlpack__", "__dlpack_device__")}
    )
    assert np.allclose(ops.softmax(packed()).get(), reference.softmax(x), 1e-5)
