"""The GPU and the emulator give the same answers. Few problems here; `workbench agree` tries as many as you like."""

from __future__ import annotations

import pytest

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import open_device


@pytest.mark.gpu
@pytest.mark.parametrize("stage", registry.stages(), ids=lambda s: s.spec)
def test_gpu_and_emulator_agree(stage):
    if misfit := stage.misfit(open_device("cuda").machine.architecture):
        pytest.skip(misfit)
    result = harness.agree(stage, open_device("cuda"), open_device("emulator"), examples=10)
    assert result.disagreement == ""
    assert result.tiers == dict.fromkeys(registry.operation_of(stage).problem.tiers, result.problems)
    assert result.problems >= 10
