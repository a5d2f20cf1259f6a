"""Rotary position embedding: pairs of the elements of each head are rotated by the angles of their position."""

from . import stages
from .problem import RotaryProblem
from .stages import ROTARY

__all__ = ["ROTARY", "RotaryProblem", "stages"]
