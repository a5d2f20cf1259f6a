"""Our own Triton kernel for `ssd`: any size, any distance between places.

It is as plain as Triton allows: a program takes a head, one chunk after the other, with masked loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ...model.launch import ceil_div
from .problem import SsdProblem


@triton.jit
def ssd(
    x,  # (batch, length, heads, headdim), with strides x_batch, x_place
    log_a,  # (batch, length, heads)
    b,  # (batch, length, heads / group, dstate), with strides bc_batch, bc_place, and c, too
    c,
    h0,  # (batch, heads, dstate, headdim)
    y,  # like x, without gaps
    h,  # like h0
    x_batch,
    x_place,
    bc_batch,
    bc_place,
    heads,
    group,
    length,
    headdim,
    dstate,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
    DSTATE: tl.constexpr,
    LOG2_E: tl.constexpr,
):
    head, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place, n = tl.arange(0, CHUNK), tl.arange(0, DSTATE)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    x += batch * x_batch + head * headdim
    b += batch * bc_batch + head // group * dstate
    c += batch * bc_batch + head // group * dstate
    log_a += batch * length * heads + head
    y += (batch * length * heads + head) * headdim
    at = ((batch * heads + head) * dstate + n[:, None]) * headdim + column[None, :]
    known = (n[:, None] < dstate) & (column[None, :] < headdim)
    state = tl.load(h0 + at, mask=known, other=0.0)
    earlier = place[:, None] >= place[None, :]
    for first in range(0, length, CHUNK):
        t = (first + place).to(tl.int64)
        there = t < length
        of_x = there[:, None] & (column[None, :] < headdim)
        of_bc = there[:, None] & (n[None, :] < dstate)
        xs = tl.load(x + t[:, None] * x_place + column[None, :], mask=of_x, other=0.0)
        bs = tl.load(b + t[:, None] * bc_place + n[None, :], mask=of_bc, other=0.0)
        cs = tl.load(c + t[:, None] * bc_place + n[None, :], mask=of_bc, other=0.0)
        steps = tl.load(log_a + t * heads, mask=there, other=0.0)
        steps = tl.where(steps < -104.0, -150.0, steps * LOG2_E)  # of a decay of 0 sums stay exact enough
        sums, last = tl.cumsum(steps, 0), tl.sum(steps, 0)
        apart = tl.where(earlier, sums[:, None] - sums[None, :], float("-inf"))
        weights = tl.dot(cs, tl.trans(bs)) * tl.exp2(apart)
        found = tl.dot(cs, state.to(cs.dtype)) * tl.exp2(sums)[:, None]
        found = tl.dot(weights.to(xs.dtype), xs, found)
        kept = (bs.to(tl.float32) * tl.exp2(last - sums)[:, None]).to(bs.dtype)
        state = tl.dot(tl.trans(kept), xs, state * tl.exp2(last))
        tl.store(y + t[:, None] * heads * headdim + column[None, :], found.to(y.dtype.element_ty), mask=of_x)
    tl.store(h + at, state, mask=known)


CHUNK, COLUMNS = 64, 64


def work(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any, y: Any, h: Any) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    grid = (p.heads, p.batch, ceil_div(p.headdim, COLUMNS))
    arguments = (x, log_a, b, c, h0, y, h, *x.stride()[:2], *b.stride()[:2])
    counts = (p.heads, p.group, p.length, p.headdim, p.dstate)
    sizes = {"CHUNK": CHUNK, "COLUMNS": COLUMNS, "DSTATE": 64 if p.dstate <= 64 else 128}
    return lambda: ssd[grid](*arguments, *counts, **sizes, LOG2_E=1.4426950408889634, num_warps=4, num_stages=2)
