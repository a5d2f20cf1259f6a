"""Kernels that are right for small problems and wrong for some of the size of their suite: one extent is large, or is
beyond a product of tile sizes. Each is found in the emulator, on a problem no larger than others."""

from __future__ import annotations

import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Device, open_device
from workbench.harness import drawn
from workbench.judge.left_out import FLOPS
from workbench.model.results import Verdict

EXAMPLES = 50

TOTAL = "y[i] = from_float<OUT>(value.value())"
GEMM = "= from_float<OUT>(sum)"
SCAN, MOVE = "sum += to_float(from[c])", "= x[r * ldx + c]"
MATVEC = "c[n] = from_float<OUT>(sum);"

CHEATS = [
    ("rows of C above 4096", "gemm:naive", 0, GEMM, "= from_float<OUT>(m >= 4096 ? 3.f : sum)"),
    ("columns of C above 4096", "gemm:naive", 1, GEMM, "= from_float<OUT>(n > 4096 ? 3.f : sum)"),
    ("terms above 4096", "gemm:naive", 2, GEMM, "= from_float<OUT>(K > 4096 ? 0.f : sum)"),
    ("beyond a grid of tiles", "gemm:naive", 0, GEMM, "= from_float<OUT>(blockIdx.x >= 16 * 16 ? 5.f : sum)"),
    ("beyond 32,768 rows", "matvec:naive", 0, MATVEC, "c[n] = from_float<OUT>(n >= 32768 ? 9.f : sum);"),
    ("sums of 6000 columns", "reduce:naive", 0, TOTAL, "y[i] = from_float<OUT>(count > 6000 ? 1e3f : value.value())"),
    ("columns above 6000", "scan:naive", 0, SCAN, SCAN + "; if (c > 6000) sum = 1.f"),
    (
        "heads above 4 of a group",
        "attention_backward:naive",
        0,
        "head < (at.head + 1)",
        "head < at.head * group + 4 && head < (at.head + 1)",
    ),
    ("places apart above 3", "conv2d:naive", 0, "r * c.dilation_y", "r * min(c.dilation_y, 3)"),
    ("a third group of parts", "scan:look_back", 0, "group > 0) from", "group == 1) from"),
    ("parts beyond a warp", "cross_entropy:split_rows", 0, "i < parts; i += WARP", "i < min(parts, 32); i += WARP"),
    ("rows above 8192", "transpose:naive", 0, MOVE, "= x[(r > 8192 ? 0 : r) * ldx + c]"),
]
"""What is wrong of which stage, found with which seed: of products one of the extents is large in so few problems, the
seed says which; and the text that is replaced, by what."""


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.mark.long
@pytest.mark.parametrize(("name", "spec", "seed", "old", "new"), CHEATS, ids=[name for name, *_ in CHEATS])
def test_what_is_wrong_at_sizes_of_the_suite_is_found(
    name: str, spec: str, seed: int, old: str, new: str, emulator: Device
) -> None:
    result = harness.verify(planted_stage(spec, Change(old, new)), emulator, examples=EXAMPLES, seed=seed)
    assert result.verdict is Verdict.MISMATCH
    assert result.failure is not None


@pytest.mark.long
@pytest.mark.parametrize("spec", ["gemm:tma_pipeline", "matvec:naive"])
def test_large_extents_are_drawn_and_are_no_more_work(spec: str, emulator: Device) -> None:
    (stage,) = registry.select([spec])
    operation = registry.operation_of(stage)
    size = operation.emulator_size
    problems = drawn(stage, emulator, examples=160, seed=1)
    assert len(problems) == 160 + len(stage.edge_cases)
    for name in operation.problem.extents:
        longest = max(getattr(problem, name) for problem in operation.suite)
        if longest > size.extent:
            assert max(getattr(problem, name) for problem in problems) > longest
    edges = set(stage.edge_cases)
    random = [problem for problem in problems if problem not in edges]
    assert all(p.cost.flops <= FLOPS * size.work for p in random)


@pytest.mark.long
def test_a_failure_at_a_large_extent_is_made_smaller(emulator: Device) -> None:
    stage = planted_stage("gemm:naive", Change(GEMM, "= from_float<OUT>(m >= 1000 ? 3.f : sum)"))
    result = harness.verify(stage, emulator, examples=EXAMPLES, seed=0)
    m = registry.operation_of(stage).problem.parse(result.failure.problem).m  # type: ignore[attr-defined]
    assert 1000 < m <= 3000
