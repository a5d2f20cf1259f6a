"""Kernels of Triton that are launched with `launch_pdl=True`: what they read before `gdc_wait()` is a race."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


from dependent import double, reverse

from workbench.triton import emulate

SIZE, N = 128, 512


@pytest.mark.parametrize(("pdl", "wait", "raced"), [(True, False, True), (True, True, False), (False, False, False)])
def test_dependent_kernel_races_unless_it_waits(pdl: bool, wait: bool, raced: bool) -> None:
    x, y, z = np.arange(N, dtype=np.float32), np.zeros(N, np.float32), np.zeros(N, np.float32)
    with emulate(orders=2, raise_on_hazard=False) as emulation:
        double[(N // SIZE,)](x, y, SIZE=SIZE)
        reverse[(N // SIZE,)](y, z, N, SIZE=SIZE, WAIT=wait, launch_pdl=pdl)
    found = [str(finding) for finding in emulation.findings]
    assert len(found) == raced
    if raced:
        assert "dependent.py:20: race: reverse reads y[" in found[0] and "double writes at" in found[0]
        assert "gdc_wait() has to come before" in found[0] and "gdc_launch_dependents() at" in found[0]
