"""Kernels other than the catalogue's: right on odd sizes and under several seeds; faults planted in each are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import public_kernels
import pytest
from emulation import line_of

from workbench.emulator import FindingKind, Output, Program, Report, TensorMapOf, launch, load

Change = tuple[str, str]
"""A piece of a source, and what stands there instead."""

FEW, SOME, MANY = range(3), range(5), range(10)
"""Seeds: for each of several sizes, for every planted fault, and for a correct kernel at one of its sizes."""


def headers() -> list[Path]:
    """The folder with ``nv/target``, which ``cooperative_groups.h`` wants; CuPy has it."""
    spec = find_spec("cupy")
    assert spec is not None
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


@pytest.mark.parametrize("n", [1, 31, 65, 200, 997])
@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_has_the_right_result_and_no_finding(name: str, n: int) -> None:
    run, _ = KERNELS[name]
    for seed in MANY if n == 65 else FEW:
        run(min(n, LARGEST.get(name, n)), seed)


Kind = FindingKind


@dataclass(frozen=True)
class Plant:
    """A fault in one of the kernels: the change, what it may be called, and the lines that the finding has to name.

    A line is given by text that only it holds in the changed source; of several any will do. `array` is the array or
    variable that the finding is about.
    """

    kernel: str
    what: str
    old: str
    new: str
    kinds: tuple[FindingKind, ...]
    at: tuple[str, ...]
    array: str | None = None

    @property
    def change(self) -> Change:
        return self.old, self.new


HUNG = (Kind.LIVELOCK, Kind.DEADLOCK)
EARLY = (Kind.RACE, Kind.UNINITIALISED)  # which of them it is depends on who comes first
SYNC = "    __syncthreads();\n"

PLANTS = [
    Plant("scan", "looks ahead", "tile - 1;", "tile + 1;", HUNG, ("// poll",)),
    Plant("scan", "reads past the end", "i < n ? x[i]", "i <= n ? x[i]", (Kind.OUT_OF_BOUNDS,), ("? x[i]",), "x"),
    Plant(
        "scan",
        "no barrier after the reads",
        f"t - d] : 0;\n    {SYNC}",
        "t - d] : 0;\n",
        (Kind.RACE,),
        ("sums[t] += left",),
    ),
    Plant(
        "scan",
        "ticket read too early",
        f"// blocks start in any order\n{SYNC}",
        "\n",
        EARLY,
        ("int i = tile * BLOCK",),
        "tile",
    ),
    Plant(
        "scan",
        "plain store of a status",
        "atomicExch(&status[tile], 2ull << 32 | (unsigned)(sum + total))",
        "status[tile] = 2ull << 32 | (unsigned)(sum + total)",
        (Kind.RACE,),
        ("status[tile] = 2ull", "// poll"),
        "status",
    ),
    Plant(
        "last_block", "one too many", "i < gridDim.x; i", "i <= gridDim.x; i", (Kind.OUT_OF_BOUNDS,), ("i <= gridDim",)
    ),
    Plant(
        "last_block",
        "no fence before the count",
        "        __threadfence();\n        last",
        "        last",
        (Kind.RACE,),
        ("partial)[i]",),
        "partial",
    ),
    Plant(
        "last_block",
        "no barrier before the flag is read",
        f"{SYNC}    if (!last)",
        "    if (!last)",
        EARLY,
        ("if (!last) return;",),
        "last",
    ),
    Plant(
        "last_block",
        "no barrier in the reduction",
        f"    {SYNC}        if (threadIdx.x < d)",
        "        if (threadIdx.x < d)",
        EARLY,
        ("if (threadIdx.x < d)", "sums[threadIdx.x] = value"),
    ),
    Plant(
        "histogram",
        "one bin not zeroed",
        "b < 256; b += blockDim.x) bins",
        "b < 255; b += blockDim.x) bins",
        (Kind.UNINITIALISED,),
        ("// flush", "&bins[x[i]]"),
        "bins",
    ),
    Plant(
        "histogram",
        "no barrier after zeroing",
        f"bins[b] = 0;\n{SYNC}",
        "bins[b] = 0;\n",
        EARLY,
        ("&bins[x[i]]",),
        "bins",
    ),
    Plant("histogram", "no barrier before the flush", f"1u);\n{SYNC}", "1u);\n", EARLY, ("// flush",), "bins"),
    Plant(
        "histogram",
        "counts without atomics",
        "atomicAdd(&bins[x[i]], 1u)",
        "bins[x[i]]++",
        (Kind.RACE,),
        ("bins[x[i]]++",),
        "bins",
    ),
    Plant("histogram", "reads past the end", "i < n; i", "i <= n; i", (Kind.OUT_OF_BOUNDS,), ("i <= n",), "x"),
    Plant(
        "softmax",
        "one warp too many",
        "w < warps; ++w) most",
        "w <= warps; ++w) most",
        (Kind.UNINITIALISED,),
        ("w <= warps",),
        "maxima",
    ),
    Plant(
        "softmax",
        "no barrier",
        f"sums[warp] = sum;\n{SYNC}",
        "sums[warp] = sum;\n",
        EARLY,
        ("most = fmaxf(most, maxima[w])",),
    ),
    Plant(
        "softmax",
        "a mask of half a warp",
        "other = __shfl_xor_sync(~0u",
        "other = __shfl_xor_sync(0xffffu",
        (Kind.DIVERGENT_COLLECTIVE,),
        ("0xffffu",),
    ),
    Plant(
        "softmax",
        "writes a column too many",
        "i < n; i += blockDim.x) y",
        "i <= n; i += blockDim.x) y",
        (Kind.OUT_OF_BOUNDS, Kind.RACE),
        ("i <= n",),
        None,
    ),
    Plant(
        "cluster",
        "a block that does not exist",
        "rank < 4; ++rank",
        "rank <= 4; ++rank",
        (Kind.OUT_OF_BOUNDS,),
        ("ld.shared::cluster",),
    ),
    Plant(
        "cluster",
        "no cluster barrier before the reads",
        "mine);\n    sync_cluster();",
        "mine);",
        EARLY,
        ("ld.shared::cluster",),
    ),
    Plant(
        "cluster",
        "an exit while others still read",
        "    sync_cluster();  // nobody leaves while its sum is read\n",
        "",
        (Kind.EXITED_WITH_WORK,),
        ("ld.shared::cluster",),
    ),
    Plant(
        "cluster",
        "no barrier after zeroing",
        f"sum = 0;\n{SYNC}",
        "sum = 0;\n",
        EARLY,
        ("atomicAdd(&sum, mine)",),
        "sum",
    ),
    Plant(
        "split_k",
        "the semaphore never comes to two",
        "if (first) atomicExch(semaphore, blockIdx.z + 1);",
        "if (first && blockIdx.z == 0) atomicExch(semaphore, 2);",
        HUNG,
        ("// turn",),
    ),
    Plant(
        "split_k",
        "the others do not wait for their turn",
        f"    }}\n{SYNC}    if (inside) {{",
        "    }\n    if (inside) {",
        EARLY,
        ("*c + sum",),
        "C",
    ),
    Plant(
        "split_k",
        "the semaphore is released before the sums are there",
        f"    __threadfence();\n{SYNC}    if (first) atomicExch",
        "    if (first) atomicExch",
        EARLY,
        ("*c + sum",),
        "C",
    ),
    Plant("split_k", "k past the end", "min(K, k0 + part)", "k0 + part", (Kind.OUT_OF_BOUNDS,), ("sum += A[",)),
    Plant(
        "tiles",
        "lanes that leave",
        "        float value = i < n ? x[i] : -1e30f;\n",
        "        if (i >= n) return;\n        float value = x[i];\n",
        (Kind.DIVERGENT_COLLECTIVE, Kind.DEADLOCK),
        ("// shuffle",),
    ),
    Plant(
        "tiles",
        "the first tile's mask for all",
        " << threadIdx.x % 32 / N * N",
        "",
        (Kind.DIVERGENT_COLLECTIVE,),
        ("// shuffle",),
    ),
    Plant("tiles", "reads past the end", "i < n ? x[i]", "i <= n ? x[i]", (Kind.OUT_OF_BOUNDS,), ("i <= n",), "x"),
    Plant(
        "attention",
        "values past the end",
        "low = row < n ? __bfloat16_as_ushort(p[row * 16 + column]) : 0;",
        "low = __bfloat16_as_ushort(p[row * 16 + column]);",
        (Kind.OUT_OF_BOUNDS,),
        ("low = __bfloat16",),
        "V",
    ),
    Plant(
        "attention",
        "keys past the end",
        "row < n ? *(const unsigned*)(p + row * 16 + column) : 0;",
        "*(const unsigned*)(p + row * 16 + column);",
        (Kind.OUT_OF_BOUNDS,),
        ("// pair",),
    ),
    Plant(
        "attention", "queries past the end", "        if (query < n)\n", "", (Kind.OUT_OF_BOUNDS,), ("O[query",), "O"
    ),
    Plant(
        "attention",
        "a mask of one group",
        "__shfl_xor_sync(~0u, above, d)",
        "__shfl_xor_sync(0xfu, above, d)",
        (Kind.DIVERGENT_COLLECTIVE,),
        ("0xfu",),
    ),
    Plant(
        "groups",
        "no barrier before the parts are read",
        "    block.sync();  // all of them\n",
        "",
        EARLY,
        ("// of the warps",),
        "parts",
    ),
    Plant(
        "groups",
        "parts of warps that do not exist",
        "warp.thread_rank() < warp.meta_group_size() ? parts",
        "warp.thread_rank() <= warp.meta_group_size() ? parts",
        (Kind.UNINITIALISED,),
        ("// of the warps",),
        "parts",
    ),
    Plant(
        "groups",
        "every lane stores the part",
        "if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = part;",
        "parts[warp.meta_group_rank()] = value;",
        (Kind.RACE,),
        ("// of a warp",),
        "parts",
    ),
    Plant(
        "groups",
        "a reduction that not all lanes reach",
        "int part = cg::reduce(warp, value, cg::plus<int>());",
        "int part = 0; if (value > 0) part = cg::reduce(warp, value, cg::plus<int>());",
        (Kind.DIVERGENT_COLLECTIVE, Kind.DEADLOCK),
        ("if (value > 0) part",),
    ),
    Plant(
        "groups",
        "places taken without an atomic",
        "at = atomicAdd(count, (int)some.size())",
        "at = *count, *count += some.size()",
        (Kind.RACE,),
        ("at = *count",),
        "count",
    ),
    Plant("cluster_groups", "no barrier after zeroing", "    cluster.sync();  // zeroed\n", "", EARLY, ("// add",)),
    Plant(
        "cluster_groups",
        "a barrier of the block only",
        "cluster.sync();  // counted",
        "__syncthreads();  // counted",
        (Kind.RACE,),
        ("// out", "// add"),
    ),
    Plant(
        "cluster_groups",
        "a block that does not exist",
        "x[i] / 32)",
        "x[i] / 16)",
        (Kind.OUT_OF_BOUNDS,),
        ("// add",),
    ),
    Plant(
        "specialised",
        "no wait for the data",
        "            wait(&full[state.index], state.phase);  // data\n",
        "",
        (Kind.UNINITIALISED, Kind.IN_FLIGHT, Kind.RACE),
        ("// multiply", "// load A", "// load B"),
    ),
    Plant(
        "specialised",
        "no wait for room",
        "                    wait(&empty[state.index], state.phase ^ 1);  // room\n",
        "",
        (Kind.MBARRIER_MISUSE, Kind.IN_FLIGHT),
        ("// expect", "// load A", "// load B"),
    ),
    Plant(
        "specialised",
        "nobody frees a slot",
        "            if (lane == 0) arrive(&empty[state.index]);  // free\n",
        "",
        (Kind.DEADLOCK,),
        ("// room",),
    ),
    Plant(
        "specialised",
        "the parity never turns",
        "index = 0; phase ^= 1;",
        "index = 0;",
        (Kind.IN_FLIGHT, Kind.RACE, Kind.MBARRIER_MISUSE, Kind.DEADLOCK),
        ("// multiply", "// load A", "// load B", "// expect", "// room"),
    ),
    Plant(
        "specialised",
        "bytes of A alone",
        "sizeof(As[0]) + sizeof(Bs[0])",
        "sizeof(As[0])",
        (Kind.DEADLOCK, Kind.MBARRIER_MISUSE, Kind.IN_FLIGHT),
        ("// expect", "// data", "// room", "// load B", "// multiply"),
    ),
    Plant(
        "specialised",
        "a slot freed before it was read",
        '            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // multiplied\n',
        "",
        (Kind.IN_FLIGHT, Kind.ACCUMULATOR_IN_FLIGHT),
        ("// load A", "// load B", "// stage", "// multiply"),
    ),
    Plant(
        "specialised",
        "C staged while it is stored",
        'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // Cs was read',
        "{}",
        (Kind.IN_FLIGHT,),
        ("// stage",),
        "Cs",
    ),
    Plant(
        "specialised",
        "no barrier before C is staged",
        "        consumers_sync();  // Cs is free\n",
        "",
        (Kind.IN_FLIGHT, Kind.RACE),
        ("// stage",),
        "Cs",
    ),
    Plant(
        "specialised",
        "no barrier before C is stored",
        "        consumers_sync();  // Cs is full\n",
        "",
        EARLY,
        ("// store",),
        "Cs",
    ),
    Plant(
        "specialised",
        "no proxy fence before C is stored",
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy',
        "",
        (Kind.PROXY_FENCE,),
        ("// store",),
        "Cs",
    ),
    Plant(
        "specialised",
        "a barrier that counts the producer",
        '"bar.sync 1, 128;"',
        '"bar.sync 1, 160;"',
        (Kind.DEADLOCK,),
        ("// Cs is free",),
    ),
    Plant(
        "specialised",
        "an exit before C was read",
        '    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // last\n',
        "",
        (Kind.EXITED_WITH_WORK,),
        ("// store",),
    ),
    Plant(
        "specialised",
        "the barriers used before they are initialised",
        "    __syncthreads();  // barriers\n",
        "",
        (Kind.MBARRIER_MISUSE,),
        ("// room", "// data"),
    ),
    Plant(
        "hash_table", "no way around the end", "(slot + 1) % capacity", "slot + 1", (Kind.OUT_OF_BOUNDS,), ("// claim",)
    ),
    Plant("hash_table", "one slot for all", "(slot + 1) % capacity", "slot", (Kind.LIVELOCK,), ("// claim",)),
    Plant(
        "hash_table",
        "a slot claimed without an atomic",
        "atomicCAS(&keys[slot], -1, x[i]);  // claim",
        "keys[slot]; if (there == -1) keys[slot] = x[i];  // claim",
        (Kind.RACE,),
        ("// claim",),
        "keys",
    ),
    Plant(
        "radix_sort",
        "no barrier after clearing",
        "__syncthreads();  // all cleared",
        "",
        EARLY,
        ("// count",),
        "places",
    ),
    Plant(
        "radix_sort",
        "no barrier after counting",
        "__syncthreads();  // all counted",
        "",
        EARLY,
        ("= places[w]",),
    ),
    Plant("radix_sort", "one not cleared", "x < 64) p", "x < 64 && lane) p", EARLY, ("// count",), "places"),
    Plant(
        "radix_sort",
        "places advanced while others read them",
        "__syncwarp();  // all have read",
        "",
        (Kind.RACE,),
        ("// advance",),
        "places",
    ),
    Plant(
        "radix_sort",
        "no barrier between digits",
        "__syncthreads();  // sorted by this digit",
        "",
        EARLY,
        ("// count", "// clear", "// place", "// advance"),
    ),
    Plant("turns", "a turn that never ends", '"r"(ticket + 1)', '"r"(ticket)', HUNG, ("// poll",)),
    Plant("turns", "no release", "st.release.gpu", "st.relaxed.gpu", (Kind.RACE,), ("// add",), "sums"),
    Plant(
        "turns",
        "no acquire",
        'asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(turn) : "l"(lock + 1) : "memory");',
        "",
        (Kind.RACE,),
        ("// add",),
        "sums",
    ),
    Plant("turns", "no barrier after the ticket", "__syncthreads();  // ticket", "", EARLY, ("// poll",), "ticket"),
    Plant(
        "ring",
        "no wait for the numbers",
        '"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1, 1000;\\n@!done bra retry;\\n}"',
        '"}"',
        (Kind.RACE, Kind.UNINITIALISED, Kind.IN_FLIGHT, Kind.MBARRIER_MISUSE),
        ("// send", "// receive", "// again"),
    ),
    Plant(
        "ring",
        "bytes of half the numbers",
        "_, [%0], 128;",
        "_, [%0], 64;",
        (Kind.MBARRIER_MISUSE,),
        ("// send",),
        "full",
    ),
    Plant("ring", "a phase not begun again", " && round + 2 < rounds) expect(&full[s]);", ") {}", HUNG, ("// wait",)),
    Plant("ring", "a slot overwritten", "sync_cluster();  // all have received", "", (Kind.RACE,), ("// send",), "in"),
    Plant(
        "ring",
        "mbarriers not initialised yet",
        "sync_cluster();  // mbarriers",
        "",
        (Kind.MBARRIER_MISUSE,),
        ("// send",),
        "full",
    ),
    Plant(
        "bulk_histogram", "no barrier after zeroing", "__syncthreads();  // zeroed", "", EARLY, ("// count",), "bins"
    ),
    Plant(
        "bulk_histogram",
        "no proxy fence",
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy',
        "",
        (Kind.PROXY_FENCE,),
        ("// reduce",),
        "bins",
    ),
    Plant(
        "bulk_histogram",
        "no barrier after counting",
        "__syncthreads();  // all counted",
        "",
        EARLY,
        ("// reduce", "// count"),
    ),
    Plant("bulk_histogram", "too many bytes", '"n"(256)', '"n"(272)', (Kind.OUT_OF_BOUNDS,), ("// reduce",)),
    Plant(
        "bulk_histogram",
        "an exit before the bins are read",
        'asm volatile("cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group.read 0;" ::: "memory");  // read',
        "",
        (Kind.EXITED_WITH_WORK,),
        ("// reduce",),
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=[f"{plant.kernel}-{plant.what.replace(' ', '-')}" for plant in PLANTS])
def test_a_planted_fault_is_named_at_its_line(plant: Plant) -> None:
    run, source = KERNELS[plant.kernel]
    grouped = "cooperative_groups" in source
    file = f"copy_{copies_of_groups().index((source, plant.change))}.cu" if grouped else "kernel.cu"
    places = [f"{file}:{line_of(changed(source, plant.change), text)}" for text in plant.at]
    for seed in SOME:
        (finding,) = run(min(76, LARGEST.get(plant.kernel, 76)), seed, plant.change).findings
        text = str(finding)
        assert finding.kind in plant.kinds, text
        assert plant.array in (None, finding.array), text
        assert any(re.search(rf"{re.escape(place)}\b", text) for place in places), (places, text)


def test_every_kernel_has_several_faults_planted() -> None:
    for name in KERNELS:
        assert sum(plant.kernel == name for plant in PLANTS) >= 3, name
