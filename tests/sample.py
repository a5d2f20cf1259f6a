"""How thoroughly everything is tested: `pytest` alone takes a sample, `pytest --full` tests all.

A sample has every test, with its first set of parameters; of tests with an item a stage, the first stages of
operations; one in `ONE_IN` of the tests that are marked as `long`, or that mostly wait for processes.
`--changed-since REVISION` adds what has changed since a commit of git, and leaves out tests of the emulator where it
has not changed; `.ci/run` uses that. `pytest -k NAME`, and files named on the command line, are tested fully.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sampled import SAMPLED

from workbench.catalogue import registry
from workbench.cli.verify import affected
from workbench.devices import Device
from workbench.harness import drawn
from workbench.judge.left_out import distributions
from workbench.model.distributions import Distribution
from workbench.model.problem import Problem
from workbench.model.stage import Stage

ROOT = Path(__file__).parent.parent

EXAMPLES = 14
"""Problems that a sample is taken of."""

OF_KINDS = 3
"""One in so many distributions of inputs is in the sample of a stage."""

LEAST = 3
"""Problems of a sample, where the stage has so many."""

OF_AN_OPERATION = {
    "test_attention.py": "attention",
    "test_attention_backward.py": "attention_backward",
    "test_attention_varlen.py": "attention_varlen",
    "test_conv2d.py": "conv2d",
    "test_fft_conv.py": "fft_conv",
    "test_ssd.py": "ssd",
}
"""Files with tests of the kernels of one operation. Many of their items compile a kernel."""

_HEADERS = ("cuda_src/include", "tests/headers", "tests/header_trials.py", "tests/trials.py", "tests/test_headers.py")
_EMULATOR = ("workbench/emulator", "pyproject.toml", "tests/conftest.py")
_DEVICE = (*_EMULATOR, "workbench/toolchain", "workbench/devices", "workbench/model", "workbench/reference.py")
MADE_OF = {
    "tests/emulator": (*_EMULATOR, "tests/emulator", "tests/faults/plants.py"),
    "tests/test_headers.py": (*_DEVICE, *_HEADERS),
    "tests/test_row_headers.py": (*_DEVICE, *_HEADERS, "tests/test_row_headers.py"),
}
"""Tests that depend on few files, and those: the emulator imports nothing of the rest. Where none of these has changed
they would do the same again, since nothing in them is left to chance."""

OF_A_STAGE = {
    "test_stage": (
        *("workbench/catalogue", "workbench/devices", "workbench/emulator", "workbench/harness.py", "workbench/judge"),
        *("workbench/kernels", "workbench/model", "workbench/records", "workbench/reference.py", "workbench/run"),
        *("workbench/toolchain", "workbench/workers", "workbench/pytest_plugin.py"),
        *("pyproject.toml", "tests/conftest.py", "tests/sample.py", "tests/test_stages.py"),
    ),
    "test_no_stage_spills_registers": (
        *("workbench/catalogue", "workbench/kernels", "workbench/model", "workbench/records", "workbench/toolchain"),
        *("pyproject.toml", "tests/sample.py", "tests/test_occupancy.py"),
    ),
    "test_every_stage_can_be_profiled_on_a_problem_of_its_own": (),
}
"""Tests with an item a stage, and what they depend on besides the sources of the stage: where that has changed, items
of the first stage of each track stay, and otherwise of each operation, beside those of stages that have changed. That a
stage can be profiled says nothing that verification does not say, but for its sources."""

THAT_WAIT = ("test_cluster.py", "test_isolation.py", "test_kill_anywhere.py", "test_tutorial.py", "test_watch.py")
"""Files with tests that start processes and mostly wait for them."""

ONE_IN = 4
"""One in so many tests of `THAT_WAIT`, or marked as `long`, is in a sample."""

MOST_CHANGED = 12
"""Stages that are tested thoroughly because they changed: of more, so many, spread over all of them. A change of a
header that a hundred stages include takes no longer than that of one which ten include."""


def is_thorough(config: pytest.Config, stage: Stage[Any]) -> bool:
    """Whether everything is tested of a stage, and not a sample."""
    sampled = config.stash[SAMPLED]
    return sampled is None or (sampled.since is not None and stage.spec in changed_stages(sampled.since))


@cache
def changed(since: str) -> tuple[Stage[Any], ...]:
    """The stages of which a file has changed since a commit."""
    return tuple(affected(registry.stages(), changed_files(ROOT, since)))


def changed_stages(since: str) -> frozenset[str]:
    """The stages that are tested thoroughly since a commit, by name."""
    return frozenset(spread([stage.spec for stage in changed(since)], MOST_CHANGED))


def left_out(items: Sequence[pytest.Item], since: str | None) -> list[pytest.Item]:
    """The items that are not in a sample.

    Of tests with an item a stage: those of stages that have not changed, but for the first stage of each operation; of
    each track where what the test depends on has changed. Of other tests: those of all sets of parameters but the
    first, except for tests of an operation a stage of which has changed, and in files that have changed. Of tests that
    are long or wait, all but one in `ONE_IN`. Since a commit, of tests that depend on few files all where none of those
    has changed.
    """
    files = changed_files(ROOT, since) if since else []
    stages = changed(since) if since else ()
    operations = {stage.operation for stage in stages}
    specs = {stage.spec for stage in stages} | {o.stages[0].spec for o in registry.operations().values() if o.stages}
    tracks = specs | {stage.spec for stage in registry.stages() if stage.parent is None}
    same = tuple(ROOT / tests for tests in unchanged(files)) if since else ()
    of_tracks = {name for name, depends in OF_A_STAGE.items() if are_of(files, depends)}
    found: list[pytest.Item] = []
    of_a_test: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        if any(item.path.is_relative_to(tests) for tests in same):
            found.append(item)
        elif name in OF_A_STAGE and (spec := spec_of(item)):
            found += [] if spec in (tracks if name in of_tracks else specs) else [item]
        elif item.path not in files and OF_AN_OPERATION.get(item.path.name) not in operations:
            of_a_test.setdefault((item.path, name), []).append(item)
    first = [of_one[0] for of_one in of_a_test.values()]
    long = [item for item in first if item.path.name in THAT_WAIT or item.get_closest_marker("long")]
    found += [item for item in long if zlib.crc32(f"{item.path.name} {item.name}".encode()) % ONE_IN]
    return found + [item for of_one in of_a_test.values() for item in of_one[1:]]


def spec_of(item: pytest.Item) -> str | None:
    """The stage that an item is of, of a test with an item a stage."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    (given,) = item.callspec.params.values()
    stage = getattr(given, "stage", given)
    return str(getattr(stage, "spec", stage))


