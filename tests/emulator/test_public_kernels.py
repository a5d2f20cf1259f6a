"""Kernels other than the catalogue's: right on odd sizes and under several seeds; faults planted in each are named."""

from __future__ import annotations

import re

import pytest
from emulation import line_of
from public_launches import FEW, KERNELS, LARGEST, MANY, SOME, changed, copies_of_groups
from public_plants import PLANTS, Plant


@pytest.mark.parametrize("n", [1, 31, 65, 200, 997])
@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_has_the_right_result_and_no_finding(name: str, n: int) -> None:
    run, _ = KERNELS[name]
    for seed in MANY if n == 65 else FEW:
        run(min(n, LARGEST.get(name, n)), seed)


@pytest.mark.parametrize("plant", PLANTS, ids=[f"{plant.kernel}-{plant.what.replace(' ', '-')}" for plant in PLANTS])
def test_a_planted_fault_is_named_at_its_line(plant: Plant) -> None:
    run, source = KERNELS[plant.kernel]
    grouped = "cooperative_groups" in source
    file = f"copy_{copies_of_groups().index((source, plant.change))}.cu" if grouped else "kernel.cu"
    places = [f"{file}:{line_of(changed(source, plant.change), text)}" for text in plant.at]
    for seed in SOME:
        finding = run(min(76, LARGEST.get(plant.kernel, 76)), seed, plant.change).findings[0]
        text = str(finding)
        assert finding.kind in plant.kinds, text
        assert plant.array in (None, finding.array), text
        assert any(re.search(rf"{re.escape(place)}\b", text) for place in places), (places, text)


def test_every_kernel_has_several_faults_planted() -> None:
    for name in KERNELS:
        assert sum(plant.kernel == name for plant in PLANTS) >= 3, name
