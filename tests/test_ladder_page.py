"""tools/ladder.py: is every stage nearest to its parent?"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

import pytest

from workbench.catalogue import registry
from workbench.model.operation import Operation

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def ladder() -> ModuleType:
    sys.path.insert(0, str(TOOLS))
    import refresh

    made: ModuleType = refresh.script("tools/ladder.py")
    return made


def test_every_stage_is_nearest_to_its_parent_but_for_three_that_are_explained(ladder: ModuleType) -> None:
    apart = {d.stage.spec for d in ladder.measured() if not d.ok}
    assert len(apart) <= 3
    assert apart == set(ladder.EXCEPTIONS)
    measured = {d.stage.spec for d in ladder.measured()}
    assert measured == {s.spec for s in registry.stages() if s.parent is not None}


def test_comments_blank_lines_and_indentation_are_no_lines(ladder: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "1_a.cu"
    source.write_text("// a\n\n  int a;  // b\n/* c\n d */\n{\n\tint b;\n}\n")
    assert ladder.lines(source) == ["int a;", "{", "int b;", "}"]


def test_lines_of_a_stage_that_another_includes_are_its_own(ladder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "1_a.cu").write_text('#include "tile/row.cuh"\nint a;\n')
    (tmp_path / "2_b.cu").write_text('#include "1_a.cu"\nint b;\n')
    assert ladder.lines(tmp_path / "2_b.cu") == ['#include "tile/row.cuh"', "int a;", "int b;"]


def test_lines_taken_away_added_and_replaced_count_once(ladder: ModuleType) -> None:
    assert ladder.changed(["a", "b", "c"], ["a", "c"]) == 1
    assert ladder.changed(["a", "c"], ["a", "b", "c"]) == 1
    assert ladder.changed(["a", "b", "c"], ["a", "x", "c"]) == 1
    assert ladder.changed(["a", "b"], ["a", "x", "y"]) == 2
    assert ladder.changed(["a"], ["a"]) == 0


def test_a_parent_that_is_farther_than_another_stage_is_found(ladder: ModuleType) -> None:
    matvec: Operation = registry.operations()["matvec"]
    stages = [dataclasses.replace(s, parent="split_k") if s.name == "streamed" else s for s in matvec.stages]
    wrong = {d.stage.name: d for d in ladder.distances(dataclasses.replace(matvec, stages=stages)) if not d.ok}
    assert set(wrong) == {"streamed"}
    assert wrong["streamed"].nearest == "vectorized"
    assert wrong["streamed"].to_parent > wrong["streamed"].to_nearest
