"""y[r] = sum_c x[r, c]: replace it by what reduction computes."""

import numpy as np

from workbench import Launch, simple_operation


@simple_operation("reduction", "x: rows columns fp32 -> y: rows fp32", terms="columns")
def reduction(x):
    return x.sum(axis=1)


@reduction.stage("naive", source="reduction.cu", idea="one block computes one row")
def naive(p, size):
    return Launch("reduction_naive", (p.rows, 1, 1), (128, 1, 1), ("x", "y", np.int32(p.columns)))
