"""Random problems of an operation, drawn by Hypothesis from a seed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase

from ..catalogue import registry
from ..devices import Device
from ..model.declared import declared, where
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.stage import Stage


class Failed(Exception):
    """Tells Hypothesis that a problem failed; who raises it has the evidence."""


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
        draw(stage, device.name, supported, take, examples, seed)
    return list(found)


def draw(
    stage: Stage[Any],
    device: str,
    supported: Callable[[Any], bool],
    property_: Callable[[Any], bool],
    wanted: int,
    seed: int,
) -> None:
    """Run a property on supported problems for a device that Hypothesis draws from the seed until it wants no more,
    which is after `wanted` of them if no two are the same. Raises BadOperation where the operation's strategy fails."""
    what = f"problems of the operation, {where(registry.operation_of(stage).problems)},"
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
                found[:] = [failed]
                raise
            except Exception as error:
                raised.append(error)
                raise _Enough from None

        return called

    wants_more = ended(property_)

    def test_one(problem: Any) -> None:
        if not wants_more(problem):
            raise _Enough

    test = hypothesis.given(strategy.filter(ended(supported)))(test_one)
    test = _settings(wanted)(test)
    with contextlib.suppress(hypothesis.errors.Unsatisfiable, _Enough), warnings.catch_warnings():
        # not one problem was supported; and Dask's threads use `random` while strategies are drawn from
        warnings.filterwarnings("ignore", "Do not use the `random` module")
        try:
            hypothesis.seed(seed)(test)()
        except (Failed, hypothesis.errors.Unsatisfiable):
            raise
        except hypothesis.errors.Flaky as error:
            if found:  # while the failure was made smaller: it stands as it is
                raise found[0] from None
            with declared(what):
                raise error
        except Exception as error:
            with declared(what):
                raise error
    if raised:
        raise raised[0]


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


def _problems(stage: Stage[Any], device: str) -> hypothesis.strategies.SearchStrategy[Any]:
    """Problems of a size that suits the device, many of them near multiples of the stage's tiles."""
    operation: Operation[Any] = registry.operation_of(stage)
    size = operation.emulator_size if device == "emulator" else operation.cuda_size
    return operation.problems(size, tuple(sorted(set(stage.parameters.values()))))
