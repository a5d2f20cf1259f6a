"""Kernels for TileLang, with what they store; two have a fault."""

import re
import subprocess
from pathlib import Path

import numpy as np
import nvidia
import tilelang
import tilelang.language as T  # noqa: N812
from tilelang import tvm

from workbench.emulator import launch, load

X, Y = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float32)
ROWS, F32 = 16, "float32"
_TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})


def by_elements(body):
    """A kernel that makes each element by ``body`` of the arrays and its indices."""

    def made(name):
        @T.prim_func
        def kernel(x: T.Tensor((64, 64), F32), y: T.Tensor((64, 64), F32), out: T.Tensor((64, 64), F32)):
            with T.Kernel(4, threads=128) as b:
                for i, j in T.Parallel(ROWS, 64):
                    out[b * ROWS + i, j] = body(x, y, b * ROWS + i, j)

        return kernel.with_attr("global_symbol", name)

    return made


def by_rows(body):
    """A kernel whose blocks have 16 rows of x in registers, which the macro ``body`` changes."""

    def made(name):
        @T.prim_func
        def kernel(x: T.Tensor((64, 64), F32), y: T.Tensor((64, 64), F32), out: T.Tensor((64, 64), F32)):
            with T.Kernel(4, threads=128) as b:
                a, c = T.alloc_fragment((ROWS, 64), F32), T.alloc_fragment((ROWS,), F32)
                T.copy(x[b * ROWS, 0], a)
                body(a, c)
                T.copy(a, out[b * ROWS, 0])

        return kernel.with_attr("global_symbol", name)

    return made


@T.macro
def softmax(a, c):
    T.reduce_max(a, c, dim=1)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = T.exp(a[i, j] - c[i])
    T.reduce_sum(a, c, dim=1)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = a[i, j] / c[i]


@T.macro
def normalised(a, c):
    squares = T.alloc_fragment((ROWS, 64), F32)
    for i, j in T.Parallel(ROWS, 64):
        squares[i, j] = a[i, j] * a[i, j]
    T.reduce_sum(squares, c, dim=1)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = a[i, j] * T.rsqrt(c[i] / 64 + 1e-5)


@T.macro
def largest(a, c):
    T.reduce_max(a, c, dim=1)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = c[i]


@T.macro
def absolute(a, c):
    T.reduce_abssum(a, c, dim=1)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = a[i, j] / c[i]


@T.macro
def looped(a, c):
    T.fill(c, 0)
    for _ in T.serial(5):
        for i in T.Parallel(ROWS):
            c[i] = c[i] * 0.5 + 1
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = a[i, j] * c[i]


@T.macro
def through_shared(a, c):
    part = T.alloc_shared((ROWS, 64), F32)
    T.copy(a, part)
    for i, j in T.Parallel(ROWS, 64):
        a[i, j] = part[ROWS - 1 - i, 63 - j]


@T.macro
def summed_so_far(a, c):
    part = T.alloc_shared((ROWS, 64), F32)
    T.copy(a, part)
    T.cumsum(part, dim=1)
    T.copy(part, a)


def product(dtype, transposed, stages):
    """A tile of a product, by cp.async where there are stages, and mma."""

    def made(name):
        @T.prim_func
        def kernel(x: T.Tensor((64, 64), dtype), y: T.Tensor((64, 64), dtype), out: T.Tensor((64, 64), F32)):
            with T.Kernel(2, 2, threads=128) as (b, c):
                left, right = (
                    T.alloc_shared((32, 16), dtype),
                    T.alloc_shared((32, 16) if transposed else (16, 32), dtype),
                )
                sums = T.alloc_fragment((32, 32), F32)
                T.clear(sums)
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(x[b * 32, k * 16], left)
                    if transposed:
                        T.copy(y[c * 32, k * 16], right)
                    else:
                        T.copy(y[k * 16, c * 32], right)
                    T.gemm(left, right, sums, transpose_B=transposed)
                T.copy(sums, out[b * 32, c * 32])

        return kernel.with_attr("global_symbol", name)

    return made


def total(name):
    @T.prim_func
    def kernel(x: T.Tensor((64, 64), F32), y: T.Tensor((64, 64), F32), out: T.Tensor((64, 64), F32)):
        with T.Kernel(4, threads=128) as b:
            for i, j in T.Parallel(ROWS, 64):
                T.atomic_add(out[0, j], x[b * ROWS + i, j])

    return kernel.with_attr("global_symbol", name)


def overwritten(name):
    @T.prim_func
    def kernel(x: T.Tensor((64, 64), F32), y: T.Tensor((64, 64), F32), out: T.Tensor((64, 64), F32)):
        with T.Kernel(4, threads=128) as b:
            for i, j in T.Parallel(ROWS, 64):
                out[i, j] = x[b * ROWS + i, j]

    return kernel.with_attr("global_symbol", name)


