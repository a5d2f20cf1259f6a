"""The reference is what was worked out by hand, and every stage computes it."""

from __future__ import annotations

import numpy as np
import pytest

from . import reference


def test_the_reference_on_an_example_worked_out_by_hand():
    a, b = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([[3.0], [4.0]])
    assert reference.matmul(a, b).tolist() == [[11.0], [-4.0]]


@pytest.mark.workbench("matmul")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
