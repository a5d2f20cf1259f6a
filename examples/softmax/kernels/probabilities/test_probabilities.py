"""The reference is what was worked out by hand, and every stage computes it."""

from __future__ import annotations

import numpy as np
import pytest

from . import reference


def test_the_reference_on_an_example_worked_out_by_hand():
    assert reference.probabilities(np.array([[7.0, 7.0], [3.0, -997.0]])).tolist() == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.workbench("probabilities")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
