"""Calls of `workbench.ops` that nobody chose, each with a library's call for the same arrays: what
`random_problems.py` times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from workbench import ops

Call = Callable[[], Any]


@dataclass(frozen=True)
class Problem:
    """A call of ours, and one of a library for the same arrays."""

    label: str
    function: Any
    arrays: tuple[Any, ...]
    theirs: Call
    options: Mapping[str, Any] = field(default_factory=dict)

    def ours(self) -> Any:
        """The answer, a tuple where there are several outputs."""
        return self.function(*self.arrays, **self.options)

    def chosen(self) -> dict[str, Any]:
        """Which stage solves it, what it is asked, and the microseconds that are predicted, if any are."""
        found = ops.explain(self.function, *self.arrays, **self.options)
        return {"stage": found.stage.name, "asked": str(found.problem), "predicted": found.us}


class Draw:
    """Random extents and arrays of one type."""

    device = "cuda"

    def __init__(self, rng: np.random.Generator, torch: Any, dtype: str) -> None:
        self.rng, self.torch, self.dtype = rng, torch, getattr(torch, dtype)

    def extent(self, most: int, least: int = 1) -> int:
        found = int(np.exp(self.rng.uniform(np.log(least), np.log(most + 1))))
        return found if self.rng.random() < 1 / 3 or found < 8 else found // 8 * 8

    def matrix(self, rows: int, columns: int) -> Any:
        gap = int(self.rng.integers(1, 9)) * 8 if self.rng.random() < 1 / 3 else 0
        return self.torch.randn(rows, columns + gap, device=self.device, dtype=self.dtype)[:, :columns]

    def array(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.device, dtype=self.dtype)

    def given(self, values: np.ndarray[Any, Any]) -> Any:
        """An array with these values, of their type."""
        return self.torch.from_numpy(values).to(self.device)

    def floats(self, *shape: int) -> Any:
        """An array of fp32."""
        return self.array(*shape).to(self.torch.float32)

    def yes(self) -> bool:
        return bool(self.rng.random() < 0.5)


def beside(
    library: str, label: str, function: Any, arrays: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> Problem:
    """A call beside a baseline that its operation declares, for `arrays` by the names that the operation gives them, in
    the order of the call. Raises ValueError for a problem that the library does not take, and ImportError without it.
    """
    options = options or {}
    problem = function.prepare(*arrays.values(), **options).problem
    call = library_call(function, library, problem, arrays)
    return Problem(label, function, tuple(arrays.values()), call, options)


def library_call(function: Any, library: str, problem: Any, arrays: Mapping[str, Any]) -> Call:
    """The call of a baseline that an operation declares, for arrays with the axes that the operation names. Raises as
    `beside` does."""
    (declared,) = (b for b in function.operation.baselines if b.name == library)
    if refusal := declared.refuses(problem):
        raise ValueError(f"{library}: {refusal}")
    call: Call = partial(declared.call, problem, **declared.arguments(arrays))
    return call() if declared.prepares else call


def product(d: Draw) -> Problem:
    """A matrix product: extents from 1 to 16384, nn or nt."""
    m, n, k = (d.extent(16384) for _ in "mnk")
    nt = d.yes()
    a, b = d.matrix(m, k), d.matrix(*((n, k) if nt else (k, n)))
    label = f"{m}x{n}x{k} {'nt' if nt else 'nn'}{' padded' if a.stride(0) > k or b.stride(0) > b.shape[1] else ''}"
    return Problem(label, ops.gemm, (a, b), lambda: d.torch.matmul(a, b.T if nt else b), {"trans_b": nt})


def matvec(d: Draw) -> Problem:
    n, k = d.extent(1 << 17), d.extent(1 << 15)
    x, w = d.array(k), d.array(n, k)
    return Problem(f"{n}x{k}", ops.matvec, (x, w), lambda: d.torch.mv(w, x))


def rows(d: Draw) -> tuple[int, int]:
    """Of a matrix of at most 2^27 elements."""
    columns = d.extent(1 << 17, 16)
    return d.extent(max(1, min(1 << 17, (1 << 27) // columns))), columns


def softmax(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c)
    return Problem(f"{r}x{c}", ops.softmax, (x,), lambda: d.torch.softmax(x, -1))


def rms_norm(d: Draw) -> Problem:
    r, c = rows(d)
    x, w = d.array(r, c), d.array(c)
    call = d.torch.nn.functional.rms_norm
    return Problem(f"{r}x{c}", ops.rms_norm, (x, w), lambda: call(x, (c,), w, 1e-6), {"eps": 1e-6})


def layer_norm(d: Draw) -> Problem:
    r, c = rows(d)
    x, w, b = d.array(r, c), d.array(c), d.array(c)
    call = d.torch.nn.functional.layer_norm
    return Problem(f"{r}x{c}", ops.layer_norm, (x, w, b), lambda: call(x, (c,), w, b, 1e-5), {"eps": 1e-5})


def transpose(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c)
    copied = d.torch.contiguous_format  # of a single row or column contiguous() would copy nothing
    return Problem(f"{r}x{c}", ops.transpose, (x,), lambda: x.T.clone(memory_format=copied))


def scan(d: Draw) -> Problem:
    r, c = rows(d)
    x = d.array(r, c).abs()
    return Problem(f"{r}x{c}", ops.scan, (x,), lambda: x.cumsum(-1))


def heads_of(d: Draw, most: int) -> tuple[int, int, int, int]:
    """Batch, heads, length and dim, of at most so many elements."""
    dim, length, heads = int(d.rng.choice((64, 128))), d.extent(8192, 16), d.extent(32)
    return d.extent(max(1, min(64, most // (length * heads * dim)))), heads, length, dim


def attention(d: Draw) -> Problem:
    """Self-attention, so that PyTorch's mask is ours."""
    batch, heads, length, dim = heads_of(d, 1 << 25)
    causal = d.yes()
    q, k, v = (d.array(batch, heads, length, dim) for _ in "qkv")
    call = d.torch.nn.functional.scaled_dot_product_attention
    label = f"b{batch} h{heads} s{length} d{dim}{' causal' if causal else ''}"
    return Problem(label, ops.attention, (q, k, v), lambda: call(q, k, v, is_causal=causal), {"causal": causal})


