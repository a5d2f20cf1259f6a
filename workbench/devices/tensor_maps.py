"""Tensor maps of a launch, for the emulator and for the driver: both are given the same `TensorLayout`."""

from __future__ import annotations

import ctypes
from dataclasses import asdict
from typing import Any

import numpy as np

from ..model.arrays import Array
from ..model.results import Fault, Verdict
from ..model.tensor_map import Im2col, TensorLayout, TensorMap

SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}


def layout_of(spec: TensorMap, array: Array) -> TensorLayout:
    """A tensor map laid over its array. Raises Fault (LAUNCH_ERROR) for a view that the array does not have."""
    try:
        return spec.over(array.shape, array.element_strides, array.dtype, array.storage_elements * array.dtype.packing)
    except ValueError as error:
        raise refused(spec, str(error)) from None


def refused(spec: TensorMap, why: str) -> Fault:
    """That there can be no such tensor map."""
    return Fault(Verdict.LAUNCH_ERROR, f"the tensor map of {spec.array}: {why}")


def emulated(spec: TensorMap, array: Array, address: int) -> Any:
    """The map as the emulator takes it. Raises Fault for what the driver would refuse, too: the rules stand there."""
    from .. import emulator

    layout = layout_of(spec, array)
    box: Any = layout.box
    if isinstance(box, Im2col):
        box = emulator.PixelBox(box.lower, box.upper, box.channels, box.pixels)
    try:
        return emulator.TensorMap(
            address + layout.offset,
            layout.element_bytes,
            layout.sizes,
            layout.strides,
            box,
            layout.element_strides,
            layout.swizzle,
            nan_fill=layout.nan_fill,
            element_type=layout.element_type,
        )
    except ValueError as error:
        raise refused(spec, str(error)) from None


def _how(layout: TensorLayout) -> dict[str, Any]:
    """The constants of the driver for a layout: the type first, then what comes last in its calls."""
    from cuda.bindings import driver

    fill = "NAN_REQUEST_ZERO_FMA" if layout.nan_fill else "NONE"
    return {
        "data_type": getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{layout.element_type.upper()}"),
        "interleave": driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        "swizzle": getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[layout.swizzle]}"),
        "promotion": getattr(
            driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{PROMOTIONS[layout.promotion]}"
        ),
        "fill": getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}"),
    }


def encoded(spec: TensorMap, array: Array, pointer: int) -> np.ndarray[Any, Any]:
    """The 128-byte CUtensorMap, as a one-element array that CuPy passes by value. Raises Fault."""
    from cuda.bindings import driver

    layout = layout_of(spec, array)
    box, (kind, *last) = layout.box, _how(layout).values()
    sizes, strides = ([driver.cuuint64_t(n) for n in steps] for steps in (layout.sizes, layout.strides or (16,)))
    if isinstance(box, Im2col):
        function, what = driver.cuTensorMapEncodeIm2col, "cuTensorMapEncodeIm2col"
        tile: list[Any] = [list(box.lower), list(box.upper), box.channels, box.pixels]
    else:
        function, what = driver.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled"
        tile = [[driver.cuuint32_t(n) for n in box]]
    steps = [driver.cuuint32_t(n) for n in layout.element_strides]
    error, tensor_map = function(kind, layout.rank, pointer + layout.offset, sizes, strides, *tile, steps, *last)
    if int(error):
        raise Fault(Verdict.LAUNCH_ERROR, f"{what} rejected the map of {spec.array}: {error}")
    raw = ctypes.string_at(int(tensor_map.getPtr()), 128)
    return np.frombuffer(raw, dtype=np.dtype("V128")).copy()


def numbers(spec: TensorMap, array: Array) -> dict[str, Any]:
    """What `encoded` gives the driver but for the address, as numbers, for packages that run without the workbench.

    Raises Fault."""
    layout = layout_of(spec, array)
    return {
        "offset": layout.offset,
        "sizes": list(layout.sizes),
        "strides": list(layout.strides),
        "element_strides": list(layout.element_strides),
        **{name: int(constant) for name, constant in _how(layout).items()},
        **(asdict(layout.box) if isinstance(layout.box, Im2col) else {"box": list(layout.box)}),
    }
