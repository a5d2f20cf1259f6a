"""Red zones around arrays on a GPU find writes outside of them; CuPy is stood in for by NumPy."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from workbench.devices import Fault, cuda
from workbench.devices.guards import PATTERN, ZONE
from workbench.dtypes import BF16, DTYPES
from workbench.launch import Array, Launch, Plan
from workbench.results import Verdict


class HostArray(np.ndarray):
    """What the CUDA device uses of a CuPy array."""

    def get(self):
        return np.array(self)

    def set(self, values):
        assert values.dtype == self.dtype
        assert values.shape == self.shape
        self[...] = values

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


@pytest.fixture
def launched(monkeypatch):
    """Run a plan over C, 3 x 5 of bf16 in rows of 8, whose kernel is a Python function of C's address."""
    cupy = types.SimpleNamespace(empty=lambda size, dtype: np.empty(size, dtype).view(HostArray))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array = Array((3, 5), BF16, 8, output=True)

    def launch_with(kernel):
        device = types.SimpleNamespace(
            prepare=lambda compiled, launch, arrays, pointers: lambda: kernel(pointers["C"]),
            synchronize=lambda: None,
        )
        plan = Plan((Launch("kernel", (1, 1, 1), (1, 1, 1), ("C",)),))
        bound = cuda.CudaPlan(device, None, plan, {"C": array}, {"C": array.poisoned()})
        bound.run()
        return bound.read("C")

    return launch_with


def poke(address, values):
    (np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * len(values)).from_address(address)))[:] = values


def test_what_is_written_inside_is_read_back_and_nothing_is_wrong(launched):
    read = launched(lambda c: poke(c, np.zeros(21 * 2, np.uint8)))
    assert read.dtype == BF16.numpy
    assert read.shape == (21,)
    assert not read.astype(np.float32).any()


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (42, "0 bytes after the end of C, where C[21] of its storage would be"),
        (42 + 7, "7 bytes after the end of C, where C[24] of its storage would be"),
        (42 + ZONE - 1, f"{ZONE - 1} bytes after the end of C"),
        (-1, "1 bytes before the start of C"),
        (-ZONE, f"{ZONE} bytes before the start of C"),
    ],
)
def test_a_write_outside_names_array_and_offset(launched, offset, says):
    with pytest.raises(Fault, match="wrote outside of C: 1 bytes changed") as raised:
        launched(lambda c: poke(c + offset, np.zeros(1, np.uint8)))
    assert raised.value.verdict is Verdict.OUT_OF_BOUNDS
    assert says in str(raised.value)


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_what_nothing_is_written_to_is_not_a_number(dtype):
    assert np.isnan(Array((3,), dtype).poisoned().astype(np.float64)).all()
    assert dtype.unwritten(np.array([1, np.nan], dtype.numpy)).tolist() == [False, True]


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_the_pattern_is_not_a_number_in_every_type_and_not_the_usual_one(dtype):
    values = PATTERN.view(dtype.numpy)
    assert np.isnan(values).all()
    assert values[:1].tobytes() != np.full(1, np.nan, dtype.numpy).tobytes()
    assert values[:1].tobytes() != b"\xff" * dtype.itemsize
