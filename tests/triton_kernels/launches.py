"""Launches of the kernels on small problems, with the references that they are compared with."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import product_kernels as product
import row_kernels as row
from triton.tools.tensor_descriptor import TensorDescriptor

from workbench.triton import Output

RNG = np.random.default_rng(0)
REFERENCES = {
    "add": row.add_reference,
    "softmax": row.softmax_reference,
    "layer_norm": row.layer_norm_reference,
    "layer_norm_backward": row.layer_norm_backward_reference,
    "dropout": row.dropout_reference,
    "scan": row.scan_reference,
    "matmul": product.matmul_reference,
    "matmul_host_descriptors": product.transposed_reference,
    "matmul_device_descriptors": product.transposed_reference,
    "matmul_persistent": product.transposed_reference,
    "matmul_fp8": product.fp8_reference,
    "matmul_split_k": product.matmul_reference,
    "attention": product.attention_reference,
}


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


def output(*shape: int, dtype: Any = np.float32) -> Output:
    return Output(np.zeros(shape, dtype))


def add() -> None:
    row.add[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](values(1000), values(1000), output(1000), 1000, BLOCK=256)


def softmax() -> None:
    row.softmax[(5,)](values(5, 200), output(5, 200), 200, 200, 200, BLOCK=256)


def layer_norm() -> None:
    arguments = values(7, 200), values(200), values(200), output(7, 200), output(7), output(7)
    row.layer_norm[(7,)](*arguments, 200, 200, 1e-5, BLOCK=128)


def layer_norm_backward() -> None:
    x, weight, grad = values(7, 200), values(200), values(7, 200)
    results = output(7, 200), output(2, 200), output(2, 200)
    locks = np.zeros(4, np.int32)
    given = x, weight, grad, x.mean(1), 1 / x.std(1), *results, locks, 200, 200
    row.layer_norm_backward[(7,)](*given, GROUPS=2, BLOCK=256)


def dropout() -> None:
    row.dropout[(4,)](values(1000), output(1000), output(1000), 1000, 0.25, 17, BLOCK=256)


def scan() -> None:
    factors = RNG.uniform(0.5, 1, (3, 100)).astype(np.float32)
    row.scan[(3,)](factors, values(3, 100), output(3, 100), 100, BLOCK=128)


def matmul(dtype: Any = np.float16) -> None:
    a, b, c = values(100, 72, dtype=dtype), values(72, 96, dtype=dtype), output(100, 96)
    product.matmul[(4,)](a, b, c, 100, 96, 72, 72, 96, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP=8)


def transposed() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return values(100, 96, dtype=np.float16), values(72, 96, dtype=np.float16), np.zeros((100, 72), np.float16)


def matmul_host_descriptors() -> None:
    a, b, c = transposed()
    boxes = ((a, [64, 32]), (b, [64, 32]), (c, [64, 64]))
    given = (TensorDescriptor.from_tensor(array, box) for array, box in boxes)
    product.matmul_host_descriptors[(2, 2)](*given, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)


def matmul_device_descriptors() -> None:
    product.matmul_device_descriptors[(2, 2)](*transposed(), 100, 72, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)


def matmul_persistent() -> None:
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    a, b, _ = transposed()
    product.matmul_persistent[(3,)](a, b, output(100, 72), 100, 72, 96, **tile, PROGRAMS=3, FLATTEN=True)


def matmul_fp8() -> None:
    a, b = (values(rows, 128, dtype=ml_dtypes.float8_e4m3fn) for rows in (100, 72))
    scale = np.array([0.5], np.float32)
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    product.matmul_fp8[(2, 2)](a, b, output(100, 72), scale, 100, 72, 128, **tile)


def matmul_split_k() -> None:
    a, b = values(64, 200, dtype=np.float16), values(200, 72, dtype=np.float16)
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    product.matmul_split_k[(2, 3)](a, b, np.zeros((64, 72), np.float32), 64, 72, 200, **tile, SPLIT=3)


def attention(causal: bool = True) -> None:
    q, k, v = (values(2, 100, 64, dtype=np.float16) for _ in range(3))
    out = output(2, 100, 64, dtype=np.float16)
    product.attention[(2, 2)](q, k, v, out, 0.125, 100, 100, CAUSAL=causal, DIM=64, BLOCK_M=64, BLOCK_N=32)
