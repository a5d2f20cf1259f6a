"""Kernels of Triton in the emulator: correct ones pass, and a fault is named at its line of Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

sys.path.insert(0, str(Path(__file__).parent / "triton_kernels"))

import launches  # noqa: E402

from workbench.triton import emulate  # noqa: E402

KERNELS = {name: "sm_80" if "descriptors" in name else "sm_90a" for name in launches.REFERENCES}


@pytest.mark.parametrize(("kernel", "target"), KERNELS.items())
def test_kernels_are_right_and_clean(kernel, target):
    with emulate(target, reference=launches.REFERENCES) as run:
        getattr(launches, kernel)()
    assert run.ok
    (launched,) = run.launches
    assert launched.kernel == kernel
