"""What operators of PyTorch are declared with. It is made without PyTorch, so it is tested where there is none."""

from __future__ import annotations

import pytest

from workbench import ops
from workbench.model.calls import Function
from workbench.ops import torch_library

FUNCTIONS = [value for value in map(ops.__dict__.get, ops.__all__) if isinstance(value, Function)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.operation.name)
def test_the_results_of_a_function_are_known_before_it_is_called(function: Function) -> None:
    count, collect = torch_library._results(function)
    assert count == sum(array.output for array in function.operation.suite[0].arrays().values())
    assert (collect is None) == (count == 1)
    assert torch_library.schema(function, count).startswith(f"{function.operation.name}(")
