"""Faults that really happen in hand-written kernels, each planted in a real one: what went wrong in hand-written
matrix products (1 to 10) and in asynchronous code for Hopper (11 to 23).

A new fault is one more entry; `test_catalogue.py` and `measure.py` take all of them.
"""

from __future__ import annotations

from planted_by_threads import HAND_WRITTEN
from planted_in_copies import HOPPER
from planting import PlantedFault

CATALOGUE: tuple[PlantedFault, ...] = (*HAND_WRITTEN, *HOPPER)
