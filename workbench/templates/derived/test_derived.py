"""Every stage computes the reference."""

from __future__ import annotations

import pytest


@pytest.mark.workbench("derived")
def test_every_stage_computes_it(workbench_stage):
    workbench_stage.verify()
