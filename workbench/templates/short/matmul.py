"""c[m, n] = sum_k a[m, k] b[k, n]: replace it by what matmul computes."""

import numpy as np

from workbench import Launch, ceil_div, simple_operation


@simple_operation("matmul", "a: m k fp32, b: k n fp32 -> c: m n fp32", terms="k")
def matmul(a, b):
    return a @ b


@matmul.stage("naive", source="matmul.cu", idea="one thread computes one element")
def naive(p, size):
    sizes = (np.int32(p.m), np.int32(p.n), np.int32(p.k))
    return Launch("matmul_naive", (ceil_div(p.n, 16), ceil_div(p.m, 16), 1), (16, 16, 1), ("a", "b", "c", *sizes))
