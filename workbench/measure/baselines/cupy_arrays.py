"""Baselines on arrays of CuPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...model import baseline as model
from ...model.arrays import Array
from ...model.problem import Problem
from .base import Prepared, installed, prepared


class CupyArrays:
    """Runs a declared baseline on CuPy arrays over device memory. Types that CuPy does not know come as their bits."""

    def __init__(self, declared: model.Baseline[Any]) -> None:
        self.declared, self.name, self.solves = declared, declared.name, declared.solves

    def version(self) -> str | None:
        if not installed(self.declared.requires):
            return None
        if self.declared.version:
            return self.declared.version()
        import cupy

        return f"cupy {cupy.__version__}"

    def refuses(self, problem: Problem) -> str | None:
        return self.declared.refuses(problem)

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        held = {name: _array(array, buffers[name]) for name, array in arrays.items()}

        def copy(to: Any, value: Any) -> None:
            to[...] = value

        return prepared(self.declared, problem, arrays, held, copy)


def _array(array: Array, buffer: Any) -> Any:
    import cupy

    dtype = array.dtype.numpy if array.dtype.itemsize > 1 or not array.dtype.is_float else np.dtype(np.uint8)
    strides = tuple(step * dtype.itemsize for step in array.element_strides)
    return cupy.ndarray(array.shape, dtype, buffer.data, strides)
