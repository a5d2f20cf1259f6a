"""Tensor maps are refused for the reasons for which the driver refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.emulator import Memory, TensorMap

GOOD: dict[str, Any] = dict(  # noqa: C408 - names as in the signature
    address=1 << 40, element_bytes=2, shape=(128, 64), strides=(256,), box=(64, 64), swizzle=128
)
PACKED: dict[str, Any] = {"element_bytes": 1, "element_type": "16u4_align8b", "shape": (256, 64), "box": (256, 64)}
GAPS: dict[str, Any] = {"element_bytes": 8, "element_type": "16u4_align16b", "shape": (256, 64), "box": (128, 64)}


def test_a_good_map() -> None:
    tensor = TensorMap(**GOOD)
    assert tensor.rank == 2
    assert tensor.box_bytes == 64 * 64 * 2
    assert tensor.extent == 63 * 256 + 256
    assert tensor.element_strides == (1, 1)
    for kind in (PACKED, GAPS):
        assert TensorMap(**{**GOOD, **kind}).box_bytes == 64 * 128 // (1 if kind is PACKED else 2)
    assert TensorMap(Memory().allocate(1 << 20, "A"), 2, (64,), (), (64,)).address % 256 == 0
    assert TensorMap(1 << 40, 2, (64, 64, 1, 1), (256, 0, 0), (64, 64, 1, 1)).rank == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": (1 << 40) + 8}, "multiple of 16"),
        ({"shape": ()}, "1 to 5 dimensions"),
        ({"shape": (1,) * 6}, "1 to 5 dimensions"),
        ({"shape": (0, 64)}, "dimension 0 has 0"),
        ({"shape": (2**32 + 1, 64)}, "2\\^32"),
        ({"strides": (264,)}, "pad rows to 272 bytes"),
        ({"strides": (2**40,)}, "2\\^40"),
        ({"strides": (0,)}, "positive multiple"),
        ({"strides": (256, 256)}, "must list 1 numbers"),
        ({"box": (64,)}, "must list 2 numbers"),
        ({"box": (64, 257)}, "1 to 256"),
        ({"box": (64, 0)}, "1 to 256"),
        ({"box": (4, 64)}, "multiple of 16 bytes"),
        ({"box": (128, 64)}, "at most 64 elements wide"),
        ({"box": (64, 64), "swizzle": 32}, "at most 16 elements wide"),
        ({"swizzle": 16}, "0, 32, 64 or 128"),
        ({"element_strides": (1, 9)}, "1 to 8"),
        ({"element_bytes": 3}, "1, 2, 4 or 8"),
        ({"element_type": "float32"}, "float32 has 4 bytes"),
        ({"nan_fill": True}, "only for a float type"),
        (PACKED | {"shape": (127, 64)}, "multiple of 2 elements"),
        (PACKED | {"box": (16, 64)}, "make the box 32 elements wide, or a multiple of 32 elements"),
        (PACKED | {"element_bytes": 2}, "16u4_align8b has 1 bytes"),
        (GAPS | {"address": (1 << 40) + 16}, "multiple of 32"),
        (GAPS | {"strides": (272,)}, "pad rows to 288"),
        (GAPS | {"shape": (192, 64)}, "multiple of 128 elements"),
        (GAPS | {"box": (64, 64)}, "a box has 128"),
        (GAPS | {"swizzle": 64}, "no swizzle, 128 or 128B_ATOM_32B"),
    ],
)
def test_what_the_driver_refuses(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TensorMap(**{**GOOD, **change})
