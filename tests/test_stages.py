"""Every stage against NumPy, on random problems: `pytest -k naive`, `pytest -k gemm-tma_pipeline`."""

from workbench.pytest_plugin import StageUnderTest


def test_stage(workbench_stage: StageUnderTest) -> None:
    workbench_stage.verify()
