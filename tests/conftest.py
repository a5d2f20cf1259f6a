from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "faults")]  # for fake_device, synthetic_clock


@cache
def missing_gpu() -> str | None:
    """Why there is no GPU, or None where there is one."""
    from workbench.devices import DeviceUnavailable
    from workbench.devices.cuda import require_gpu

    try:
        require_gpu()
    except DeviceUnavailable as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := missing_gpu()):
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {reason}"))
