"""Faults of Triton kernels as they happen, in their source or in their PTX."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl
from launches import output, values


@triton.jit
def _scaled(x, at, n):
    return 2 * tl.load(x + at, mask=at <= n)  # here


@triton.jit
def load_one_too_many(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, _scaled(x, at, n), mask=at < n)


@triton.jit
def store_one_too_many(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at <= n)  # here


@triton.jit
def without_mask(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)  # here
    tl.store(out + at, values, mask=at < n)


@triton.jit
def store_then_load(x, out, n, BLOCK: tl.constexpr):
    """An element is stored by one thread and loaded by another."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))  # here
    turned = tl.load(out + BLOCK - 1 - at)  # here
    tl.store(out + BLOCK + at, turned)


@triton.jit
def sums_in_memory_of_nobody(x, out, n, BLOCK: tl.constexpr):
    """The output is added to, and nobody has set it to 0."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    tl.atomic_add(out, total)  # here


@triton.jit
def programs_of_one_output(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    tl.store(out, total)  # here


@triton.jit
def sum_without_atomics(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    before = tl.load(out)  # here
    tl.store(out, before + total)  # here


@triton.jit
def relaxed_flag(x, out, flag, BLOCK: tl.constexpr):
    """The first program hands values on, and neither side of the flag orders anything."""
    at = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(out + at, tl.load(x + at))
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="relaxed")
    else:
        while tl.atomic_add(flag, 0, sem="relaxed") == 0:
            pass
        tl.debug_barrier()
        tl.store(out + BLOCK + at, 2 * tl.load(out + at))  # here


@triton.jit
def lock_given_back_relaxed(x, out, lock, BLOCK: tl.constexpr):
    """The lock is given back by one thread while others may still have to store."""
    at = tl.arange(0, BLOCK)
    mine = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    sums = tl.load(out + at)  # here
    tl.store(out + at, sums + mine)  # here
    tl.atomic_xchg(lock, 0, sem="relaxed")


def _launch(kernel, out, programs=4, n=1000, BLOCK=256):
    kernel[(programs,)](values(n), out, n, BLOCK=BLOCK)


IN_SOURCE = {
    load_one_too_many: ("out_of_bounds", lambda k: _launch(k, output(1000))),
    store_one_too_many: ("out_of_bounds", lambda k: _launch(k, output(1000))),
    without_mask: ("out_of_bounds", lambda k: _launch(k, output(1000))),
    store_then_load: ("race", lambda k: _launch(k, np.zeros(512, np.float32), 1, 256)),
    sums_in_memory_of_nobody: ("uninitialised", lambda k: _launch(k, output(1))),
    programs_of_one_output: ("race", lambda k: _launch(k, output(1))),
    sum_without_atomics: ("race", lambda k: _launch(k, np.zeros(1, np.float32))),
    relaxed_flag: ("race", lambda k: k[(2,)](values(256), output(512), np.zeros(1, np.int32), BLOCK=256)),
    lock_given_back_relaxed: (
        "race",
        lambda k: k[(2,)](values(512), np.zeros(256, np.float32), np.zeros(1, np.int32), BLOCK=256),
    ),
}
"""By kernel: the kind of the hazard, and its launch. The line that is to be named ends with `# here`."""


def _without(pattern: str, number: int = 0, instead: str = "") -> Callable[[str], str]:
    """A change of PTX: an instruction, the one of this number of those that fit, left out or replaced."""

    def change(ptx: str) -> str:
        found = list(re.finditer(pattern, ptx))[number]
        return ptx[: found.start()] + instead + ptx[found.end() :]

    return change


_TRY_WAIT = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 complete, [^;]*;"

IN_PTX = {
    "cp.async waited for one group late, sm_80": ("matmul", "sm_80",
        _without(r"cp\.async\.wait_group\s+1;", 0, "cp.async.wait_group 2;"), ("in_flight", "y = tl.load(")),
    "cp.async waited for one group late, sm_90a": ("attention", "sm_90a",
        _without(r"cp\.async\.wait_group\s+2;", 0, "cp.async.wait_group 3;"), ("in_flight", "sums = tl.dot(")),
    "no barrier before a buffer is filled again": ("matmul", "sm_80", _without(r"bar\.sync\s+0;", 1),
        ("race", "x = tl.load(")),
    "wgmma waited for one group late": ("matmul", "sm_90a",
        _without(r"wgmma\.wait_group\.sync\.aligned 0;", 0, "wgmma.wait_group.sync.aligned 1;"),
        ("in_flight", "x = tl.load(")),
    "no acquire of a descriptor": ("matmul_device_descriptors", "sm_90a",
        _without(r"@%p\d+ fence\.proxy\.tensormap::generic\.acquire\.gpu [^;]*;"), ("proxy_fence", "sums = tl.dot(")),
    "no wgmma.fence": ("matmul", "sm_90a", _without(r"wgmma\.fence\.sync\.aligned;"),
        ("wgmma_fence", "sums = tl.dot(")),
    "no barrier within a reduction": ("softmax", "sm_90a", _without(r"bar\.sync\s+0;"),
        ("race", "powers = tl.exp(values - tl.max(")),
    "no barrier between two reductions": ("layer_norm", "sm_90a", _without(r"bar\.sync\s+0;", 1),
        ("race", "mean = tl.sum(")),
    "no barrier within a scan": ("scan", "sm_90a", _without(r"bar\.sync\s+0;"), ("race", "tl.associative_scan(")),
    "no wait for TMA": ("matmul_host_descriptors", "sm_90a", _without(_TRY_WAIT, 0, "setp.eq.u32 complete, 0, 0;"),
        ("in_flight", "sums = tl.dot(")),
    "half of the bytes that TMA is to bring": ("matmul_host_descriptors", "sm_90a", _without(r"8192;", 2, "4096;"),
        ("race", "sums = tl.dot(")),
    "no proxy fence before a TMA store": ("matmul_host_descriptors", "sm_90a",
        _without(r"fence\.proxy\.async\.shared::cta;", -1), ("proxy_fence", "c.store(")),
}  # fmt: skip
"""By what is wrong: the launch, the target, the change of the PTX; the kind, and the line that is named."""
