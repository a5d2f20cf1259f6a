"""Kernels other than the catalogue's: right on odd sizes and under several seeds, and a fault in each is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import public_kernels
import pytest
from emulation import line_of

from workbench.emulator import FindingKind, Output, Program, Report, launch, load

SEEDS = range(4)


@cache
def program(source: str, **defines: str | int) -> Program:
    return load(source, defines=defines)


def judge(report: Report, bug: bool, right: Callable[[], bool]) -> Report:
    """A correct kernel has no finding and the right result; of one with a fault only the report matters."""
    if not bug:
        assert report.ok, str(report)
        assert right()
    return report


def scan(n: int, seed: int, bug: bool = False) -> Report:
    x = np.random.default_rng(n).integers(-99, 99, n, np.int32)
    y, blocks = np.empty_like(x), -(-n // 64)
    status, tickets = np.zeros(blocks + 2, np.uint64), np.zeros(1, np.int32)
    kernel = program(public_kernels.SCAN, BLOCK=64, **({"BUG": 1} if bug else {}))
    arguments = {"x": x, "y": Output(y), "status": status, "tickets": tickets, "n": n}
    report = launch(kernel, "scan", blocks, 64, arguments, seed=seed, max_warp_instructions=200_000)
    return judge(report, bug, lambda: np.array_equal(y, np.cumsum(x)))


def last_block(n: int, seed: int, bug: bool = False) -> Report:
    x = np.random.default_rng(n).integers(-9, 9, n).astype(np.float32)
    partial, count, result = np.empty(5, np.float32), np.zeros(1, np.uint32), np.empty(1, np.float32)
    arguments = {"x": x, "partial": Output(partial), "count": count, "result": Output(result), "n": n}
    kernel = program(public_kernels.LAST_BLOCK, **({"BUG": 1} if bug else {}))
    report = launch(kernel, "reduce", 5, 64, arguments, shared=256, seed=seed)
    return judge(report, bug, lambda: result[0] == x.sum() and count[0] == 5)


def histogram(n: int, seed: int, bug: bool = False) -> Report:
    x = np.random.default_rng(n).integers(0, 256, n, np.uint8)
    counts = np.zeros(256, np.uint32)
    kernel = program(public_kernels.HISTOGRAM, **({"BUG": 1} if bug else {}))
    report = launch(kernel, "histogram", 3, 96, {"x": x, "counts": counts, "n": n}, seed=seed)
    return judge(report, bug, lambda: np.array_equal(counts, np.bincount(x, minlength=256)))


def softmax(n: int, seed: int, bug: bool = False) -> Report:
    x = (10 * np.random.default_rng(n).standard_normal((3, n))).astype(np.float32)
    y = np.empty_like(x)
    kernel = program(public_kernels.SOFTMAX, INFINITY_="__int_as_float(0x7f800000)", **({"BUG": 1} if bug else {}))
    report = launch(kernel, "softmax", 3, 96, {"x": x, "y": Output(y), "n": n}, seed=seed)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return judge(report, bug, lambda: np.allclose(y, wide / wide.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-30))


def cluster(n: int, seed: int, bug: bool = False) -> Report:
    x = np.random.default_rng(n).integers(-99, 99, n, np.int32)
    result = np.empty(1, np.int32)
    kernel = program(public_kernels.CLUSTER, **({"BUG": 1} if bug else {}))
    report = launch(kernel, "reduce", 4, 64, {"x": x, "result": Output(result), "n": n}, cluster=4, seed=seed)
    return judge(report, bug, lambda: result[0] == x.sum())


def split_k(n: int, seed: int, bug: bool = False) -> Report:
    rng = np.random.default_rng(n)
    m, k = n % 7 + 1, 3 * n % 50 + 3
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c, grid = np.empty((m, n), np.float32), (-(-n // 8), -(-m // 8), 3)
    semaphores = np.zeros(grid[:2], np.int32)
    arguments = {"A": a, "B": b, "C": Output(c), "semaphores": semaphores, "M": m, "N": n, "K": k}
    kernel = program(public_kernels.SPLIT_K, **({"BUG": 1} if bug else {}))
    report = launch(kernel, "gemm", grid, (8, 8), arguments, seed=seed, max_warp_instructions=200_000)
    return judge(report, bug, lambda: np.array_equal(c, a @ b) and bool((semaphores == 3).all()))


def tiles(n: int, seed: int, bug: bool = False) -> Report:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.empty(-(-n // 8), np.float32)
    kernel = program(public_kernels.TILES, **({"BUG": 1} if bug else {}))
    report = launch(kernel, "largest", 2, 64, {"x": x, "y": Output(y), "n": n}, seed=seed)
    wanted = np.pad(x, (0, -n % 8), constant_values=-np.inf).reshape(-1, 8).max(axis=1)
    return judge(report, bug, lambda: np.array_equal(y, wanted))


def attention(n: int, seed: int, bug: bool = False) -> Report:
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((n, 16)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o = np.empty((n, 16), np.float32)
    kernel = program(public_kernels.ATTENTION, **({"BUG": 1} if bug else {}))
    arguments = {"Q": q, "K": k, "V": v, "O": Output(o), "n": n}
    report = launch(kernel, "attention", -(-n // 16), 32, arguments, seed=seed)
    wide = [array.astype(np.float64) for array in (q, k, v)]
    weights = np.exp(wide[0] @ wide[1].T / 4)
    weights /= weights.sum(axis=1, keepdims=True)
    # a weight is rounded to bf16, 2^-8 of it at most, before it multiplies V
    return judge(
        report, bug, lambda: bool(np.all(np.abs(o - weights @ wide[2]) <= 2**-8 * (weights @ np.abs(wide[2]))))
    )


KERNELS = {f.__name__: f for f in (scan, last_block, histogram, softmax, cluster, split_k, tiles, attention)}


@pytest.mark.parametrize("n", [1, 31, 65, 200, 997])
@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_has_the_right_result_and_no_finding(name: str, n: int) -> None:
    for seed in SEEDS:
        KERNELS[name](min(n, 83) if name in ("attention", "split_k") else n, seed)


FAULTS: list[tuple[str, Any, str | None, str, str | None]] = [
    ("scan", (FindingKind.LIVELOCK, FindingKind.DEADLOCK), public_kernels.SCAN, "// poll", None),
    ("last_block", (FindingKind.OUT_OF_BOUNDS,), public_kernels.LAST_BLOCK, "// partial", "partial"),
    ("histogram", (FindingKind.UNINITIALISED,), public_kernels.HISTOGRAM, "// flush", "bins"),
    ("softmax", (FindingKind.UNINITIALISED,), public_kernels.SOFTMAX, "// maxima", "maxima"),
    ("cluster", (FindingKind.OUT_OF_BOUNDS,), public_kernels.CLUSTER, "ld.shared::cluster", None),
    ("split_k", (FindingKind.LIVELOCK, FindingKind.DEADLOCK), public_kernels.SPLIT_K, "// turn", None),
    ("tiles", (FindingKind.DIVERGENT_COLLECTIVE, FindingKind.DEADLOCK), public_kernels.TILES, "// shuffle", None),
    ("attention", (FindingKind.OUT_OF_BOUNDS,), public_kernels.ATTENTION, "// past the end", "V"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "kinds", "source", "marker", "array"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_is_named_at_its_line(
    name: str, kinds: Any, source: str | None, marker: str, array: str | None, seed: int
) -> None:
    report = KERNELS[name](77, seed, bug=True)
    assert len(report.findings) == 1
    (finding,) = report.findings
    assert finding.kind in kinds, str(finding)
    if array is not None:
        assert finding.array == array
    if source is not None:
        wanted = line_of(source, marker)
        places = [finding.location.line] if finding.location else []
        assert wanted in places or f":{wanted}" in str(finding), str(finding)
