"""Every stage computes it, and a broken one is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench

from . import histogram

SOURCE = (Path(__file__).parent / "1_naive.cu").read_text()


def test_the_definition_on_a_list_counted_by_hand():
    found = histogram.problem(n=6, bins=3).reference({"x": np.array([2, 0, 2, -1, 3, 2], np.int32)})
    assert found["counts"].tolist() == [1, 0, 3]


@pytest.mark.workbench("histogram")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()


@pytest.mark.parametrize(
    ("right", "broken", "verdict"),
    [
        ("atomicAdd(&counts[b], 1)", "counts[b] += 1", "mismatch"),
        ("counts[b] = 0", "counts[b] = 1", "mismatch"),
        ("b >= 0 && b < bins", "b >= 0 && b <= bins", "out_of_bounds"),
        ("b >= 0 && b < bins", "b > 0 && b < bins", "mismatch"),
        ("if (i >= n) return;", "if (i >= n - 1) return;", "mismatch"),
        ("if (b < bins) counts[b] = 0;", "if (b < bins - 1) counts[b] = 0;", "uninitialised"),
    ],
)
def test_a_broken_kernel_is_found_out(right, broken, verdict):
    assert SOURCE.count(right) == 1
    (stage,) = histogram.stages
    outcome = workbench.verify(stage, code=SOURCE.replace(right, broken), device="emulator", examples=30)
    assert not outcome.ok
    assert outcome.run.stages[0].verification.verdict == verdict


def test_there_is_an_exact_tier_and_no_other():
    with pytest.raises(workbench.ProblemError, match="has to be one of exact"):
        histogram.problem.parse("8x2,tier=bounded")


def test_the_baseline_is_right():
    pytest.importorskip("torch")
    (baseline,) = histogram.baselines
    assert workbench.baseline_error(baseline, histogram.problem(n=1000, bins=17)) == ""
