"""Tensor maps of a launch: views of arrays, what the driver's functions are given, and what is refused before."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import types
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import E2M1, E4M3, FP16, FP32, Array, DType, Im2col, TensorMap
from workbench.devices import Fault, tensor_maps
from workbench.model.dtypes import BF16, INT8, INT32
from workbench.model.tensor_map import TensorLayout

COMPLEX = DType("c32", np.dtype(np.complex128), "double2", 0.0, 0.0, "")
AT = 1 << 30


def layout(spec: TensorMap, array: Array) -> TensorLayout:
    return tensor_maps.layout_of(spec, array)


# ------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("array", "box", "sizes", "strides"),
    [
        (Array((30, 64), BF16), (8, 64), (64, 30), (128,)),
        (Array((30, 64), BF16, leading=72), (8, 64), (64, 30), (144,)),
        (Array((64,), FP32), (32,), (64,), ()),
        (Array((64,), FP32), (1, 32), (64, 1), (256,)),  # a dimension of one comes first
        (Array((2, 3, 64), FP32), (3, 32), (64, 6), (256,)),  # outer dimensions are flattened
        (Array((2, 3, 64), FP32, leading=68), (1, 3, 32), (64, 3, 2), (272, 816)),
        (Array((2, 3, 4, 5, 64), FP16), (1, 1, 2, 5, 64), (64, 5, 4, 3, 2), (128, 640, 2560, 7680)),
        (Array((30, 64), E2M1), (8, 64), (64, 30), (32,)),  # two in a byte
        (Array((1, 9), FP32), (1, 8), (9, 1), (48,)),  # the stride of a single row is never used
    ],
)
def test_a_map_covers_its_array(
    array: Array, box: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    found = layout(TensorMap("x", box), array)
    assert (found.sizes, found.strides) == (sizes, strides)
    assert found.box == box[::-1]
    assert found.element_strides == (1,) * len(box)
    assert found.offset == 0


def test_views_of_an_array() -> None:
    array = Array((4, 6, 64), FP16)
    reshaped = layout(TensorMap("x", (2, 2, 3, 64), shape=(2, 2, 6, 64)), array)
    assert (reshaped.sizes, reshaped.strides) == ((64, 6, 2, 2), (128, 768, 1536))
    split = layout(TensorMap("x", (24, 4, 16), swizzle=0, shape=(24, 4, 16)), array)
    assert (split.sizes, split.strides) == ((16, 4, 24), (32, 128))
    # every second row from the second image on, columns 16 to 47, images innermost of the outer ones
    view = TensorMap("x", (3, 3, 16), shape=(3, 3, 32), strides=(128, 384, 1), offset=6 * 64 + 16)
    found = layout(view, array)
    assert (found.sizes, found.strides, found.offset) == ((32, 3, 3), (768, 256), 2 * (6 * 64 + 16))
    with pytest.raises(Fault, match="the tensor map of x: the view runs from element 16 to 1551"):
        layout(dataclasses.replace(view, strides=(128, 624, 1), offset=16), array)


@given(st.data())
def test_a_reshape_has_the_strides_that_numpy_finds(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    padding = data.draw(st.sampled_from([0, 0, 2]))
    array = Array(shape, FP32, leading=shape[-1] + padding)
    count, new = int(np.prod(shape)), []
    while count > 1 and len(new) < 4:
        new.append(data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0])))
        count //= new[-1]
    new = [count, *new]
    view = array.view(np.arange(array.storage_elements, dtype=np.float32))
    spec = TensorMap("x", tuple(new), shape=tuple(new))
    try:
        expected = view.reshape(new, copy=False)
    except ValueError:
        with pytest.raises(Fault, match=r"without a copy|innermost dimension has a stride"):
            layout(spec, array)
        return
    if expected.strides[-1] != 4 and new[-1] > 1:
        with pytest.raises(Fault, match="innermost dimension has a stride"):
            layout(spec, array)
        return
    found = layout(spec, array)
    assert found.sizes == tuple(new)[::-1]
    for extent, step, wanted in zip(new[:-1], found.strides[::-1], expected.strides[:-1], strict=True):
        assert step == wanted or (extent == 1 and step % 16 == 0)


@pytest.mark.parametrize(
    ("dtype", "element_type", "name"),
    [
        (BF16, None, "bfloat16"),
        (FP16, None, "float16"),
        (FP32, None, "float32"),
        (FP32, "tf32", "tfloat32"),
        (E4M3, None, "uint8"),
        (E2M1, None, "16u4_align8b"),
        (INT8, None, "uint8"),
        (INT32, None, "int32"),
    ],
)
def test_element_types(dtype: DType, element_type: Any, name: str) -> None:
    spec = TensorMap("x", (4, 32), swizzle=0, element_type=element_type)
    assert layout(spec, Array((8, 64), dtype)).element_type == name
    assert tensor_maps.emulated(spec, Array((8, 64), dtype), AT).element_type == name


# ----------------------------------------------------------------------------------------------- refused, on both sides

IMAGES = Array((2, 5, 6, 16), FP16)
MATRIX = Array((30, 64), BF16)


def pixels(**changes: Any) -> Im2col:
    return dataclasses.replace(Im2col((-1, -1), (-1, -1), 16, 32), **changes)


@pytest.mark.parametrize(
    ("array", "spec", "words"),
    [
        (MATRIX, TensorMap("x", ()), "1 to 5 dimensions, not 0"),
        (MATRIX, TensorMap("x", (1,) * 5 + (64,)), "1 to 5 dimensions, not 6"),
        (MATRIX, TensorMap("x", (8, 64), swizzle=16), "0, 32, 64 or 128 bytes, not 16"),
        (MATRIX, TensorMap("x", (8, 64), promotion=32), "0, 64, 128 or 256 bytes, not 32"),
        (MATRIX, TensorMap("x", (8, 64), element_strides=(1,)), "2 dimensions and 1 element strides"),
        (MATRIX, TensorMap("x", (8, 64), element_strides=(9, 1)), "element stride of dimension 1 is 9"),
        (MATRIX, TensorMap("x", (8, 64), fill="inf"), "zero or as nan"),  # type: ignore[arg-type]
        (MATRIX, TensorMap("x", (8, 64), element_type="tf32"), "only fp32 as tf32"),
        (MATRIX, TensorMap("x", (300, 64)), "copy more in several boxes"),
        (MATRIX, TensorMap("x", (8, 4)), "make the box 8 elements wide"),
        (MATRIX, TensorMap("x", (8, 128)), "make the box at most 64 elements wide"),
        (MATRIX, TensorMap("x", (8, 8), offset=8), "give its shape, too"),
        (MATRIX, TensorMap("x", (8, 8), shape=(30, 60)), r"\(30, 60\) has 1800 elements"),
        (MATRIX, TensorMap("x", (8, 8), shape=(30, 8, 8)), "the view has 3 dimensions and the box 2"),
        (MATRIX, TensorMap("x", (8, 8), shape=(64, 30), strides=(1, 64)), "TMA reads it contiguously"),
        (MATRIX, TensorMap("x", (8, 8), shape=(64, 30), strides=(1,)), "2 dimensions and 1 strides"),
        (MATRIX, TensorMap("x", (8, 8), shape=(8, 8), strides=(64, 1), offset=4), "begin it at an element that is"),
        (MATRIX, TensorMap("x", (8, 8), shape=(8, 8), strides=(4, 1)), "pad rows to 16 bytes"),
        (Array((30, 60), BF16, leading=62), TensorMap("x", (8, 8)), "pad rows to 128 bytes"),
        (Array((2, 6, 60), BF16, leading=64), TensorMap("x", (8,)), "do not lie evenly"),
        (Array((30, 64), E4M3), TensorMap("x", (8, 64), fill="nan"), "only for a float type"),
        (Array((30, 64), COMPLEX), TensorMap("x", (8, 8)), "have 16 bytes"),
        (IMAGES, TensorMap("x", pixels(upper=(0,))), "have different dimensions"),
        (IMAGES, TensorMap("x", pixels(lower=(), upper=())), "3 to 5 dimensions"),
        (IMAGES, TensorMap("x", pixels(upper=(-6, 0))), "leaves no pixel in dimension 2"),
        (IMAGES, TensorMap("x", pixels(lower=(0, -129))), "-128 to 127 are allowed in 4 dimensions"),
        (IMAGES, TensorMap("x", pixels(pixels=2000)), "1 to 1024"),
        (IMAGES, TensorMap("x", pixels(channels=12)), "make the box 16 elements wide"),
        (IMAGES, TensorMap("x", pixels(channels=16), swizzle=32), ""),
        (IMAGES, TensorMap("x", pixels(channels=32), swizzle=32), "at most 16 elements wide"),
    ],
)
def test_what_tma_cannot_do_is_refused_with_a_remedy(array: Array, spec: TensorMap, words: str) -> None:
    if not words:
        tensor_maps.emulated(spec, array, AT)
        return
    with pytest.raises(Fault, match=f"the tensor map of x: .*{words}"):
        tensor_maps.emulated(spec, array, AT)


# -------------------------------------------------------------------------------------------------- the driver's side


DATA_TYPES = "UINT8 UINT16 UINT32 INT32 UINT64 INT64 FLOAT16 FLOAT32 FLOAT64 BFLOAT16 FLOAT32_FTZ TFLOAT32"


class Driver(types.ModuleType):
    """Stands for `cuda.bindings.driver`: keeps what it is given and encodes 128 bytes of its own."""

    CUtensorMapDataType = IntEnum(
        "CUtensorMapDataType",
        [f"CU_TENSOR_MAP_DATA_TYPE_{name}" for name in DATA_TYPES.split()],
        start=0,
    )
    CUtensorMapSwizzle = IntEnum(
        "CUtensorMapSwizzle", [f"CU_TENSOR_MAP_SWIZZLE_{n}" for n in ("NONE", "32B", "64B", "128B")], start=0
    )
    CUtensorMapL2promotion = IntEnum(
        "CUtensorMapL2promotion",
        [f"CU_TENSOR_MAP_L2_PROMOTION_{n}" for n in ("NONE", "L2_64B", "L2_128B", "L2_256B")],
        start=0,
    )
    CUtensorMapInterleave = IntEnum("CUtensorMapInterleave", ["CU_TENSOR_MAP_INTERLEAVE_NONE"], start=0)
    CUtensorMapFloatOOBfill = IntEnum(
        "CUtensorMapFloatOOBfill",
        [f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{n}" for n in ("NONE", "NAN_REQUEST_ZERO_FMA")],
        start=0,
    )

    def __init__(self, error: int = 0) -> None:
        super().__init__("driver")
        self.error = error
        self.calls: list[tuple[Any, ...]] = []
        self.bytes = ctypes.create_string_buffer(bytes(range(128)), 128)

    class cuuint64_t(int):  # noqa: N801 - the driver's name
        pass

    class cuuint32_t(int):  # noqa: N801
        pass

    def getPtr(self) -> int:  # noqa: N802
        return ctypes.addressof(self.bytes)

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> tuple[int, Driver]:  # noqa: N802
        self.calls.append(("tiled", *arguments))
        return self.error, self

    def cuTensorMapEncodeIm2col(self, *arguments: Any) -> tuple[int, Driver]:  # noqa: N802
        self.calls.append(("im2col", *arguments))
        return self.error, self


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    return made


def test_the_driver_is_given_a_matrix(driver: Driver) -> None:
    found = tensor_maps.encoded(TensorMap("x", (8, 64), promotion=128), Array((30, 64), BF16, leading=72), AT)
    assert found.tobytes() == bytes(range(128))
    assert found.shape == (1,)
    # type, rank, address, sizes, strides, box, element strides, interleave, swizzle, promotion, fill
    assert driver.calls == [("tiled", 9, 2, AT, [64, 30], [144], [64, 8], [1, 1], 0, 3, 2, 0)]
    _, _, _, _, sizes, strides, box, steps, *_ = driver.calls[0]
    assert {type(n) for n in (*sizes, *strides)} == {Driver.cuuint64_t}
    assert {type(n) for n in (*box, *steps)} == {Driver.cuuint32_t}


@pytest.mark.parametrize(
    "columns, leading, asked, promotion",
    [(128, 128, 256, 256), (128, 192, 256, 128), (120, 128, 256, 256), (128, 192, 64, 64), (72, 72, 128, 128)],
)
def test_the_l2_fetches_256_bytes_only_of_rows_that_begin_at_such_multiples(
    columns: int, leading: int, asked: int, promotion: int
) -> None:
    found = TensorMap("x", (8, 64), promotion=asked).over((30, columns), (leading, 1), BF16, 30 * leading)
    assert found.promotion == promotion


def test_the_driver_is_given_one_to_five_dimensions(driver: Driver) -> None:
    shape = (2, 3, 4, 5, 64)
    for rank in range(1, 6):
        spec = TensorMap("x", (2,) * (rank - 1) + (16,), swizzle=32, fill="nan")
        tensor_maps.encoded(spec, Array(shape[-rank:], FP16), AT)
    spans = [128, 640, 2560, 7680]
    sizes, steps = [64, 5, 4, 3, 2], [16, 2, 2, 2, 2]
    assert driver.calls == [
        # rows that are no multiples of 256 bytes are fetched 128 bytes at a time
        ("tiled", 6, n, AT, sizes[:n], spans[: n - 1] or [16], steps[:n], [1] * n, 0, 1, 2 if n > 1 else 3, 1)
        for n in range(1, 6)
    ]


def test_the_driver_is_given_a_view(driver: Driver) -> None:
    spec = TensorMap("x", (3, 16), 0, 0, (2, 1), shape=(12, 64), strides=(128, 1), offset=64, element_type="tf32")
    tensor_maps.encoded(spec, Array((24, 64), FP32), AT)
    assert driver.calls == [("tiled", 11, 2, AT + 256, [64, 12], [512], [16, 3], [1, 2], 0, 0, 0, 0)]


def test_the_driver_is_given_pixels(driver: Driver) -> None:
    box = Im2col(lower=(-1, -2), upper=(-3, -4), channels=16, pixels=100)
    tensor_maps.encoded(TensorMap("x", box, 32, element_strides=(1, 2, 3, 1)), Array((2, 9, 8, 32), FP16), AT)
    # lower and upper corner, channels and pixels stand where a tiled map has its box; columns come before rows
    expected = (6, 4, AT, [32, 8, 9, 2], [64, 512, 4608], [-2, -1], [-4, -3], 16, 100, [1, 3, 2, 1], 0, 1, 2, 0)
    assert driver.calls == [("im2col", *expected)]


def test_what_the_driver_says_is_handed_on(driver: Driver) -> None:
    driver.error = 1
    with pytest.raises(Fault, match="cuTensorMapEncodeTiled rejected the map of x: 1"):
        tensor_maps.encoded(TensorMap("x", (8, 64)), MATRIX, AT)
    with pytest.raises(Fault, match="cuTensorMapEncodeIm2col rejected the map of x: 1"):
        tensor_maps.encoded(TensorMap("x", pixels(), 32), IMAGES, AT)
    with pytest.raises(Fault, match="the tensor map of x: a tensor map has 1 to 5 dimensions"):
        tensor_maps.encoded(TensorMap("x", ()), MATRIX, AT)
