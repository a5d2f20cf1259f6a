"""Tensor maps are refused for the reasons for which the driver refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.emulator import Memory, TensorMap

GOOD: dict[str, Any] = dict(  # noqa: C408 - names as in the signature
    address=1 << 40, element_bytes=2, shape=(128, 64), strides=(256,), box=(64, 64), swizzle=128
)


def test_a_good_map() -> None:
    tensor = TensorMap(**GOOD)
    assert tensor.rank == 2
    assert tensor.box_bytes == 64 * 64 * 2
    assert tensor.extent == 63 * 256 + 256
    assert tensor.element_strides == (1, 1)
    assert TensorMap(Memory().allocate(1 << 20, "A"), 2, (64,), (), (64,)).address % 256 == 0


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
    ],
)
def test_what_the_driver_refuses(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TensorMap(**{**GOOD, **change})
