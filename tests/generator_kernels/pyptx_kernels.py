"""Kernels for pyptx, with what they store: those of its examples, which its package has, and our own; the last two have
a fault."""

import importlib
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ml_dtypes
import numpy as np
from pyptx import Tile, kernel, ptx, reg, smem
from pyptx.specs import Layout
from pyptx.types import f32, pred, u32

from workbench.emulator import Output, TensorMapOf, launch, load

_RNG = np.random.default_rng(0)
N = 256
X, Y = _RNG.standard_normal((2, 8, N)).astype(np.float32)
W = _RNG.standard_normal(N).astype(np.float32)
A, B = _RNG.standard_normal((2, 128, 128)).astype(ml_dtypes.bfloat16)
Q, K, V = _RNG.standard_normal((3, 128, 32)).astype(ml_dtypes.bfloat16)
_SWIZZLES = {Layout.TMA_128B: 128, Layout.TMA_64B: 64, Layout.TMA_32B: 32}


def run(built, *arrays, text=None):
    """Its result and the report. Tensor maps are the last arguments, each a pointer to one in global memory."""
    text = text or built.ptx()
    out = np.zeros(built.out_specs[0].shape, np.float32)
    given = [*arrays, Output(out)]
    names = [line.split()[-1].rstrip(",") for line in text.split(")", 1)[0].split("(", 1)[1].strip().split("\n")]
    for spec, array, name in zip((*built.in_specs, *built.out_specs), list(given), names, strict=False):
        if f"{name}_tma_desc" in names:
            given.append([TensorMapOf(array, spec.tma_box, _SWIZZLES.get(spec.layout, 0))])
    return out, launch(load(text), None, built.grid, built.block, given, shared=max(built.smem, built._last_trace_smem))


def example(module, build, *arguments, **options):
    return getattr(importlib.import_module(f"pyptx.examples.{module}"), build)(*arguments, **options)


def of_elements(body, out=None):
    """A kernel of one element a thread; ``body`` gets the element, its number and the addresses."""

    @kernel(in_specs=(Tile(8, N, f32),), out_specs=(Tile(8, N, f32),), grid=(8, 1, 1), block=(N, 1, 1), arch="sm_80")
    def elements(x, y):
        px, py = ptx.global_ptrs(x, y)
        t, row, value = reg.scalar(u32), reg.scalar(u32), reg.scalar(f32)
        ptx.inst.mov.u32(t, ptx.special.tid.x())
        ptx.inst.mov.u32(row, ptx.special.ctaid.x())
        at = (row * N + t) * 4
        ptx.inst.ld.global_.f32(value, ptx.addr(px + at))
        found = body(value, t, px + at)
        ptx.inst.st.global_.f32(ptx.addr(py + (at if out is None else out(t))), found)

    return elements


def scaled(value, t, at):
    ptx.inst.mul.f32(value, value, 2.0)
    return value


def sines(value, t, at):
    ptx.inst.sin.approx.f32(value, value)
    return value


def chosen(value, t, at):
    positive, found = reg.scalar(pred), reg.scalar(f32)
    ptx.inst.setp.gt.f32(positive, value, 0.0)
    ptx.inst.selp.f32(found, value, -3.0, positive)
    return found


def summed_by_warp(value, t, at):
    ptx.warp.reduce_sum(value)
    return value


def reversed_by_block(value, t, at):
    part, found = smem.alloc(f32, (N, 1)), reg.scalar(f32)
    part[t, 0] = value
    ptx.bar.sync(0)
    ptx.inst.mov.f32(found, part[(t ^ (N - 1)), 0])
    return found


def iterated(value, t, at):
    sums = reg.scalar(f32, init=0.0)
    for _ in range(4):
        ptx.inst.fma.rn.f32(sums, sums, value, 1.0)
    return sums


def beyond(value, t, at):
    ptx.inst.ld.global_.f32(value, ptx.addr(at, 4))
    return value


def unordered(value, t, at):
    part, found = smem.alloc(f32, (N, 1)), reg.scalar(f32)
    part[t, 0] = value
    ptx.inst.mov.f32(found, part[(t ^ (N - 1)), 0])
    return found


def _softmax(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _attention():
    return _softmax(np.float32(Q) @ np.float32(K).T / np.sqrt(32)) @ np.float32(V)


def _product(m, n, k):
    return np.float32(A[:m, :k]) @ np.float32(B[:n, :k]).T


def _of_rows(architecture):
    """Kernels over rows, which the package has for three architectures."""
    rms = X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-6) * W
    centred = X - X.mean(1, keepdims=True)
    layer = centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5) * W + W
    return {
        f"{architecture}_rms_norm": (f"{architecture}.rms_norm", "build_rms_norm", (8, N), (X, W), rms),
        f"{architecture}_layer_norm": (f"{architecture}.layer_norm", "build_layer_norm", (8, N), (X, W, W), layer),
        f"{architecture}_swiglu": (
            *(f"{architecture}.swiglu", "build_fused_silu_mul", (8, N), (X, Y)),
            X / (1 + np.exp(-X)) * Y,
        ),
    }


EXAMPLES = {
    **_of_rows("ampere"),
    **_of_rows("hopper"),
    **_of_rows("blackwell"),
    "ampere_softmax": ("ampere.softmax", "build_softmax", (8, N), (X,), _softmax(X)),
    "hopper_softmax": ("hopper.softmax", "build_softmax", (8, N), (X,), _softmax(X)),
    "gemm": ("ampere.gemm", "build_gemm", (32, 64, 64), (A[:32, :64], B[:64, :64]), _product(32, 64, 64)),
    "gemm_pipelined": (
        *("ampere.gemm_pipelined", "build_gemm_pipelined", (64, 64, 64), (A[:64, :64], B[:64, :64])),
        _product(64, 64, 64),
    ),
    "gemm_highperf": (
        "ampere.gemm_highperf_ampere",
        "build_gemm_highperf",
        (128,) * 3,
        (A, B),
        _product(128, 128, 128),
    ),
    "grouped_gemm": (
        *("hopper.grouped_gemm", "build_grouped_gemm", (2, 64, 64, 64), (A[:, :64].copy(), B[:, :64].copy())),
        np.concatenate([np.float32(A[i : i + 64, :64]) @ np.float32(B[i : i + 64, :64]) for i in (0, 64)]),
    ),
    "flash_attention_hopper": (
        *("hopper.experimental.flash_attention_hopper", "build_flash_attention_hopper", (128, 128, 32)),
        *((Q, K.T.copy(), V), _attention()),
    ),
}
OWN = {
    scaled: lambda x: 2 * x,
    sines: np.sin,
    chosen: lambda x: np.where(x > 0, x, -3),
    summed_by_warp: lambda x: np.repeat(x.reshape(-1, 32).sum(1), 32).reshape(x.shape),
    reversed_by_block: lambda x: x[:, ::-1],
    iterated: lambda x: ((x + 1) * x + 1) * x + 1,
}
FAULTS = {beyond: "out_of_bounds", unordered: "race"}
