"""What a SPEC on the command line selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import kernels
from workbench.catalogue import registry
from workbench.catalogue.registry import UnknownSpec, operations, select


def _specs(*specs: str) -> list[str]:
    return [stage.spec for stage in select(specs)]


def test_no_spec_is_every_stage_in_ladder_order() -> None:
    every = _specs()
    assert every == [s.spec for o in registry.operations().values() for s in o.stages]
    assert {"gemm:naive", "matvec:naive", "vector_add:naive"} <= set(every)


def test_an_operation_is_its_whole_ladder() -> None:
    assert _specs("gemm") == [s.spec for s in registry.operations()["gemm"].stages]


def test_a_stage_name_is_that_stage_of_every_operation_that_has_it() -> None:
    assert _specs("naive") == [f"{name}:naive" for name in operations()]
    assert _specs("gemm:naive") == ["gemm:naive"]


def test_a_stage_named_twice_comes_once() -> None:
    first, *_ = _specs("naive")
    assert _specs(first, "naive", first) == _specs("naive")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("gem", "gemm"), ("gemm:naiv", "gemm:naive"), ("niave", "naive"), ("vector-add", "vector_add"), ("", "gemm")],
)
def test_an_unknown_name_gets_the_nearest_right_ones(wrong: str, nearest: str) -> None:
    with pytest.raises(UnknownSpec, match=rf"called '{wrong}'.*\b{nearest}\b"):
        select([wrong])


def test_the_path_of_a_source_gets_the_stage_that_has_it(here: Path) -> None:
    source = select(["vector_add:naive"])[0].path
    with pytest.raises(UnknownSpec, match=r"naive\.cu'; it is the source of vector_add:naive$"):
        select([str(source)])
    Path("mine.cu").touch()
    with pytest.raises(UnknownSpec, match=r"no stage has this source; to run it as it is: workbench emulate mine\.cu"):
        select(["mine.cu"])


@pytest.mark.parametrize("name", ["gemm_fp8", "matvec", "vector_add"])
def test_sources_are_numbered_in_ladder_order(name: str) -> None:
    stages = registry.operations()[name].stages
    assert [s.source for s in stages] == [f"{name}/{n}_{s.name}.cu" for n, s in enumerate(stages, start=1)]


@pytest.mark.parametrize("track", ["simt", "mma", "wgmma", "tcgen05"])
def test_sources_of_the_lesson_are_numbered_in_ladder_order_and_the_others_are_in_tuned(track: str) -> None:
    stages = [s for s in registry.operations()["gemm"].stages if s.track == track]
    lesson = [s for s in stages if not s.source.startswith("gemm/tuned/")]
    assert [s.source for s in lesson] == [f"gemm/{track}/{n:02}_{s.name}.cu" for n, s in enumerate(lesson, start=1)]
    assert all(s.source == f"gemm/tuned/{s.name}.cu" for s in stages if s not in lesson)


def test_every_source_of_a_stage_exists() -> None:
    assert [s.spec for s in registry.stages() if not s.path.is_file()] == []


def test_a_folder_kernels_beside_an_editable_install_is_not_the_workbenchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "another.py").write_text("raise RuntimeError('this is not ours to import')\n")
    monkeypatch.setattr(kernels, "__path__", [str(tmp_path), *kernels.__path__])
    registry.reload()
    try:
        assert registry.troubles() == ()
        assert "gemm" in registry.operations()
    finally:
        registry.reload()
