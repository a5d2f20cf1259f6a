"""What CI tests of stages that have not changed, and which stages have."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sample
from sample import EXAMPLES, LEAST, assembled, changed_files, spread, variant, words_of

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness.drawing import drawn
from workbench.model.stage import Stage

EMULATOR = open_device("emulator")
FIRST = [operation.stages[-1] for operation in registry.operations().values()]


@pytest.mark.parametrize("stage", FIRST, ids=lambda s: s.spec)
def test_a_sample_has_every_type_layout_and_distribution_of_the_problems(stage: Stage) -> None:
    problems, chosen = drawn(stage, EMULATOR, examples=EXAMPLES, seed=0), sample.sample(stage, EMULATOR)
    assert set().union(*map(words_of, chosen)) == set().union(*map(words_of, problems))
    assert {problem.distribution for problem in chosen} >= {problem.distribution for problem in problems}
    assert LEAST <= len(chosen) == len(set(chosen)) <= EXAMPLES
    assert all(stage.supports(problem, EMULATOR.architecture) is None for problem in chosen)
    assert variant(stage, assembled(stage, EMULATOR)) in {variant(stage, problem) for problem in chosen}


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_files_that_were_committed_edited_or_made_since_a_commit_have_changed(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    for name in ("committed", "edited", "left"):
        (tmp_path / name).write_text("before")
    (tmp_path / ".gitignore").write_text("ignored\n")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "committed").write_text("after")
    _git(tmp_path, "commit", "-qam", "second")
    for name in ("edited", "new", "ignored"):
        (tmp_path / name).write_text("after")
    found = {path.name for path in changed_files(tmp_path, "HEAD~1")}
    assert found == {"committed", "edited", "new"}
    with pytest.raises(pytest.UsageError, match="--changed-since gone: "):
        changed_files(tmp_path, "gone")


def test_of_many_changed_stages_some_of_each_part_are_tested_thoroughly() -> None:
    items = [str(number) for number in range(100)]
    assert spread(items, 4) == ["0", "25", "50", "75"]
    assert spread(items[:4], 4) == items[:4]


@pytest.fixture
def conv2d_changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A commit since which one stage has changed."""
    (stage,) = registry.select(["conv2d:naive"])
    monkeypatch.setattr(sample, "changed_files", lambda repository, since: [Path(stage.path)])
    sample.changed.cache_clear()
    yield "a commit"
    sample.changed.cache_clear()


def test_a_stage_is_tested_thoroughly_where_a_file_of_it_changed(conv2d_changed: str) -> None:
    assert sample.changed_stages(conv2d_changed) == {"conv2d:naive"}


def test_of_operations_that_have_not_changed_each_test_is_left_with_its_first_and_last_item(
    conv2d_changed: str, request: pytest.FixtureRequest
) -> None:
    names = ["test_conv2d.py", "test_ssd.py", "test_profile.py"]
    files = [pytest.Module.from_parent(request.session, path=Path(__file__).parent / name) for name in names]
    items = list(itertools.chain.from_iterable(map(request.session.genitems, files)))
    left = sample.left_out(items, conv2d_changed)
    kept = [item for item in items if item not in left]
    assert all(item.path.name != "test_conv2d.py" for item in left)
    assert {item.originalname for item in kept} == {item.originalname for item in items}
    profiled = {item.callspec.params["spec"] for item in kept if item.originalname in sample.OF_A_STAGE}
    assert profiled == {operation.stages[0].spec for operation in registry.operations().values()}
    of_ssd = Counter(item.originalname for item in kept if item.path.name == "test_ssd.py")
    assert 1 <= max(of_ssd.values()) <= 2
    assert any(item.path.name == "test_ssd.py" for item in left)


def test_tests_of_the_emulator_are_left_out_where_nothing_that_they_depend_on_has_changed() -> None:
    def left(*changed: str) -> list[str]:
        return sample.unchanged([sample.ROOT / name for name in changed])

    headers = ["tests/test_headers.py", "tests/test_row_headers.py"]
    assert left("README.md", "workbench/report/plots.py") == ["tests/emulator", *headers]
    assert left("workbench/model/launch.py") == ["tests/emulator"]
    assert left("tests/emulator/cases.py", "cuda_src/include/tile/row.cuh") == []
    assert left("workbench/emulator/engine/race.cpp") == left("tests/conftest.py") == []


def test_what_tests_of_the_emulator_import_is_what_they_are_said_to_depend_on() -> None:
    sources = [path.read_text() for path in (sample.ROOT / "tests/emulator").glob("test_*.py")]
    imported = {name for text in sources for name in re.findall(r"^\s*(?:from|import) (workbench[\w.]*)", text, re.M)}
    assert {".".join(name.split(".")[:2]) for name in imported} == {"workbench.emulator"}


TOOL = """#!/bin/bash
echo "$(basename "$0") $*" >> {log}
if [ "$1" = wheel ]; then mkdir -p "$5" && touch "$5/a.whl"; fi
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin"
  for tool in pip python ruff mypy lint-imports clang-format workbench; do cp "$0" "$3/bin/$tool"; done
fi
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs `.ci/run` in a clone of two commits, with tools that do nothing but say how they were called."""
    clone, log = tmp_path / "clone", tmp_path / "log"
    (clone / ".ci").mkdir(parents=True)
    (clone / ".ci" / "run").write_text((sample.ROOT / ".ci" / "run").read_text())
    for tool in (tmp_path / "python", clone / ".ci" / "sanitized"):
        tool.write_text(TOOL.format(log=log))
        tool.chmod(0o755)
    for name in ("workbench/emulator/engine/a.cpp", "workbench/ops/a.cpp", "tests/engine/a.cpp"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("")
    _git(clone, "init", "-q", "-b", "main")
    for message in ("first", "second"):
        (clone / "README.md").write_text(message)
        _git(clone, "add", "-A")
        _git(clone, "commit", "-qm", message)

    def called(*arguments: str) -> str:
        log.write_text("")
        command = ["bash", str(clone / ".ci" / "run"), *arguments]
        done = subprocess.run(command, env=os.environ | {"PYTHON": str(tmp_path / "python")}, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return log.read_text()

    return called


def test_ci_takes_a_sample_since_the_commit_before_and_everything_where_it_is_asked_for(
    run: Callable[..., str], tmp_path: Path
) -> None:
    head, before = (
        subprocess.check_output(["git", "-C", str(tmp_path / "clone"), "rev-parse", name], text=True).strip()
        for name in ("HEAD", "HEAD^")
    )
    said = run()
    assert f"--changed-since {before}" in said and "sanitized" not in said and "tune" not in said
    assert f"--changed-since {head}" in run("--since", "HEAD")
    (tmp_path / "clone/workbench/emulator/engine/b.cpp").write_text("")
    assert "sanitized --build" in run()
    said = run("--full")
    assert "-m pytest" in said and "--changed-since" not in said and "sanitized --build" in said and "tune" in said
