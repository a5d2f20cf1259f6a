"""tools/ladder.py: is every stage nearest to its parent?"""

from __future__ import annotations

import dataclasses

from refresh import script

from workbench.catalogue import registry
from workbench.model.operation import Operation

ladder = script("tools/ladder.py")


def test_every_stage_is_nearest_to_its_parent_but_for_four_that_are_explained() -> None:
    apart = {d.stage.spec for d in ladder.measured() if not d.ok}
    assert len(apart) <= 4
    assert apart == set(ladder.EXCEPTIONS)
    measured = {d.stage.spec for d in ladder.measured()}
    assert measured == {s.spec for s in registry.stages() if s.parent is not None}


def test_a_parent_that_is_farther_than_another_stage_is_found() -> None:
    matvec: Operation = registry.operations()["matvec"]
    stages = [dataclasses.replace(s, parent="split_k") if s.name == "streamed" else s for s in matvec.stages]
    wrong = {d.stage.name: d for d in ladder.distances(dataclasses.replace(matvec, stages=stages)) if not d.ok}
    assert set(wrong) == {"streamed"}
    assert wrong["streamed"].nearest == "vectorized"
    assert wrong["streamed"].to_parent > wrong["streamed"].to_nearest