def conv2d(d: Draw) -> Problem:
    taps, stride = int(d.rng.choice((1, 3, 5))), int(d.rng.choice((1, 1, 2)))
    extent, channels, filters = d.extent(128, 7), d.extent(512, 8), d.extent(512, 8)
    images = d.extent(max(1, min(64, (1 << 26) // (extent * extent * max(channels, filters)))))
    x, f = d.array(images, extent, extent, channels), d.array(filters, taps, taps, channels)
    named, pad = (x.permute(0, 3, 1, 2), f.permute(0, 3, 1, 2)), taps // 2
    call = d.torch.nn.functional.conv2d
    return Problem(
        f"n{images} c{channels} {extent}x{extent} k{filters} {taps}x{taps} stride {stride}",
        ops.conv2d,
        (x, f),
        lambda: call(*named, stride=stride, padding=pad).permute(0, 2, 3, 1),
        {"stride": stride, "padding": pad},
    )


def product_fp8(d: Draw) -> Problem:
    """Extents n and k are multiples of 16, which cuBLASLt asks for."""
    m, n, k = d.extent(16384), *(16 * d.extent(1024) for _ in "nk")
    a, b = (d.array(rows, k).to(d.torch.float8_e4m3fn) for rows in (m, n))
    a_scale, b_scale = (d.floats(rows).abs() for rows in (m, n))
    scales = {"scale_a": a_scale[:, None], "scale_b": b_scale[None, :]}
    call = partial(d.torch._scaled_mm, a, b.t(), **scales, out_dtype=d.torch.bfloat16, use_fast_accum=False)
    bits = (x.view(d.torch.uint8) for x in (a, b))
    return Problem(f"{m}x{n}x{k}", ops.gemm_fp8, (*bits, a_scale, b_scale), call)


def vector_add(d: Draw) -> Problem:
    n = d.extent(1 << 27)
    a, b = d.array(n), d.array(n)
    return Problem(str(n), ops.vector_add, (a, b), lambda: a + b)


def reduce(d: Draw) -> Problem:
    """The sum or the maximum of rows, of columns, or of all."""
    r, c = rows(d)
    op, over = str(d.rng.choice(("sum", "max"))), str(d.rng.choice(("columns", "rows", "all")))
    x = d.array(r, c).abs()  # sums about 0 would be nothing but rounding
    axes = {"columns": (1,), "rows": (0,), "all": (0, 1)}[over]
    call = partial(d.torch.sum if op == "sum" else d.torch.amax, x, axes)
    return Problem(
        f"{op} of {r}x{c} over {over}", ops.reduce, (x,), lambda: call().reshape(-1), {"op": op, "over": over}
    )


def residual_rms_norm(d: Draw) -> Problem:
    r, c = rows(d)
    x, residual, w = d.array(r, c), d.array(r, c), d.array(c)

    def theirs() -> Any:
        s = x + residual
        return d.torch.nn.functional.rms_norm(s, (c,), w, 1e-6), s

    return Problem(f"{r}x{c}", ops.residual_rms_norm, (x, residual, w), theirs, {"eps": 1e-6})


def cross_entropy(d: Draw) -> Problem:
    r, c = rows(d)
    labels = d.given(d.rng.integers(0, c, r).astype(np.int32))
    return beside("PyTorch", f"{r}x{c}", ops.cross_entropy, {"x": d.array(r, c), "labels": labels})


def softmax_backward(d: Draw) -> Problem:
    r, c = rows(d)
    arrays = {"y": d.array(r, c).abs() / c, "dy": d.array(r, c)}
    return beside("PyTorch", f"{r}x{c}", ops.softmax_backward, arrays)


def norm_backward(function: Any, d: Draw) -> Problem:
    r, c = rows(d)
    arrays = {"x": d.array(r, c), "w": d.array(c), "dy": d.array(r, c)}
    return beside("PyTorch autograd", f"{r}x{c}", function, arrays, {"eps": 1e-5})


def rotary(d: Draw) -> Problem:
    batch, heads, length, dim = heads_of(d, 1 << 26)
    angles = d.rng.uniform(0, 2 * np.pi, (length, dim // 2)).astype(np.float32)
    cos, sin = (d.given(f(angles)).to(d.dtype) for f in (np.cos, np.sin))
    arrays = {"x": d.array(batch, heads, length, dim), "cos": cos, "sin": sin}
    return beside("Liger", f"b{batch} h{heads} s{length} d{dim}", ops.rotary, arrays)


def attention_backward(d: Draw) -> Problem:
    batch, heads, length, dim = heads_of(d, 1 << 25)
    options = {"causal": d.yes()}
    q, k, v, do = (d.array(batch, heads, length, dim) for _ in range(4))
    o, lse = ops.attention(q, k, v, **options)
    label = f"b{batch} h{heads} s{length} d{dim}{' causal' if options['causal'] else ''}"
    arrays = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do}
    return beside("cuDNN", label, ops.attention_backward, arrays, options)


def attention_varlen(d: Draw) -> Problem:
    """Self-attention of up to 64 sequences."""
    dim, heads, causal = int(d.rng.choice((64, 128))), d.extent(32), d.yes()
    lengths = [d.extent(4096) for _ in range(d.extent(64))]
    offsets = d.given(np.cumsum([0, *lengths]).astype(np.int32))
    q, k, v = (d.array(sum(lengths), heads, dim) for _ in "qkv")
    sizes = (max(lengths), max(lengths), 0.0, causal, False)
    call = partial(d.torch.ops.aten._flash_attention_forward, q, k, v, offsets, offsets, *sizes, scale=dim**-0.5)
    label = f"{len(lengths)} of {min(lengths)} to {max(lengths)}, h{heads} d{dim}{' causal' if causal else ''}"
    return Problem(label, ops.attention_varlen, (q, k, v, offsets, offsets), lambda: call()[:2], {"causal": causal})


def ssd(d: Draw) -> Problem:
    """Heads that do not share b and c: the library takes no others."""
    headdim, dstate = (int(d.rng.choice((64, 128))) for _ in "hd")
    length, heads = d.extent(16384, 16), d.extent(64)
    batch = d.extent(max(1, min(32, (1 << 25) // (length * heads * max(headdim, dstate)))))
    arrays = {
        "x": d.array(batch, length, heads, headdim),
        "log_a": -d.floats(batch, length, heads).abs() / 8,
        "b": d.array(batch, length, heads, dstate) / dstate**0.5,
        "c": d.array(batch, length, heads, dstate),
        "h0": d.floats(batch, heads, dstate, headdim),
    }
    label = f"b{batch} h{heads} s{length} headdim {headdim} dstate {dstate}"
    return beside("flash-linear-attention", label, ops.ssd, arrays)


def fft_conv(d: Draw) -> Problem:
    """The spectrum of the filter is there before the call, of both."""
    length, causal = d.extent(32768, 256), d.yes()
    channels = d.extent(max(1, min(2048, (1 << 22) // length)))
    batch = d.extent(max(1, min(64, (1 << 26) // (length * channels))))
    filters = d.floats(channels, length) / length**0.5
    found = ops.fft_conv_filter(filters, causal=causal)
    arrays = {"u": d.array(batch, channels, length), **found._asdict()}
    label = f"b{batch} c{channels} n{length}{' causal' if causal else ''}"
    return beside("torch.fft", label, ops.fft_conv, arrays, {"causal": causal})


KINDS: dict[str, tuple[Callable[[Draw], Problem], str, str]] = {
    "gemm-bf16": (product, "bfloat16", "cuBLAS"),
    "gemm-fp16": (product, "float16", "cuBLAS"),
    "gemm-fp32": (product, "float32", "cuBLAS, without TF32"),
    "matvec-bf16": (matvec, "bfloat16", "cuBLAS"),
    "matvec-fp32": (matvec, "float32", "cuBLAS"),
    "softmax": (softmax, "bfloat16", "PyTorch"),
    "rms_norm": (rms_norm, "bfloat16", "PyTorch"),
    "layer_norm": (layer_norm, "bfloat16", "PyTorch"),
    "transpose": (transpose, "bfloat16", "PyTorch"),
    "scan": (scan, "float32", "CUB"),
    "attention": (attention, "bfloat16", "PyTorch's choice of cuDNN and FlashAttention-2"),
    "conv2d": (conv2d, "bfloat16", "cuDNN"),
    "gemm_fp8": (product_fp8, "bfloat16", "cuBLASLt, with sums promoted to fp32"),
    "vector_add": (vector_add, "float32", "PyTorch"),
    "reduce": (reduce, "bfloat16", "PyTorch"),
    "residual_rms_norm": (residual_rms_norm, "bfloat16", "PyTorch"),
    "cross_entropy": (cross_entropy, "bfloat16", "PyTorch"),
    "rotary": (rotary, "bfloat16", "Liger"),
    "softmax_backward": (softmax_backward, "bfloat16", "PyTorch"),
    "rms_norm_backward": (partial(norm_backward, ops.rms_norm_backward), "bfloat16", "PyTorch's autograd"),
    "layer_norm_backward": (partial(norm_backward, ops.layer_norm_backward), "bfloat16", "PyTorch's autograd"),
    "attention_backward": (attention_backward, "bfloat16", "cuDNN"),
    "attention_varlen": (attention_varlen, "bfloat16", "FlashAttention-2"),
    "ssd": (ssd, "bfloat16", "flash-linear-attention"),
    "fft_conv": (fft_conv, "bfloat16", "torch.fft"),
}
"""Of every kind of problem what draws it, the type of its arrays, and the library behind PyTorch's call."""


def drawer(name: str, seed: int) -> Callable[[], Problem]:
    """What draws problems of a kind, one after the other, the same ones of a seed."""
    import torch

    draw, dtype, _ = KINDS[name]
    given = Draw(np.random.default_rng((seed, list(KINDS).index(name))), torch, dtype)
    return lambda: draw(given)
