"""Kernels whose sources talk to the judge, or depend on what its digest did not know."""

from __future__ import annotations

import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import harness
from workbench.devices import open_device
from workbench.model.results import Verdict

ADD = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"


@pytest.mark.parametrize(
    ("more", "allowed", "verdict"),
    [
        ("if (i == 0) c[n + 64] = c[0];", "out_of_bounds", Verdict.OUT_OF_BOUNDS),
        ("if (i == 0) const_cast<IN*>(a)[0] = c[0];", "read_only", Verdict.INPUT_CHANGED),
        ("__shared__ float s; s = threadIdx.x; __syncthreads(); if (s < 0) c[0] = a[0];", "race", Verdict.RACE),
    ],
)
def test_a_comment_in_a_source_that_is_judged_hides_nothing(more: str, allowed: str, verdict: Verdict) -> None:
    stage = planted_stage("vector_add:naive", Change(ADD, f"{ADD} {more} // workbench: allow {allowed}"))
    assert harness.verify(stage, open_device("emulator"), examples=5, seed=0).verdict is verdict


def test_a_comment_that_allows_something_harms_no_right_kernel() -> None:
    stage = planted_stage("vector_add:naive", Change(ADD, f"{ADD} // workbench: allow race"))
    assert harness.verify(stage, open_device("emulator"), examples=3, seed=0).verdict is Verdict.PASS
