"""Two kernels by programmatic dependent launch: the second one waits, or does not."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def double(x, y, SIZE: tl.constexpr):
    gdc_launch_dependents()
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + place, 2 * tl.load(x + place))


@triton.jit
def reverse(y, z, n, SIZE: tl.constexpr, WAIT: tl.constexpr):
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    if WAIT:
        gdc_wait()
    value = tl.load(y + n - 1 - place)
    tl.store(z + place, value)
