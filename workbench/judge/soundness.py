"""Is what an operation declares sound? What a right kernel would answer has to pass, else no kernel is to blame; and
what a broken one would answer, the negative controls, has to be rejected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.distributions import Distribution, Single
from ..model.dtypes import FP64
from ..model.errors import BadOperation, declared
from ..model.launch import ceil_div
from ..model.problem import Problem, Tier
from ..model.results import WrongElement
from .case import Case, Comparison, compare

Values = np.ndarray[Any, Any]


def check(case: Case) -> None:
    """Raise BadOperation where the reference, rounded once to the outputs' types, or the operation's model of a kernel
    is wrong by the operation's own bound, where its exact tier is not exact, or its model computes as the reference."""
    for name, array in _outputs(case).items():
        right = array.dtype.rounded(case.expected[name])
        found = compare(name, array, right, case.expected[name], case.bound[name], case.problem.tier)
        if found.wrong_count:
            first = found.wrong[0]
            raise BadOperation(
                f"the reference of the operation does not pass its own comparison on {case.problem}: rounded once to "
                f"{array.dtype}, {name}{first.index} is {first.got}, the reference {first.expected}, and the error "
                f"allowed is {first.bound:.3g}; the bound has to allow the rounding of the result at least"
            )
    if case.problem.tier is Tier.EXACT:
        _check_exact(case)
    elif case.problem.tier is Tier.BOUNDED:
        with declared("model of the operation"):
            model = case.problem.model(case.inputs)
        beyond = [*_beyond(case, model or {})]
        if beyond and case.allowed is not case.bound:
            beyond = [*_beyond(case.by_rounding(), model or {})]
        for name, found in beyond:
            raise BadOperation(_tight(case, name, found.wrong[0], "in the model of the kernel"))
    else:
        _check_model(case)


NO_BETTER = 2.0**-45
"""Relative error of a model, of numbers that fp32 does not have, from which it computes in a type that kernels do."""


def _check_model(case: Case) -> None:
    """The comparative tier takes the error of the model for that of the kernel's precision."""
    with declared("model of the operation"):
        model = case.problem.model(case.inputs) or {}
    for name, found in _beyond(case, model):
        raise BadOperation(_tight(case, name, found.wrong[0], "in the model of the kernel", SIZES))
    for name, array in _outputs(case).items():
        right = case.expected[name]
        if name not in model or not array.dtype.is_float or array.dtype is FP64 or not np.isfinite(right).all():
            continue
        inexact = right.astype(np.float32) != right
        error = np.abs(model[name].astype(np.float64) - right)
        if inexact.any() and (error <= NO_BETTER * np.abs(right))[inexact].all():
            raise BadOperation(
                f"the model of the operation gives {name} as near as float64 on {case.problem}, so that no kernel that "
                f"computes in fp32 can be at most twice as far off. Let model() compute in the kernel's precision"
            )


AS_GOOD = 16.0
"""How many times as large as that of the reference in fp32 the error of a kernel may be that computes as well: NumPy
adds up pairs of parts, a kernel may go through a sum from its first term to its last."""


def check_bound(case: Case, answer: Arrays) -> None:
    """Raise BadOperation where an answer of a kernel is beyond the bound of the bounded tier, and so is the reference
    in fp32, by about as much: then no kernel that computes in fp32 can pass. `answer` are the outputs in float64."""
    if case.problem.tier is not Tier.BOUNDED or case.problem.model(case.inputs) is not None:
        return
    try:
        ((how, in_fp32),) = _evaluated(case.problem, case.inputs)
    except BadOperation:
        return  # nothing is known of what fp32 gives
    for name, found in _beyond(case, in_fp32):
        error = np.abs(answer[name] - case.expected[name])
        worst = float(np.max(np.divide(error, case.bound[name], out=np.zeros_like(error), where=error > NO_ERROR)))
        if worst <= AS_GOOD * found.worst:
            kernel = f"; the error of the kernel is up to {worst:.3g} times, that of fp32 {found.worst:.3g} times that"
            raise BadOperation(_tight(case, name, found.wrong[0], how) + kernel)


NO_ERROR = 2.0**-126
"""Errors below the smallest normal number of fp32 are those of the order in which products underflow."""


def _beyond(case: Case, answer: Arrays) -> Iterator[tuple[str, Comparison]]:
    """The outputs of which an answer, rounded to their types, is beyond the bound."""
    for name, array in _outputs(case).items():
        if name not in answer or array.dtype is FP64 or not array.dtype.is_float:
            continue
        bound = np.maximum(case.bound[name], NO_ERROR)
        found = compare(name, array, array.dtype.rounded(answer[name]), case.expected[name], bound, case.problem.tier)
        if found.wrong_count and np.isfinite(found.worst):
            yield name, found


SUMS = "Allow the rounding of sums, u sqrt(K) (|A||B|) for K products, and what comes after them"
SIZES = "Let magnitudes() give the size of the terms, where terms cancel"
"""What makes a bound wide enough in the bounded tier, and in the comparative tier."""


