"""Kernels that are right for small problems and wrong for some of the size of their suite: one extent is large, or is
beyond a product of tile sizes. Each is found in the emulator, on a problem no larger than others."""

from __future__ import annotations

import math

import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Device, open_device
from workbench.harness import drawn
from workbench.model.results import Verdict

EXAMPLES = 160

TOTAL = "y[i] = from_float<OUT>(value)"
GEMM = "= from_float<OUT>(sum)"
SCAN, MOVE = "sum += to_float(from[c])", "= x[r * ldx + c]"
MATVEC = "c[n] = from_float<OUT>(sum);"

CHEATS = [
    ("rows of C above 4096", "gemm:naive", GEMM, "= from_float<OUT>(m >= 4096 ? 3.f : sum)"),
    ("columns of C above 4096", "gemm:naive", GEMM, "= from_float<OUT>(n > 4096 ? 3.f : sum)"),
    ("terms above 4096", "gemm:naive", GEMM, "= from_float<OUT>(K > 4096 ? 0.f : sum)"),
    ("a row number of 12 bits", "gemm:naive", GEMM, "= from_float<OUT>(m >> 12 && M > 4096 ? -sum + 1.f : sum)"),
    ("the last column of a large matrix", "gemm:naive", GEMM, "= from_float<OUT>(N > 4500 && n == N - 1 ? 7.f : sum)"),
    ("beyond a grid of tiles", "gemm:naive", GEMM, "= from_float<OUT>(blockIdx.x >= 16 * 16 ? 5.f : sum)"),
    ("beyond 32,768 rows", "matvec:naive", MATVEC, "c[n] = from_float<OUT>(n >= 32768 ? 9.f : sum);"),
    ("sums of more than 6000 columns", "reduce:naive", TOTAL, "y[i] = from_float<OUT>(count > 6000 ? 1e3f : value)"),
    ("columns above 6000", "scan:naive", SCAN, SCAN + "; if (c > 6000) sum = 1.f"),
    ("rows above 8192", "scan:naive", SCAN, SCAN + "; if (row > 8192) sum = 1.f"),
    ("columns above 6000, moved", "transpose:naive", MOVE, "= x[(c > 6000 ? r + 0 : r) * ldx + (c > 6000 ? 0 : c)]"),
    ("rows above 8192, moved", "transpose:naive", MOVE, "= x[(r > 8192 ? 0 : r) * ldx + c]"),
]


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.mark.parametrize(("name", "spec", "old", "new"), CHEATS, ids=[name for name, *_ in CHEATS])
def test_what_is_wrong_at_sizes_of_the_suite_is_found(
    name: str, spec: str, old: str, new: str, emulator: Device
) -> None:
    result = harness.verify(planted_stage(spec, Change(old, new)), emulator, examples=EXAMPLES, seed=0)
    assert result.verdict is Verdict.MISMATCH
    assert result.failure is not None


@pytest.mark.parametrize("spec", ["gemm:naive", "gemm:tma_pipeline", "softmax:cluster", "matvec:naive"])
def test_large_extents_are_drawn_and_are_no_more_work(spec: str, emulator: Device) -> None:
    (stage,) = registry.select([spec])
    operation = registry.operation_of(stage)
    size = operation.emulator_size
    problems = drawn(stage, emulator, examples=160, seed=1)
    assert len(problems) == 160
    for name in operation.problem.extents:
        longest = max(getattr(problem, name) for problem in operation.suite)
        if longest > size.extent:
            assert max(getattr(problem, name) for problem in problems) > size.extent
    edges = set(stage.edge_cases)
    random = [problem for problem in problems if problem not in edges]
    assert all(math.prod(getattr(p, n) for n in p.extents) <= 2 * size.work for p in random)


def test_a_failure_at_a_large_extent_is_made_smaller(emulator: Device) -> None:
    stage = planted_stage("gemm:naive", Change(GEMM, "= from_float<OUT>(m >= 1000 ? 3.f : sum)"))
    result = harness.verify(stage, emulator, examples=EXAMPLES, seed=0)
    assert result.failure is not None
    m = registry.operation_of(stage).problem.parse(result.failure.problem).m  # type: ignore[attr-defined]
    assert 1000 < m <= 3000
