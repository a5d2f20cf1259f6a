"""The ladder is a tree: each stage but the first of a track has a parent, declared before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from workbench.catalogue import registry
from workbench.kernels.vector_add import VECTOR_ADD, VectorAddProblem
from workbench.model.errors import BadOperation
from workbench.model.launch import Launch
from workbench.model.operation import Operation
from workbench.model.stage import Place, Stage


def _operation(**declared: dict[str, str]) -> Operation[VectorAddProblem]:
    """An operation with these stages, each declared with these keywords."""
    made = dataclasses.replace(VECTOR_ADD, stages=[])
    for name, keywords in declared.items():
        _declare(made, name, **keywords)
    return made


def _declare(operation: Operation[Any], name: str, **keywords: Any) -> None:
    @operation.stage(name, source=f"{name}.cu", idea="", **keywords)
    def _(p: VectorAddProblem, size: Any) -> Launch:
        raise NotImplementedError


def test_the_parent_is_the_stage_declared_before_unless_another_is_named() -> None:
    made = _operation(a={}, b={}, c={}, d={"parent": "b"}, e={})
    assert [s.parent for s in made.stages] == [None, "a", "b", "b", "d"]
    assert [getattr(made.parent(s), "name", None) for s in made.stages] == [None, "a", "b", "b", "d"]


def test_a_track_begins_with_a_stage_that_has_no_parent() -> None:
    made = _operation(a={"track": "simt"}, b={}, c={"track": "mma"}, d={}, e={"parent": "a"})
    assert [(s.track, s.parent) for s in made.stages] == [
        ("simt", None),
        ("simt", "a"),
        ("mma", None),
        ("mma", "c"),
        ("simt", "a"),
    ]


def test_a_stage_after_another_one_is_like_it_but_for_what_it_names() -> None:
    made = dataclasses.replace(VECTOR_ADD, stages=[])
    case, reason = (VectorAddProblem(n=5),), lambda *_: "no"
    named: dict[str, Any] = {
        "supports": reason,
        "parameters": {"THREADS": 64},
        "sizes": lambda p, size: {"BLOCKS": 2},
        "architecture": 90,
        "specific": True,
        "alignment": 4,
        "edge_cases": case,
        "deterministic": False,
        "space": {"THREADS": (64, 128)},
        "constraint": reason,
    }
    launch: Any = lambda p, size: None  # noqa: E731
    first = made.stage("first", code="", idea="one", **named)(launch)
    same = made.stage("same", after=first, code="", idea="two")(launch)
    assert same == dataclasses.replace(first, name="same", source="same.cu", idea="two", parent="first")
    other = made.stage("other", after="first", code="", idea="", alignment=16, specific=False)(launch)
    assert (other.parent, other.alignment, other.specific, other.edge_cases) == ("first", 16, False, case)
    bare = Stage(made.name, "bare", "", "", launch)
    for field in dataclasses.fields(Stage):
        of_parameters = made.stage(f"of_{field.name}", after=first, code="", idea="", parameters={"WARPS": 2})(launch)
        if field.name in ("space", "constraint"):
            assert getattr(of_parameters, field.name) == getattr(bare, field.name)
        elif field.name in ("accepts", "sizes_for", "architecture", "specific", "edge_cases", "deterministic"):
            assert getattr(of_parameters, field.name) == getattr(first, field.name)


def test_a_stage_comes_after_one_that_is_declared_and_has_no_other_parent() -> None:
    made, other = _operation(first={}), _operation(first={})
    for after in ("frist", other.stages[0]):
        with pytest.raises(BadOperation, match=r"comes after '(frist|first)', which is no stage .* did you mean first"):
            _declare(made, "second", after=after)
    with pytest.raises(BadOperation, match="both a parent and a stage that it comes after"):
        _declare(made, "second", after="first", parent="first")
    made.stages.append(Stage(made.name, "elsewhere", "", "", made.stages[0].plan_for))
    with pytest.raises(BadOperation, match="another module of stages declares"):
        _declare(made, "second", after="elsewhere")


def test_a_source_of_ours_is_found_by_the_name_of_its_stage() -> None:
    made = dataclasses.replace(VECTOR_ADD, stages=[])
    made.stage("vectorized", idea="")(VECTOR_ADD.stages[0].plan_for)
    assert made.stages[0].source == "vector_add/2_vectorized.cu"
    with pytest.raises(ValueError, match="either a source, which is a file, or code"):
        made.stage("vectorised", idea="")


def test_the_tree_goes_track_by_track_and_tells_branches() -> None:
    made = _operation(
        a={"track": "x"}, b={}, c={"track": "y"}, d={"parent": "a"}, e={}, f={"parent": "d"}, g={"parent": "b"}
    )
    assert made.tree() == {
        "a": Place("x", None, 0),
        "b": Place("x", "a", 0),
        "d": Place("x", "a", 1),
        "e": Place("x", "d", 1),
        "f": Place("x", "d", 2),
        "g": Place("x", "b", 0),
        "c": Place("y", None, 0),
    }
    assert list(made.tree()) == ["a", "b", "d", "e", "f", "g", "c"]
    assert [place.shown(name) for name, place in made.tree().items()][:5] == ["a", "b", "↳ d", "↳ e", "↳ ↳ f"]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"parent": "bee"}, r"vector_add:new has the parent 'bee', but no stage before it .*did you mean bees\?"),
        ({"parent": "later"}, "before it is called that: a parent is declared first; the stages so far are a, bees"),
        ({"parent": "new"}, "vector_add:new has the parent 'new', but no stage before it is called that"),
        ({"track": "simt"}, "cannot begin track 'simt', which is there already"),
        ({"track": "mma", "parent": "a"}, "is the first of track 'mma', so it can have no parent"),
    ],
    ids=str,
)
def test_a_place_that_makes_no_tree_is_refused(keywords: dict[str, str], says: str) -> None:
    made = _operation(a={"track": "simt"}, bees={})
    with pytest.raises(BadOperation, match=says):
        _declare(made, "new", **keywords)
    assert [s.name for s in made.stages] == ["a", "bees"]


def test_the_first_stage_of_all_can_have_no_parent() -> None:
    with pytest.raises(BadOperation, match="there are no stages so far"):
        _operation(a={"parent": "b"})


def test_the_ladders_of_this_package_are_trees() -> None:
    assert list(dict.fromkeys(s.track for s in registry.operations()["gemm"].stages)) == [
        "simt",
        "skinny",
        "mma",
        "wgmma",
        "tcgen05",
    ]
    for operation in registry.operations().values():
        places = operation.tree()
        assert set(places) == {s.name for s in operation.stages}
        for place in places.values():
            assert place.parent is None or places[place.parent].track == place.track
