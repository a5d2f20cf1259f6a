"""What CI tests of stages that have not changed, and which stages have."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sample
from command_line import git
from sample import EXAMPLES, LEAST, assembled, changed_files, spread, variant, words_of
from sampled import Sampled

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import drawn
from workbench.model.distributions import Distribution
from workbench.model.stage import Stage

pytest_plugins = ["pytester"]

EMULATOR = open_device("emulator")
FIRST = [operation.stages[-1] for operation in registry.operations().values()]


@pytest.mark.parametrize("stage", FIRST, ids=lambda s: s.spec)
def test_a_sample_has_every_type_and_layout_of_the_problems(stage: Stage) -> None:
    problems, chosen = drawn(stage, EMULATOR, examples=EXAMPLES, seed=0), sample.sample(stage, EMULATOR)
    assert set().union(*map(words_of, chosen)) == set().union(*map(words_of, problems))
    assert LEAST <= len(chosen) == len(set(chosen)) <= EXAMPLES
    assert all(stage.supports(problem) is None for problem in chosen)
    assert variant(stage, assembled(stage, EMULATOR)) in {variant(stage, problem) for problem in chosen}


@pytest.mark.long
def test_the_samples_of_all_stages_have_every_distribution() -> None:
    found = (problem.distribution for stage in FIRST for problem in sample.sample(stage, EMULATOR))
    assert set(found) == set(Distribution)


def test_files_that_were_committed_edited_or_made_since_a_commit_have_changed(tmp_path: Path) -> None:
    git("init", "-q", folder=tmp_path)
    for name in ("committed", "edited", "left"):
        (tmp_path / name).write_text("before")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git("add", "-A", folder=tmp_path)
    git("commit", "-qm", "first", folder=tmp_path)
    (tmp_path / "committed").write_text("after")
    git("commit", "-qam", "second", folder=tmp_path)
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


Left = Callable[..., tuple[dict[str, set[str]], Counter[str]]]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Left]:
    """What is left of a few files of tests where these files have changed: the stages by test, and the number of items
    by file and test."""
    names = ["test_conv2d.py", "test_ssd.py", "test_occupancy.py", "test_profile.py", "test_stages.py"]
    files = [pytest.Module.from_parent(request.session, path=Path(__file__).parent / name) for name in names]
    items = list(itertools.chain.from_iterable(map(request.session.genitems, files)))

    def of(*changed: str) -> tuple[dict[str, set[str]], Counter[str]]:
        monkeypatch.setattr(sample, "changed_files", lambda repository, since: [sample.ROOT / c for c in changed])
        sample.changed.cache_clear()
        left = set(sample.left_out(items, "a commit"))
        stages: dict[str, set[str]] = {}
        for item in items:
            if item not in left and item.originalname in sample.OF_A_STAGE:
                stages.setdefault(item.originalname, set()).add(str(sample.spec_of(item)))
        return stages, Counter(f"{i.path.stem} {i.originalname}" for i in items if i not in left)

    yield of
    sample.changed.cache_clear()


VERIFIED, SPILLS, PROFILED = sample.OF_A_STAGE
ALL = {stage.spec for stage in registry.stages()}
FIRST_ONES = {operation.stages[0].spec for operation in registry.operations().values()}
TRACKS = {stage.spec for stage in registry.stages() if stage.parent is None}


def test_what_has_changed_says_which_stages_and_which_tests_of_an_operation_are_left(kept: Left) -> None:
    stages, plain = kept("docs/index.md")
    assert stages == {VERIFIED: FIRST_ONES, SPILLS: FIRST_ONES, PROFILED: FIRST_ONES}
    (stage,) = registry.select(["conv2d:tensor_core"])
    stages, items = kept(str(Path(stage.path).relative_to(sample.ROOT)))
    assert stages == dict.fromkeys(sample.OF_A_STAGE, FIRST_ONES | {stage.spec})
    of_ssd = [number for name, number in plain.items() if name.startswith("test_ssd ")]
    assert max(of_ssd) == 1 and [n for name, n in items.items() if name.startswith("test_ssd ")] == of_ssd
    assert sum(n for name, n in plain.items() if "conv2d" in name) < sum(n for k, n in items.items() if "conv2d" in k)
    assert plain.keys() <= items.keys()
    stages, _ = kept("workbench/judge/case.py")
    assert stages == {VERIFIED: TRACKS, SPILLS: FIRST_ONES, PROFILED: FIRST_ONES}
    stages, _ = kept("workbench/toolchain/compiler.py")
    assert stages == {VERIFIED: TRACKS, SPILLS: TRACKS, PROFILED: FIRST_ONES}
    assert FIRST_ONES < TRACKS


def test_a_file_of_tests_that_has_changed_keeps_all_of_its_items(kept: Left) -> None:
    _, plain = kept("docs/index.md")
    _, items = kept("tests/test_ssd.py")
    of_ssd = {name for name in plain if name.startswith("test_ssd ")}
    assert all(items[name] >= plain[name] for name in of_ssd)
    assert sum(items[name] for name in of_ssd) > sum(plain[name] for name in of_ssd)


def test_a_sample_keeps_each_test_with_its_first_parameters(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_once(): ...

        @pytest.mark.parametrize("number", range(9))
        def test_often(number): ...
    """)
    items, _ = pytester.inline_genitems()
    left = {item.name for item in items} - {item.name for item in sample.left_out(items, None)}
    assert left == {"test_once", "test_often[0]"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), Sampled()),
        (("tests",), Sampled()),
        (("-q", "-x"), Sampled()),
        (("--changed-since", "HEAD"), Sampled("HEAD")),
        (("--changed-since", "HEAD", "-k", "naive"), Sampled("HEAD")),
        (("--sample", "tests/test_some.py"), Sampled()),
        (("--full",), None),
        (("-k", "naive"), None),
        (("-m", "gpu"), None),
        (("tests/test_some.py",), None),
        (("tests/test_some.py::test_x",), None),
    ],
)
def test_a_sample_is_taken_of_everything_and_not_of_what_is_named(
    arguments: tuple[str, ...], expected: Sampled | None, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\ntestpaths = tests\nmarkers = gpu: needs one")
    (pytester.mkdir("tests") / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (pytester.path / "tests" / "test_some.py").write_text("def test_x(): ...")
    assert Sampled.of(pytester.parseconfig(*arguments)) == expected


def _said(*arguments: str, addopts: str = "", code: int = 0) -> str:
    """What pytest says of tests of the repository, or of a few made up ones."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTEST_ADDOPTS": addopts}
    done = subprocess.run(command, env=environment, cwd=sample.ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_what_is_skipped_is_counted_by_its_reason_and_what_is_sampled_is_said(tmp_path: Path) -> None:
    files = {"conftest.py": (Path(__file__).parent / "conftest.py").read_text(), "test_some.py": SOME}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntestpaths = .\npythonpath = {Path(__file__).parent}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_ADDOPTS": ""}

    def said(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    lines = said().splitlines()
    assert "a sample of 2 of 10 tests; all: python -m pytest --full" in lines
    assert "skipped 1: could not import 'no_such_package': No module named 'no_such_package'" in lines
    assert "2 of" not in said("--full") and "9 passed, 1 skipped" in said("-k", "test_")


SOME = """
import pytest

@pytest.mark.parametrize("number", range(9))
def test_often(number): ...

def test_without():
    pytest.importorskip("no_such_package")
"""


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
echo "$(basename "$0") $* $PYTEST_ADDOPTS" >> {log}
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
    for name in (
        "workbench/emulator/engine/a.cpp",
        "workbench/ops/a.cpp",
        "tests/engine/a.cpp",
        "tests/emulator/captured/a.cpp",
    ):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("")
    git("init", "-q", "-b", "main", folder=clone)
    lines = [
        f"python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/{c}"
        for c in ("workbench run", "python -m pytest")
    ]
    for message in ("first", "second"):
        (clone / "README.md").write_text("\n".join([message, *lines]))
        git("add", "-A", folder=clone)
        git("commit", "-qm", message, folder=clone)

    def called(*arguments: str) -> str:
        log.write_text("")
        command = ["bash", str(clone / ".ci" / "run"), *arguments]
        done = subprocess.run(command, env=os.environ | {"PYTHON": str(tmp_path / "python")}, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return log.read_text()

    return called


@pytest.mark.long
def test_workers_of_xdist_take_a_sample_too_where_the_option_is_in_the_environment() -> None:
    pytest.importorskip("xdist", reason="of the extra test")
    options = "-n 1 --changed-since no-such-commit"
    # a worker asks git for that commit; else all tests pass
    _said("-q", "tests/emulator/test_rules.py", addopts=options, code=pytest.ExitCode.INTERNAL_ERROR)


@pytest.mark.long
def test_ci_takes_a_sample_since_a_commit_that_has_passed_and_everything_where_there_is_none(
    run: Callable[..., str], tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    head, before = (
        subprocess.check_output(["git", "-C", str(clone), "rev-parse", name], text=True).strip()
        for name in ("HEAD", "HEAD^")
    )
    for arguments in ((), ("--full",)):
        everything = run(*arguments)
        assert "-m pytest --full" in everything and "--changed-since" not in everything
        assert "sanitized --build" in everything and "tune" in everything
        assert (clone / ".ci/passed").read_text().strip() == head
        (clone / ".ci/passed").unlink()
    assert f"--changed-since {before}" in run("--since", "HEAD^")
    (clone / ".ci/passed").write_text(before)
    said = run()
    assert f"--changed-since {before}" in said and "sanitized" not in said and "tune" not in said
    (clone / "workbench/emulator/engine/b.cpp").write_text("")
    assert "sanitized --build" in run()
    (clone / ".ci/passed").write_text("0" * 40)  # of another history
    assert "--changed-since" not in run()
    (clone / ".ci/passed").unlink()
    git("checkout", "-qb", "branch", folder=clone)
    git("commit", "-qm", "third", "--allow-empty", folder=clone)
    assert f"--changed-since {head}" in run()