def _softmax(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _in_row_0(row):
    return np.vstack([row, np.zeros((63, 64))])


KERNELS = {
    "scaled": (by_elements(lambda x, y, i, j: x[i, j] * 2.0), lambda x, y: 2 * x),
    "added": (by_elements(lambda x, y, i, j: x[i, j] + y[i, j]), lambda x, y: x + y),
    "powers": (by_elements(lambda x, y, i, j: T.exp(x[i, j]) * y[i, j]), lambda x, y: np.exp(x) * y),
    "sines": (by_elements(lambda x, y, i, j: T.sin(x[i, j]) + T.tanh(y[i, j])), lambda x, y: np.sin(x) + np.tanh(y)),
    "chosen": (
        by_elements(lambda x, y, i, j: T.if_then_else(x[i, j] > 0, x[i, j], y[i, j])),
        lambda x, y: np.where(x > 0, x, y),
    ),
    "clipped": (by_elements(lambda x, y, i, j: T.clamp(x[i, j], -1.0, 1.0)), lambda x, y: np.clip(x, -1, 1)),
    "halves": (
        by_elements(lambda x, y, i, j: T.cast(T.cast(x[i, j], "float16"), F32)),
        lambda x, y: x.astype(np.float16).astype(np.float32),
    ),
    "integral": (
        by_elements(lambda x, y, i, j: T.cast(T.cast(x[i, j], "int32") * 3, F32)),
        lambda x, y: 3 * np.trunc(x),
    ),
    "transposed": (by_elements(lambda x, y, i, j: x[j, i]), lambda x, y: x.T),
    "neighbours": (
        by_elements(lambda x, y, i, j: T.if_then_else(j < 63, x[i, j + 1], 0.0)),
        lambda x, y: np.c_[x[:, 1:], np.zeros(64)],
    ),
    "softmax": (by_rows(softmax), lambda x, y: _softmax(x)),
    "normalised": (by_rows(normalised), lambda x, y: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)),
    "largest": (by_rows(largest), lambda x, y: np.tile(x.max(1, keepdims=True), (1, 64))),
    "absolute": (by_rows(absolute), lambda x, y: x / np.abs(x).sum(1, keepdims=True)),
    "looped": (by_rows(looped), lambda x, y: 1.9375 * x),
    "through_shared": (by_rows(through_shared), lambda x, y: x.reshape(4, 16, 64)[:, ::-1, ::-1].reshape(64, 64)),
    "summed_so_far": (by_rows(summed_so_far), lambda x, y: np.cumsum(x, axis=1)),
    "total": (total, lambda x, y: _in_row_0(x.sum(axis=0))),
    "product": (product("float16", False, 0), lambda x, y: x @ y),
    "product_transposed": (product("float16", True, 0), lambda x, y: x @ y.T),
    "product_pipelined": (product("float16", True, 2), lambda x, y: x @ y.T),
}
FAULTS = {"overwritten": "race", "unordered": "race"}


def sources():
    """Of each kernel the CUDA source, and that of one whose barriers are left out."""
    found = {}
    for name, (made, _) in {**KERNELS, "overwritten": (overwritten, None)}.items():
        with _TARGET:
            found[name] = tilelang.lower(made(name), target=_TARGET).kernel_source
    found["unordered"] = found["through_shared"].replace("through_shared", "unordered").replace("__syncthreads();", "")
    return found


def program(text, folder):
    """Kernels of a CUDA source, by nvcc, as NVRTC lacks what the headers of TileLang include."""
    roots, package = [Path(root) / "cu13" for root in nvidia.__path__], Path(tilelang.__file__).parent
    nvcc = next(root / "bin/nvcc" for root in roots if (root / "bin/nvcc").exists())
    headers = [package / "src", package / "3rdparty/cutlass/include"]
    headers += [
        root / "include" / more for root in roots for more in ("", "cccl") if (root / "include" / more).exists()
    ]
    (folder / "kernels.cu").write_text(text)
    options = ["-ptx", "-lineinfo", "-arch=sm_80", "-std=c++20", "-w", *(f"-I{path}" for path in headers)]
    subprocess.run([nvcc, *options, "kernels.cu", "-o", "kernels.ptx"], cwd=folder, check=True, capture_output=True)
    return load(folder / "kernels.ptx")


def run(loaded, name, source):
    """Its result and the report. Parameters are those that the kernel uses, in the order of their names."""
    dtype = np.float16 if name.startswith("product") else np.float32
    arrays = {"x": X.astype(dtype), "y": Y.astype(dtype), "out": np.zeros((64, 64), np.float32)}
    taken = re.findall(r"(\w+)[,)]", re.search(rf"\b{name}_kernel\((.*?\))", source)[1])
    grid = (2, 2) if name.startswith("product") else 4
    given = [arrays[each] for each in taken]
    return arrays["out"], launch(loaded, f"{name}_kernel", grid, 128, given, shared=16384)
