"""The reference is the definition, and every stage computes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from workbench import ProblemError

from . import Conv2dProblem, im2col, reference


@pytest.mark.parametrize(("stride", "pad", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 0, 2)])
def test_the_reference_is_the_sum_over_taps_and_channels(stride: int, pad: int, dilation: int) -> None:
    rng = np.random.default_rng(5)
    x, f = rng.integers(-3, 4, (2, 7, 9, 3)), rng.integers(-3, 4, (4, 3, 2, 3))
    found = reference.conv2d(x, f, stride, pad, dilation)
    for n, p, q, k in np.ndindex(found.shape):
        total = 0
        for r, s in itertools.product(range(3), range(2)):
            row, column = p * stride - pad + r * dilation, q * stride - pad + s * dilation
            if 0 <= row < 7 and 0 <= column < 9:
                total += int(x[n, row, column] @ f[k, r, s])
        assert found[n, p, q, k] == total
    assert found.shape == (2, (7 + 2 * pad - 2 * dilation - 1) // stride + 1, (8 + 2 * pad - dilation) // stride + 1, 4)


def test_what_is_no_convolution_and_what_tma_cannot_reach_is_said():
    with pytest.raises(ProblemError, match="filters of 3x3 taps, 4 apart, are larger than the image of 8x8"):
        Conv2dProblem(dilation=4)
    with pytest.raises(ProblemError, match="stride is 0"):
        Conv2dProblem(stride=0)
    assert im2col.supports(Conv2dProblem(channels=8)) is None
    for fields, words in (
        ({"channels": 12}, "channels has to divide by 8"),
        ({"stride": 9, "pad": 4}, "at most 8 elements"),
        ({"height": 300, "width": 300, "dilation": 65}, "at most 128"),
    ):
        assert words in (im2col.supports(Conv2dProblem(**fields)) or "")


@pytest.mark.workbench("conv2d")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
