"""The stages and problems that a command line names."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import click

from ..catalogue import registry
from ..inspect.profile import default_problem
from ..model.errors import WorkbenchError
from ..model.origin import declared
from ..model.problem import Problem, ProblemError
from ..model.stage import Stage


def one_stage(spec: str, problem_text: str | None) -> tuple[Stage[Any], Problem]:
    """The one stage that is named and the problem that it is to work on, a small one where none is given."""
    stages = registry.select((spec,))
    if len(stages) != 1:
        raise click.UsageError(f"{spec} names {len(stages)} stages ({', '.join(s.spec for s in stages)}); choose one")
    (stage,) = stages
    problem = problems_of(stages, problem_text).get(stage.operation) or default_problem(stage)
    if reason := stage.supports(problem):
        raise click.UsageError(f"{stage.spec} does not take {problem}: {reason}")
    return stage, problem


def problems_of(stages: Sequence[Stage[Any]], text: str | None) -> dict[str, Problem]:
    """`text` as a problem of every operation that the stages belong to. Raises ProblemError."""
    if text is None:
        return {}
    parsed: dict[str, Problem] = {}
    wrong: dict[str, str] = {}
    for name in dict.fromkeys(s.operation for s in stages):
        try:
            parsed[name] = registry.operations()[name].problem.parse(text)
            _check_memory(parsed[name])
        except ProblemError as error:
            wrong[name] = str(error)
    if wrong and parsed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in wrong.items())
        raise ProblemError(
            f"--problem {text!r} is a problem of {', '.join(parsed)} and not of {', '.join(wrong)} ({reasons}); "
            f"select one operation, for example: {next(iter(parsed))}"
        )
    if wrong:
        raise ProblemError(f"--problem {text!r}: " + "; ".join(f"{name}: {reason}" for name, reason in wrong.items()))
    return parsed


def suites_of(stages: Sequence[Stage[Any]], texts: Sequence[str]) -> dict[str, tuple[Problem, ...]]:
    """The texts as problems of every operation that the stages belong to. Raises ProblemError."""
    parsed = [problems_of(stages, text) for text in texts]
    return {name: tuple(problems[name] for problems in parsed) for name in (parsed[0] if parsed else ())}


def _check_memory(problem: Problem) -> None:
    """Refuse a problem whose float64 reference alone is larger than the machine's memory. Raises WorkbenchError."""
    with declared("arrays of the operation"):
        needed = sum(8 * math.prod(array.shape) for array in problem.arrays().values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        gib = f"{needed / 2**30:,.0f} GiB for its NumPy reference and this machine has {memory / 2**30:,.0f}"
        raise WorkbenchError(f"there is not enough memory for {problem}: it needs at least {gib}")
