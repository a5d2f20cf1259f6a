"""Random problems of an operation, drawn by Hypothesis from a seed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, configuration
from hypothesis import strategies as st

from ..catalogue import registry
from ..devices import Device
from ..model.arrays import WEIGHTS, Distribution
from ..model.operation import Operation
from ..model.origin import declared, where
from ..model.problem import Problem, Size
from ..model.stage import Stage
from ..toolchain.compiler import cache_folder
from .completing import Drawn, distributions
from .completing import Failed as Failed


class _Enough(BaseException):
    """Leaves Hypothesis, which takes every Exception for a failure of the test."""


def drawn(stage: Stage[Any], device: Device, *, examples: int, seed: int) -> list[Problem]:
    """The problems that `verify` would try of a stage that is right, in order: its edge cases, then random ones."""

    def supported(problem: Problem) -> bool:
        return stage.supports(problem, device.architecture) is None

    def take(problem: Problem) -> bool:
        found[problem] = None
        return len(found) < examples

    found: dict[Problem, None] = dict.fromkeys(filter(supported, stage.edge_cases[:examples]))
    if len(found) < examples:
        draw(stage, device.name, supported, take, examples - len(found), seed)
    return list(found)


def draw(
    stage: Stage[Any],
    device: str,
    supported: Callable[[Any], bool],
    property_: Callable[[Any], bool],
    wanted: int,
    seed: int,
    property_of_large: Callable[[Any], bool] | None = None,
) -> None:
    """Run a property on supported problems for a device that Hypothesis draws from the seed until it wants no more,
    which is after `wanted` of them if no two are the same. Those with an extent as large as in the suite are for
    `property_of_large`, where it is given. Raises BadOperation where the operation's strategy fails."""
    operation = registry.operation_of(stage)
    what = f"problems of the operation, {where(operation.problems)},"
    with declared(what):
        strategy = _problems(stage, device)
    raised: list[Exception] = []
    found: list[Failed] = []

    def ended(function: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """The function, which ends the drawing by whatever it raises: Hypothesis would try again, and say more."""

        def called(problem: Any) -> bool:
            try:
                return function(problem)
            except Failed as failed:
                found[:], so_far.failed = [failed], True
                raise
            except Exception as error:
                raised.append(error)
                raise _Enough from None

        return called

    wants_more = ended(property_)
    so_far = Drawn(operation, size_of(operation, device), wanted, seed)

    def test_one(problem: Any) -> None:
        so_far.add(problem)
        if not wants_more(problem) or so_far.enough:
            raise _Enough

    test = _settings(wanted)(hypothesis.given(strategy.filter(ended(supported)))(test_one))
    quiet = contextlib.suppress(hypothesis.errors.Unsatisfiable, _Enough)
    with quiet, _constants_in_the_cache(), warnings.catch_warnings():
        # not one problem was supported; and Dask's threads use `random` while strategies are drawn from
        warnings.filterwarnings("ignore", "Do not use the `random` module")
        try:
            hypothesis.seed(seed)(test)()
        except (Failed, hypothesis.errors.Unsatisfiable):
            raise
        except Exception as error:
            if found and isinstance(error, hypothesis.errors.Flaky):  # while it was made smaller: it stands as it is
                raise found[0] from None
            with declared(what):
                raise error
    if raised:
        raise raised[0]
    so_far.complete(supported, property_, property_of_large or property_)


@contextlib.contextmanager
def _constants_in_the_cache() -> Iterator[None]:
    """Hypothesis also draws constants of the modules that are loaded. What it finds in them is kept in the cache of the
    workbench and not in `.hypothesis` of the working directory: to find it takes a process a second."""
    before = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(cache_folder() / "hypothesis")
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(before)


def _settings(wanted: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=2 * wanted,  # duplicates do not count
        database=None,
        deadline=None,
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def _problems(stage: Stage[Any], device: str) -> st.SearchStrategy[Any]:
    """Problems of a size that suits the device, many of them near multiples of the stage's tiles, in all
    distributions of their inputs."""
    operation: Operation[Any] = registry.operation_of(stage)
    shapes = operation.problems(size_of(operation, device), _edges(stage))
    return st.tuples(shapes, st.integers(0, sum(WEIGHTS.values()) - 1)).map(_distributed)


def size_of(operation: Operation[Any], device: str) -> Size:
    """How large the problems of the device with this name may be."""
    return operation.emulator_size if device == "emulator" else operation.cuda_size


def _edges(stage: Stage[Any]) -> tuple[int, ...]:
    """Sizes of tiles: the stage's parameters, and products of two."""
    sizes = [size for size in stage.parameters.values() if size > 1]
    return tuple(sorted({*stage.parameters.values(), *(a * b for a, b in itertools.combinations(sizes, 2))}))


def _distributed(drawn: tuple[Problem, int]) -> Problem:
    """The problem in the distribution of this number; ordinary ones come first, where failures are made smaller."""
    problem, number = drawn
    kind = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)][number]
    if problem.distribution is not Distribution.NORMAL or kind not in distributions(problem):
        return problem
    return dataclasses.replace(problem, distribution=kind)