def _tight(case: Case, name: str, first: WrongElement, how: str, remedy: str = SUMS) -> str:
    kind = case.problem.distribution
    other = "" if kind is Distribution.NORMAL else f"; or name in `distributed` only the inputs that may be {kind}"
    return (
        f"the bound of the operation is too tight on {case.problem}: {how}, {name}{first.index} is {first.got}, the "
        f"reference {first.expected}, and the error allowed is {first.bound:.3g}, so that no kernel can pass that "
        f"computes in fp32. {remedy}{other}"
    )


def _outputs(case: Case) -> dict[str, Array]:
    return {name: array for name, array in case.arrays.items() if array.output}


def _check_exact(case: Case) -> None:
    for how, answer in _evaluated(case.problem, case.inputs):
        for name, array in _outputs(case).items():
            if array.dtype.is_float and array.dtype is not FP64 and answer[name].dtype == np.float64:
                raise BadOperation(_unchecked(case.problem, f"{how}, {name} is computed in float64 all the same"))
            other, right = (array.dtype.rounded(values[name]) for values in (answer, case.expected))
            differs = np.argwhere(~((other == right) | ((other != other) & (right != right))))
            if differs.size:
                at = tuple(int(i) for i in differs[0])
                raise BadOperation(
                    f"{REMEDY}, or draw inputs for which every product and sum is representable: the exact tier is not "
                    f"exact on {case.problem}. {how.capitalize()}, {name}{list(at)} is {other[at]}; in float64 it is "
                    f"{right[at]}. A right kernel may give either"
                )


REMEDY = 'declare that no inputs are exact, with the reason (not_exact="tanh is rounded")'
"""What to do first about an exact tier that is not exact."""


def _unchecked(problem: Problem, why: str) -> str:
    return (
        f"{REMEDY}, let the reference compute in the type that its inputs have, or define model(), which computes as a "
        f"kernel does: the exact tier cannot be checked on {problem}, because {why}"
    )


def _evaluated(problem: Problem, inputs: Arrays) -> Iterator[tuple[str, Arrays]]:
    """The answer in the kernel's precision, in two orders; or, where there is no model, by the reference in fp32."""
    with declared("model of the operation"):
        forwards = problem.model(inputs)
    if forwards is not None:
        yield "in the model of the kernel", forwards
        with declared("model of the operation"):
            backwards = problem.model(inputs, backwards=True)
        assert backwards is not None
        yield "in the model of the kernel with every sum the other way round", backwards
        return
    single = {name: _single(values) for name, values in inputs.items()}
    try:
        answer = problem.reference(single)
    except Exception as error:
        raise BadOperation(_unchecked(problem, f"the reference fails on arrays of fp32 ({error!r})")) from None
    yield "by the reference in fp32", {name: np.asarray(values) for name, values in answer.items()}


def _single(values: Values) -> Values:
    whole_or_wide = values.dtype.kind in "iub" or values.dtype == np.float64
    return values if whole_or_wide else values.astype(np.float32).view(Single)


EXTENT, MOST_FLOPS = 16, 2**25
"""Extents below the first are enlarged (a negative control of a tiny problem may be right by chance); no problem with
more work than the second is taken."""


def small(problem: Problem) -> bool:
    """Whether negative controls are tried on the problem: it is no large one. Raises BadOperation."""
    return telling(problem).cost.flops <= MOST_FLOPS


def weakness(problem: Problem) -> tuple[str, int]:
    """Why the comparison would not notice a broken kernel, or nothing where it would; and how many of them it rejected.

    Raises BadOperation."""
    asked = telling(problem)
    case = Case.of(asked)
    check(case)
    rejected, accepted = case.negative_controls()
    if accepted:
        # where terms of both signs cancel, the error of a long sum is as large as its result in half precision
        still = case.without_signs().negative_controls()[1]
        accepted = [name for name in accepted if name in still]
    if accepted:
        message = (
            f"the comparison accepts the negative control `{'`, `'.join(accepted)}` of {asked}; "
            "the bound of the operation has to be so tight that it is rejected"
        )
    elif not rejected:
        message = (
            "negative_controls of the operation has none that differs from the right one; "
            "it has to give some, so that the comparison can be tried on them"
        )
    else:
        message = ""
    return message, rejected


def telling(problem: Problem) -> Problem:
    """The problem with ordinary inputs, its extents enlarged until its negative controls are certain to be wrong: to
    multiples of what they were, so that what divides one, as groups of heads do, still does."""
    enlarged: dict[str, Any] = {}
    for name in problem.extents:
        extent = getattr(problem, name)
        enlarged[name] = ceil_div(EXTENT, extent) * extent if extent < EXTENT else extent
    with declared(f"{problem} with extents of {EXTENT} at least, on which negative controls are tried,"):
        return dataclasses.replace(problem, distribution=Distribution.NORMAL, **enlarged)
