"""Is what an operation declares sound? What a right kernel would answer has to pass, else no kernel is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.declared import BadOperation, declared
from ..model.dtypes import FP64
from ..model.problem import Problem, Tier
from .case import Case
from .comparison import compare

Values = np.ndarray[Any, Any]


def check(case: Case) -> None:
    """Raise BadOperation where the reference, rounded once to the outputs' types, is wrong by the operation's own
    bound, or where its exact tier is not exact."""
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
                    f"the exact tier is not exact on {case.problem}: {how}, {name}{list(at)} is {other[at]}, and in "
                    f"float64 {right[at]}; so a right kernel may give either. Draw inputs for which every product and "
                    "sum is representable, or leave `exact` out of the tiers and say in `not_exact` why"
                )


def _unchecked(problem: Problem, why: str) -> str:
    return (
        f"whether the exact tier is exact cannot be checked on {problem}: {why}; let the reference compute in the type "
        "that its inputs have after astype(np.float64), or define model(), which computes as a kernel does"
    )


def _evaluated(problem: Problem, inputs: Arrays) -> Iterator[tuple[str, Arrays]]:
    """The answer in the kernel's precision, in two orders; or, where there is no model, by the reference in fp32."""
    with declared("model of the operation"):
        forwards = problem.model(inputs)
        if forwards is not None:
            yield "in the model of the kernel", forwards
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


class _Single(np.ndarray[Any, Any]):
    """Numbers in fp32 that stay there when the reference asks for float64."""

    def astype(self, dtype: Any, *arguments: Any, **named: Any) -> Any:
        wanted = np.float32 if np.dtype(dtype) == np.float64 else dtype
        return super().astype(wanted, *arguments, **named)


def _single(values: Values) -> Values:
    whole_or_wide = values.dtype.kind in "iub" or values.dtype == np.float64
    return values if whole_or_wide else values.astype(np.float32).view(_Single)
