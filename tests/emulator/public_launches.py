"""Kernels that are written everywhere, launched on data of any size and compared with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import public_kernels
from public_plants import PLANTS, Change

from workbench.emulator import Output, Program, Report, TensorMapOf, launch, load

FEW, SOME, MANY = range(3), range(5), range(10)
"""Seeds: for each of several sizes, for every planted fault, and for a correct kernel at one of its sizes."""


def headers() -> list[Path]:
    """The folder with ``nv/target``, which ``cooperative_groups.h`` wants; CuPy has it."""
    spec = find_spec("cupy")
    assert spec.origin is not None
    return [Path(spec.origin).parent / "_core/include/cupy/_cccl/libcudacxx"]


@cache
def changed(source: str, change: Change | None) -> str:
    if change is None:
        return source
    old, new = change
    assert source.count(old) == 1, f"{old!r} is in the source {source.count(old)} times"
    return source.replace(old, new)


@cache
def program(source: str, change: Change | None, **defines: str | int) -> Program:
    return load(changed(source, change), defines=defines)


@cache
def grouped() -> Program:
    """The kernels on cooperative groups, changed ones too, in one module: their headers take seconds to compile.

    Copies are numbered in the order of `copies_of_groups`: kernel ``filter_3`` lies in file ``copy_3.cu``.
    """
    head, copies = "", ""
    for number, (source, change) in enumerate(copies_of_groups()):
        text = changed(source, change)
        lines = text.splitlines()
        shared = [line for line in lines if line.startswith(("#include", "namespace cg"))]
        head += "".join(f"{line}\n" for line in shared if line not in head)
        rest = "\n".join("" if line in shared else line for line in lines)
        copies += f'#line 1 "copy_{number}.cu"\n' + re.sub(r"(filter|histogram)\(", rf"\1_{number}(", rest) + "\n"
    return load(head + copies, include=headers())


def copies_of_groups() -> list[tuple[str, Change | None]]:
    sources = {name: source for name, (_, source) in KERNELS.items() if "cooperative_groups" in source}
    plants = [(sources[plant.kernel], plant.change) for plant in PLANTS if plant.kernel in sources]
    return [*((source, None) for source in sources.values()), *plants]


def launch_groups(source: str, change: Change | None, entry: str, *args: Any, **options: Any) -> Report:
    number = copies_of_groups().index((source, change))
    return launch(grouped(), f"{entry}_{number}", *args, **options)


def judge(report: Report, change: Change | None, right: Callable[[], bool]) -> Report:
    """A correct kernel has no finding and the right result; of one with a fault only the report matters."""
    if change is None:
        assert report.ok, str(report)
        assert right()
    return report


def scan(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-99, 99, n, np.int32)
    y, blocks = np.empty_like(x), -(-n // 64)
    status, tickets = np.zeros(blocks + 2, np.uint64), np.zeros(1, np.int32)
    kernel = program(public_kernels.SCAN, change, BLOCK=64)
    arguments = {"x": x, "y": Output(y), "status": status, "tickets": tickets, "n": n}
    report = launch(kernel, "scan", blocks, 64, arguments, seed=seed, max_warp_instructions=200_000)
    return judge(report, change, lambda: np.array_equal(y, np.cumsum(x)))


def last_block(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-9, 9, n).astype(np.float32)
    partial, count, result = np.empty(5, np.float32), np.zeros(1, np.uint32), np.empty(1, np.float32)
    arguments = {"x": x, "partial": Output(partial), "count": count, "result": Output(result), "n": n}
    kernel = program(public_kernels.LAST_BLOCK, change)
    report = launch(kernel, "reduce", 5, 64, arguments, shared=256, seed=seed)
    return judge(report, change, lambda: result[0] == x.sum() and count[0] == 5)


def counted(source: str, bins: int, block: int, n: int, seed: int, change: Change | None) -> Report:
    x = np.random.default_rng(n).integers(0, bins, n, np.uint8)
    counts = np.zeros(bins, np.uint32)
    report = launch(program(source, change), "histogram", 3, block, {"x": x, "counts": counts, "n": n}, seed=seed)
    return judge(report, change, lambda: np.array_equal(counts, np.bincount(x, minlength=bins)))


def histogram(n: int, seed: int, change: Change | None = None) -> Report:
    return counted(public_kernels.HISTOGRAM, 256, 96, n, seed, change)


def softmax(n: int, seed: int, change: Change | None = None) -> Report:
    x = (10 * np.random.default_rng(n).standard_normal((3, n))).astype(np.float32)
    y = np.empty_like(x)
    kernel = program(public_kernels.SOFTMAX, change, INFINITY_="__int_as_float(0x7f800000)")
    report = launch(kernel, "softmax", 3, 96, {"x": x, "y": Output(y), "n": n}, seed=seed)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return judge(report, change, lambda: np.allclose(y, wide / wide.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-30))


def cluster(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-99, 99, n, np.int32)
    result = np.empty(1, np.int32)
    kernel = program(public_kernels.CLUSTER, change)
    report = launch(kernel, "reduce", 4, 64, {"x": x, "result": Output(result), "n": n}, cluster=4, seed=seed)
    return judge(report, change, lambda: result[0] == x.sum())


def split_k(n: int, seed: int, change: Change | None = None) -> Report:
    rng = np.random.default_rng(n)
    m, k = n % 7 + 1, 3 * n % 50 + 3
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c, grid = np.empty((m, n), np.float32), (-(-n // 8), -(-m // 8), 3)
    semaphores = np.zeros(grid[:2], np.int32)
    arguments = {"A": a, "B": b, "C": Output(c), "semaphores": semaphores, "M": m, "N": n, "K": k}
    kernel = program(public_kernels.SPLIT_K, change)
    report = launch(kernel, "gemm", grid, (8, 8), arguments, seed=seed, max_warp_instructions=200_000)
    return judge(report, change, lambda: np.array_equal(c, a @ b) and bool((semaphores == 3).all()))


def tiles(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.empty(-(-n // 8), np.float32)
    kernel = program(public_kernels.TILES, change)
    report = launch(kernel, "largest", 2, 64, {"x": x, "y": Output(y), "n": n}, seed=seed)
    wanted = np.pad(x, (0, -n % 8), constant_values=-np.inf).reshape(-1, 8).max(axis=1)
    return judge(report, change, lambda: np.array_equal(y, wanted))


def attention(n: int, seed: int, change: Change | None = None) -> Report:
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((n, 16)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o = np.empty((n, 16), np.float32)
    kernel = program(public_kernels.ATTENTION, change)
    arguments = {"Q": q, "K": k, "V": v, "O": Output(o), "n": n}
    report = launch(kernel, "attention", -(-n // 16), 32, arguments, seed=seed)
    wide = [array.astype(np.float64) for array in (q, k, v)]
    weights = np.exp(wide[0] @ wide[1].T / 4)
    weights /= weights.sum(axis=1, keepdims=True)
    # a weight is rounded to bf16, 2^-8 of it at most, before it multiplies V
    return judge(
        report, change, lambda: bool(np.all(np.abs(o - weights @ wide[2]) <= 2**-8 * (weights @ np.abs(wide[2]))))
    )


def groups(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-99, 99, n, np.int32)
    blocks = -(-n // 96)
    sums, passed, count = np.empty(blocks, np.int32), np.empty_like(x), np.zeros(1, np.int32)
    arguments = {"x": x, "sums": Output(sums), "passed": Output(passed), "count": count, "n": n}
    report = launch_groups(public_kernels.GROUPS, change, "filter", blocks, 96, arguments, seed=seed)
    wanted = np.pad(x, (0, -n % 96)).reshape(-1, 96).sum(axis=1)
    return judge(
        report,
        change,
        lambda: np.array_equal(sums, wanted) and np.array_equal(np.sort(passed[: count[0]]), np.sort(x[x > 0])),
    )


def cluster_groups(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(0, 64, n, np.int32)
    counts = np.empty(64, np.int32)
    arguments = {"x": x, "counts": Output(counts), "n": n}
    report = launch_groups(public_kernels.CLUSTER_GROUPS, change, "histogram", 2, 96, arguments, cluster=2, seed=seed)
    return judge(report, change, lambda: np.array_equal(counts, np.bincount(x, minlength=64)))


def specialised(n: int, seed: int, change: Change | None = None) -> Report:
    """Two persistent blocks; N is a multiple of 4, so that rows of C have a tensor map."""
    rng = np.random.default_rng(n)
    m, n, k = 2 * n % 130 + 1, 4 * n, 5 * n // 8 * 8 + 8
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    c = Output(np.empty((m, n), np.float32))
    maps = {
        "A": TensorMapOf(a, (64, 64), swizzle=128),
        "B": TensorMapOf(b, (32, 64), swizzle=128),
        "C": TensorMapOf(c, (64, 32)),
    }
    kernel = program(public_kernels.SPECIALISED, change)
    report = launch(kernel, "gemm", 2, 160, {**maps, "M": m, "N": n, "K": k}, seed=seed, max_warp_instructions=500_000)
    return judge(report, change, lambda: np.array_equal(c.array, a.astype(np.float32) @ b.astype(np.float32).T))


def hash_table(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(0, n, n, np.int32)
    keys, counts = np.full(n + 3, -1, np.int32), np.zeros(n + 3, np.int32)
    kernel = program(public_kernels.HASH_TABLE, change)
    arguments = {"x": x, "n": n, "keys": keys, "counts": counts, "capacity": n + 3}
    report = launch(kernel, "insert", -(-n // 64), 64, arguments, seed=seed, max_warp_instructions=200_000)
    wanted = dict(zip(*np.unique(x, return_counts=True), strict=True))
    return judge(report, change, lambda: dict(zip(keys[keys >= 0], counts[keys >= 0], strict=True)) == wanted)


def radix_sort(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(0, 2**32, n, np.uint32)
    wanted = np.sort(x)
    kernel = program(public_kernels.RADIX_SORT, change)
    arguments = {"x": x, "other": Output(np.empty_like(x)), "n": n}
    report = launch(kernel, "sort", 1, 128, arguments, seed=seed)
    return judge(report, change, lambda: np.array_equal(x, wanted))


def turns(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-9, 9, n).astype(np.float32)
    sums, lock = np.zeros(32, np.float32), np.zeros(2, np.uint32)
    kernel = program(public_kernels.TURNS, change)
    arguments = {"x": x, "sums": sums, "lock": lock, "n": n}
    report = launch(kernel, "add", 5, 32, arguments, seed=seed, max_warp_instructions=500_000)
    parts = np.pad(x, (0, -n % 160)).reshape(-1, 5, 32).sum(axis=0)

    def right() -> bool:  # for one of the orders
        orders = np.array(list(permutations(range(5))))
        weights = np.float32(0.5) ** np.arange(4, -1, -1, dtype=np.float32)
        return bool((np.tensordot(weights, parts[orders], (0, 1)) == sums).all(axis=1).any())

    return judge(report, change, right)


def ring(n: int, seed: int, change: Change | None = None) -> Report:
    x = np.random.default_rng(n).integers(-9, 9, (8, 32)).astype(np.int32)
    y, rounds = np.empty_like(x), n % 7
    kernel = program(public_kernels.RING, change)
    arguments = {"x": x, "y": Output(y), "rounds": rounds}
    report = launch(kernel, "pass", 8, 32, arguments, cluster=4, seed=seed, max_warp_instructions=200_000)
    wanted = np.roll(x.reshape(2, 4, 32), rounds, axis=1) + rounds
    return judge(report, change, lambda: np.array_equal(y.reshape(2, 4, 32), wanted))


def bulk_histogram(n: int, seed: int, change: Change | None = None) -> Report:
    return counted(public_kernels.BULK_HISTOGRAM, 64, 64, n, seed, change)


KERNELS = {
    "scan": (scan, public_kernels.SCAN),
    "last_block": (last_block, public_kernels.LAST_BLOCK),
    "histogram": (histogram, public_kernels.HISTOGRAM),
    "softmax": (softmax, public_kernels.SOFTMAX),
    "cluster": (cluster, public_kernels.CLUSTER),
    "split_k": (split_k, public_kernels.SPLIT_K),
    "tiles": (tiles, public_kernels.TILES),
    "attention": (attention, public_kernels.ATTENTION),
    "groups": (groups, public_kernels.GROUPS),
    "cluster_groups": (cluster_groups, public_kernels.CLUSTER_GROUPS),
    "specialised": (specialised, public_kernels.SPECIALISED),
    "hash_table": (hash_table, public_kernels.HASH_TABLE),
    "radix_sort": (radix_sort, public_kernels.RADIX_SORT),
    "turns": (turns, public_kernels.TURNS),
    "ring": (ring, public_kernels.RING),
    "bulk_histogram": (bulk_histogram, public_kernels.BULK_HISTOGRAM),
}
LARGEST = {"attention": 83, "split_k": 83, "specialised": 65}
