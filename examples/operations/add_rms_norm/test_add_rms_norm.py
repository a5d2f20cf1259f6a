"""Every stage computes it, and a broken one is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench

from . import add_rms_norm

SOURCE = (Path(__file__).parent / "1_naive.cu").read_text()


def test_the_definition_on_rows_worked_out_by_hand():
    problem = add_rms_norm.problem(rows=1, columns=2, eps=1.0)
    found = problem.reference(
        {"x": np.array([[1.0, 2.0]]), "residual": np.array([[0.0, 1.0]]), "w": np.array([1.0, 2.0])}
    )
    assert found["total"].tolist() == [[1.0, 3.0]]
    assert np.allclose(found["y"], [[1 / 6**0.5, 6 / 6**0.5]])


@pytest.mark.workbench("add_rms_norm")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()


@pytest.mark.parametrize(
    ("right", "broken"),
    [
        ("squares / columns + eps", "squares / columns"),
        ("total[first + c] = from_float<DTYPE>(sum)", "total[first + c] = x[first + c]"),
        ("squares += sum * sum", "squares += to_float(x[first + c]) * to_float(x[first + c])"),
        (" * to_float(w[c])", ""),
        ("y[first + c] = ", "if (c + 1 < columns) y[first + c] = "),
    ],
)
def test_a_broken_kernel_is_found_out(right, broken):
    assert SOURCE.count(right) == 1
    (stage,) = add_rms_norm.stages
    outcome = workbench.verify(stage, code=SOURCE.replace(right, broken), device="emulator", examples=30)
    assert not outcome.ok
    assert outcome.run.stages[0].verification.verdict == "mismatch"


def test_the_baseline_is_right():
    pytest.importorskip("torch")
    (baseline,) = add_rms_norm.baselines
    for text in ("5x70,dtype=fp32,eps=0.25", "3x8,dtype=bf16"):
        assert workbench.baseline_error(baseline, add_rms_norm.problem.parse(text)) == ""
