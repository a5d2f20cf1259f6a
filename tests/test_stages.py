"""Every stage against NumPy, on random problems: `pytest -k naive`, `pytest -k gemm-tma_pipeline`."""

import pytest
from sample import is_thorough, sample

from workbench.pytest_plugin import StageUnderTest


def test_stage(workbench_stage: StageUnderTest, pytestconfig: pytest.Config) -> None:
    stage, device = workbench_stage.stage, workbench_stage.device
    workbench_stage.verify(None if is_thorough(pytestconfig, stage) else sample(stage, device))
