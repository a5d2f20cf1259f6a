"""y[i] = x[i]^2: replace it by what elementwise computes."""

import numpy as np

from workbench import Launch, ceil_div, simple_operation


def bound(p, inputs, expected):
    """The largest error of each element: one rounding, and the smallest subnormal number."""
    return {"y": 2.0**-24 * np.abs(expected["y"]) + 2.0**-149}


@simple_operation("elementwise", "x: n fp32 -> y: n fp32", bound=bound)
def elementwise(x):
    return x * x


@elementwise.stage("naive", source="elementwise.cu", idea="one thread computes one element")
def naive(p, size):
    return Launch("elementwise_naive", (ceil_div(p.n, 256), 1, 1), (256, 1, 1), ("x", "y", np.int32(p.n)))
