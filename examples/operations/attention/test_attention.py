"""Every stage computes it, and a broken one is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench

from . import ATTENTION, AttentionProblem, Layout, reference

SOURCE = (Path(__file__).parent / "1_naive.cu").read_text()


def test_the_reference_on_rows_worked_out_by_hand():
    q, k = np.zeros((1, 1, 2, 1)), np.zeros((1, 1, 2, 1))
    v = np.array([[[[1.0], [3.0]]]])
    for causal, right in ((False, [2.0, 2.0]), (True, [1.0, 2.0])):
        mask = reference.visible(2, 2, causal)
        assert reference.attention(q, k, v, scale=1.0, mask=mask).ravel().tolist() == right
    assert reference.visible(3, 2, True).tolist() == [[False, False], [True, False], [True, True]]


@pytest.mark.workbench("attention")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()


@pytest.mark.parametrize(
    ("right", "broken", "verdict"),
    [
        ("min(keys, row + 1 + keys - rows)", "min(keys, row + 2 + keys - rows)", "mismatch"),
        ("logits[j] = dot * scale;", "logits[j] = dot;", "mismatch"),
        ("expf(logits[j] - top)", "exp2f(logits[j] - top)", "mismatch"),
        ("total / sum", "total", "mismatch"),
        ("blockIdx.y * k_head", "blockIdx.y * q_head", None),  # wrong where rows are not as many as keys
        ("partial[threadIdx.x] = sum;\n  __syncthreads();", "partial[threadIdx.x] = sum;", "race"),
        ("seen > 0 ? total / sum : 0.f", "total / sum", "mismatch"),
    ],
)
def test_a_broken_kernel_is_found_out(right, broken, verdict):
    assert SOURCE.count(right) == 1
    (stage,) = ATTENTION.stages
    outcome = workbench.verify(stage, code=SOURCE.replace(right, broken), device="emulator", examples=40)
    assert not outcome.ok
    assert verdict is None or outcome.run.stages[0].verification.verdict == verdict


@pytest.mark.parametrize(
    ("name", "right", "broken"),
    [
        # a hundred times the rounding of fp32, far less than a wrong mask makes of long rows
        ("o", "o[c] = from_float<IN>(", "o[c] = from_float<IN>(1.00001f * ("),
    ],
)
def test_a_small_error_is_found_by_comparison_with_the_model(name, right, broken):
    (stage,) = ATTENTION.stages
    code = SOURCE.replace(right, broken).replace("total / sum : 0.f);", "total / sum : 0.f));")
    problem = AttentionProblem(rows=5, keys=40, dim=16, dtype="fp32", causal=True, layout=Layout.BSHD)
    outcome = workbench.verify(stage, code=code, device="emulator", problem=problem)
    assert outcome.run.stages[0].verification.verdict == "mismatch"


def test_the_baseline_is_right():
    pytest.importorskip("torch")
    (baseline,) = ATTENTION.baselines
    for text in ("2x3x5x9x16,dtype=fp32,causal=true,layout=bshd", "1x2x8x8x32,dtype=bf16", "1x1x3x7x8,dtype=fp16"):
        assert workbench.baseline_error(baseline, AttentionProblem.parse(text)) == ""