def are_of(files: Sequence[Path], places: Sequence[str]) -> bool:
    """Whether one of the files is one of these, or in one of these folders."""
    return any(file.is_relative_to(ROOT / place) for file in files for place in places)


def unchanged(files: Sequence[Path]) -> list[str]:
    """The tests of `MADE_OF` that depend on none of these files."""
    return [tests for tests, depends in MADE_OF.items() if not are_of(files, depends)]


def changed_files(repository: Path, since: str) -> list[Path]:
    """The files that differ from those of a commit, and new ones that git does not ignore. Raises UsageError."""

    def said(*arguments: str) -> list[Path]:
        command = ["git", "-C", str(repository), *arguments, "-z"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise pytest.UsageError(f"--changed-since {since}: {done.stderr.strip()}")
        return [repository / name for name in done.stdout.split("\0") if name]

    return said("diff", "--name-only", since) + said("ls-files", "--others", "--exclude-standard")


def spread(items: Sequence[str], most: int) -> Sequence[str]:
    """At most so many of the items, at equal distances."""
    return items if len(items) <= most else [items[number * len(items) // most] for number in range(most)]


def sample(stage: Stage[Any], device: Device) -> list[Problem]:
    """A few of the problems that a stage is verified on. They have every type, every layout and one in three of the
    distributions of inputs that all of them have, which are others for other stages; where there is a choice, they are
    compiled as another one is, or take less work."""
    problems = drawn(stage, device, examples=EXAMPLES, seed=0)
    timed = {variant(stage, problem) for problem in suite(stage, device)}
    chosen = cover(problems, words_of, lambda problem: variant(stage, problem), timed)
    left = (problem for problem in problems if problem not in chosen)
    chosen += [problem for problem, _ in zip(left, range(LEAST - len(chosen)), strict=False)]
    kinds = sorted({problem.distribution for problem in problems})
    for kind in kinds[zlib.crc32(stage.spec.encode()) % OF_KINDS :: OF_KINDS]:
        if all(problem.distribution is not kind for problem in chosen):
            chosen.append(_distributed(kind, chosen, problems, stage))
    return chosen


def words_of(problem: Problem) -> set[Hashable]:
    """Types and layouts of a problem."""
    return {(name, problem.text(name)) for name in problem.choices}


def variant(stage: Stage[Any], problem: Problem) -> Hashable:
    """What a stage is compiled with for a problem."""
    return tuple(sorted((name, str(value)) for name, value in stage.defines(problem).items()))


def cover(
    problems: Sequence[Problem],
    words: Callable[[Problem], set[Hashable]],
    variant_of: Callable[[Problem], Hashable],
    timed: Set[Hashable],
) -> list[Problem]:
    """Some of the problems, which have all the words: each time the one with most that are missing, of these one of a
    variant that there is, else one of a variant that is timed, and of these the one with the least work."""
    missing: set[Hashable] = set().union(*map(words, problems))
    chosen: list[Problem] = []
    variants: set[Hashable] = set()

    def worth(problem: Problem) -> tuple[int, bool, bool, float]:
        compiled = variant_of(problem)
        return len(missing & words(problem)), compiled in variants, compiled in timed, -problem.cost.flops

    while missing:
        chosen.append(max(problems, key=worth))
        missing -= words(chosen[-1])
        variants.add(variant_of(chosen[-1]))
    return chosen


def assembled(stage: Stage[Any], device: Device) -> Problem:
    """A problem of the sample, for whose variant spills are looked for: one that is timed, where there is one."""
    timed = {variant(stage, problem) for problem in suite(stage, device)}
    problems = sample(stage, device)
    return next((problem for problem in problems if variant(stage, problem) in timed), problems[0])


def suite(stage: Stage[Any], device: Device) -> list[Problem]:
    """The problems of the suite that a stage supports."""
    suite = registry.operation_of(stage).suite
    return [problem for problem in suite if stage.on(device.machine).supports(problem) is None]


def _distributed(
    kind: Distribution, chosen: Sequence[Problem], problems: Sequence[Problem], stage: Stage[Any]
) -> Problem:
    """A problem of this distribution that is compiled as a chosen one is: one of all, or a chosen one of little work
    with other inputs; where there is neither, one that is compiled anew."""
    variants = {variant(stage, problem) for problem in chosen}
    with_kind = [problem for problem in problems if problem.distribution is kind]
    for problem in with_kind:
        if variant(stage, problem) in variants:
            return problem
    for problem in sorted(chosen, key=lambda problem: problem.cost.flops):
        if kind in distributions(problem):
            return replace(problem, distribution=kind)
    return with_kind[0]
