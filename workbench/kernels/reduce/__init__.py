"""Sum or maximum of a matrix, along its columns, its rows, or of all its elements."""

from . import stages
from .problem import ReduceProblem
from .stages import REDUCE

__all__ = ["REDUCE", "ReduceProblem", "stages"]
