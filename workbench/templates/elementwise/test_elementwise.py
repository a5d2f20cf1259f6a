"""The reference is what was worked out by hand, and every stage computes it."""

from __future__ import annotations

import numpy as np
import pytest

from . import reference


def test_the_reference_on_an_example_worked_out_by_hand():
    assert reference.elementwise(np.array([1.0, -2.0, 0.5])).tolist() == [1.0, 4.0, 0.25]


@pytest.mark.workbench("elementwise")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
