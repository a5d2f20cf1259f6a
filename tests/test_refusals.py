"""Calls of operations with arrays that they do not take: each is answered with what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from workbench import ops

BF16, FP16, FP32, FP64 = np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
BYTES, INT32 = np.dtype("u1"), np.dtype("i4")

Shape = tuple[int, ...]
Upload = Callable[..., Any]
"""Makes an array of zeros on a GPU: of a shape, and of bf16 where no type is given."""


def _of(g: Upload, operation: Any, *shapes: Shape, dtype: Any = FP32, **options: Any) -> Any:
    return operation(*(g(shape, dtype) for shape in shapes), **options)


def _heads(g: Upload, *shapes: Shape, **options: Any) -> Any:
    return _of(g, ops.attention, *shapes, dtype=BF16, **options)


def _fp8(g: Upload, **changed: Any) -> Any:
    arrays = {"a": g((2, 3), BYTES), "b": g((4, 3), BYTES), "a_scale": g((2,), FP32), "b_scale": g((4,), FP32)}
    return ops.gemm_fp8(**arrays | changed)


def _backward(g: Upload, **changed: Shape) -> Any:
    shapes = dict.fromkeys(("q", "k", "v", "o", "lse", "do"), (1, 2, 4, 8)) | {"lse": (1, 2, 4)} | changed
    return ops.attention_backward(*(g(shape, FP32 if name == "lse" else BF16) for name, shape in shapes.items()))


def _varlen(g: Upload, **changed: Any) -> Any:
    arrays = {name: g((4, 2, 8)) for name in "qkv"} | {f"offsets_{name}": g((3,), INT32) for name in "qk"}
    return ops.attention_varlen(*(arrays | changed).values())


def _conv2d(g: Upload, x: Shape = (1, 4, 4, 6), f: Shape = (4, 3, 3, 6), *bias: int, **options: Any) -> Any:
    return ops.conv2d(g(x), g(f), *map(g, bias), **options)


def _ssd(g: Upload, x: Shape, log_a: Shape, b: Shape, c: Shape) -> Any:
    return ops.ssd(g(x), g(log_a, FP32), g(b), g(c))


VALUES: list[tuple[Callable[[Upload], Any], str]] = [
    (lambda g: _of(g, ops.gemm, (2, 3), (2, 3)), r"it has to be \(3, n\)"),
    (lambda g: ops.gemm(g((4, 6), FP32)[::2, ::2], g((3, 2), FP32)), "a has strides .*ascontiguousarray"),
    (lambda g: _of(g, ops.gemm, (3,), (3, 2)), "two dimensions"),
    (lambda g: _of(g, ops.gemm, (0, 3), (3, 2)), "at least one element"),
    (lambda g: _of(g, ops.gemm, (2, 3), (3, 2), (3,)), r"c has shape \(3,\); it has to be \(2,\) or \(2, 2\)"),
    (lambda g: _of(g, ops.gemm, (2, 3), (3, 2), (4, 2, 2)), "of matrices alone it has two dimensions"),
    (lambda g: _of(g, ops.gemm, (2, 2, 3), (3, 3, 2)), "the batches have a 2, b 3 matrices"),
    (lambda g: _of(g, ops.gemm, (2, 2, 2, 3), (3, 2)), "or a batch three"),
    (lambda g: _of(g, ops.gemm, (2, 3), (3, 2), activation="tanh"), "none, relu, gelu, silu"),
    (lambda g: _of(g, ops.matvec, (4,), (2, 3)), r"\(k,\) and \(n, k\)"),
    (lambda g: ops.vector_add(g((8,), FP32)[::2], g((4,), FP32)), "not contiguous"),
    (lambda g: _fp8(g, b=g((4, 5), BYTES)), r"\(m, k\) and \(n, k\)"),
    (lambda g: _fp8(g, b_scale=g((2,), FP32)), r"has to be \(4,\), a scale a row"),
    (lambda g: _of(g, ops.rms_norm, (4, 6), (5,)), r"w has shape \(5,\); for x \(4, 6\) it has to be \(6,\)"),
    (lambda g: _of(g, ops.residual_rms_norm, (4, 6), (3, 6), (6,)), "they have to be the same"),
    (lambda g: ops.softmax_backward(g((4, 6), FP32), g((4, 8), FP32)[:, :6]), "rows are y 6, dy 8 elements apart"),
    (lambda g: _of(g, ops.reduce, (4, 6), over="both"), "over is 'both'; it has to be one of columns, rows, all"),
    (lambda g: _of(g, ops.rotary, (4, 6), (4, 6), (4, 6)), "four dimensions, the last one even"),
    (lambda g: _heads(g, (1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "the heads of k have to divide those of q"),
    (lambda g: _heads(g, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 5, 8)), "they have to have the same"),
    (lambda g: _heads(g, *((1, 2, 4, 300),) * 3), "dim at most 256"),
    (lambda g: _heads(g, *((2, 4, 8),) * 3), "it has to have four dimensions"),
    (lambda g: _heads(g, *((1, 2, 4, 8),) * 3, scale=-1.0), "it has to be positive"),
    (lambda g: _heads(g, *((1, 2, 4, 8),) * 3, layout="sbhd"), "it has to be bhsd or bshd"),
    (lambda g: _backward(g, o=(1, 2, 4, 16)), r"attention_backward: o has shape \(1, 2, 4, 16\)"),
    (lambda g: _backward(g, do=(1, 2, 5, 8)), "it has to have the shape of q"),
    (lambda g: _backward(g, lse=(1, 4, 2)), r"lse has shape \(1, 4, 2\); it has to have \(1, 2, 4\)"),
    (lambda g: _backward(g, k=(1, 3, 4, 8), v=(1, 3, 4, 8)), "attention_backward: q has shape"),
    (lambda g: _varlen(g, q=g((4, 3, 8))), "the heads of k have to divide those of q"),
    (lambda g: _varlen(g, v=g((5, 2, 8))), "they have to have the same"),
    (lambda g: _varlen(g, q=g((1, 4, 2, 8))), "it has to have three dimensions"),
    (lambda g: _varlen(g, offsets_k=g((4,), INT32)), "to have one element more than there are sequences"),
    (lambda g: _conv2d(g, groups=2), "a filter has to have the channels of one group"),
    (lambda g: _conv2d(g, f=(5, 3, 3, 3), groups=2), "has to divide both"),
    (lambda g: _conv2d(g, (4, 4, 6)), "it has to have four dimensions"),
    (lambda g: _conv2d(g, (1, 4, 4, 6), (4, 3, 3, 6), 5), r"for 4 filters it has to be \(4,\)"),
    (lambda g: _conv2d(g, stride=(1, 1, 1)), "it has to be a number, or two"),
    (lambda g: _conv2d(g, stride=0), "conv2d: stride_y is 0"),
    (lambda g: _conv2d(g, (1, 2, 2, 6)), "are larger than the image"),
    (lambda g: _conv2d(g, activation="elu"), "it has to be none, relu or gelu"),
    (lambda g: _conv2d(g, layout="nwhc"), "it has to be nhwc or nchw"),
    (
        lambda g: ops.fft_conv(g((2, 3, 8)), g((2, 8), FP32)),
        r"to be \(batch, channels, length\) and \(channels, length\)",
    ),
    (
        lambda g: ops.fft_conv(g((2, 3, 8)), g((3, 9), FP32)),
        r"to be \(batch, channels, length\) and \(channels, length\)",
    ),
    (lambda g: ops.fft_conv(g((1, 1, 40000)), g((1, 40000), FP32)), "length at most 32768"),
    (lambda g: ops.fft_conv(g((3, 8)), g((8,), FP32)), r"k has shape \(8,\)"),
    (lambda g: _ssd(g, (1, 3, 4, 8), (1, 3, 4), (1, 3, 3, 8), (1, 3, 3, 8)), "groups that divide its heads"),
    (lambda g: _ssd(g, (1, 3, 4, 8), (1, 3, 4), (1, 3, 4, 8), (1, 3, 4, 9)), "b and c have to have the same"),
    (lambda g: _ssd(g, (1, 3, 4, 8), (1, 4, 3), (1, 3, 4, 8), (1, 3, 4, 8)), r"it has to be \(1, 3, 4\)"),
    (lambda g: _ssd(g, (1, 3, 4, 200), (1, 3, 4), (1, 3, 4, 8), (1, 3, 4, 8)), "the last at most 128"),
]
TYPES: list[tuple[Callable[[Upload], Any], str]] = [
    (lambda g: ops.gemm(g((2, 3), FP32), g((3, 2), FP16)), "have to have the same"),
    (lambda g: _of(g, ops.gemm, (2, 3), (3, 2), dtype=FP64), "dtype float64"),
    (lambda g: _of(g, ops.gemm, (2, 3), (3, 2), dtype=FP16, out_dtype="f8"), "out_dtype"),
    (lambda g: _fp8(g, a=g((2, 3), FP16)), "a has dtype float16; it has to be uint8"),
    (lambda g: _fp8(g, a_scale=g((2,), FP64)), "a_scale has dtype float64; it has to be float32"),
    (lambda g: _fp8(g, out_dtype="f2"), "bfloat16 or float32"),
    (lambda g: _of(g, ops.cross_entropy, (4, 6), (4,)), "labels has dtype float32; it has to be int32"),
    (lambda g: _of(g, ops.softmax, (4, 6), out_dtype=np.float16), "out_dtype is"),
    (lambda g: _varlen(g, offsets_q=g((3,), np.int64)), "offsets_q has dtype int64; it has to be int32"),
]


def test_arrays_that_an_operation_does_not_take_are_refused(place: Any) -> None:
    def upload(shape: Shape, dtype: Any = BF16) -> Any:
        return place.upload(np.zeros(shape, dtype))

    for error, refused in ((ValueError, VALUES), (TypeError, TYPES)):
        for call, says in refused:
            with pytest.raises(error, match=says):
                call(upload)
