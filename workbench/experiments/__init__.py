"""Short kernels that show one effect each: one parameter is swept, and the counters, or the times, say what it does.

An experiment is verified like any operation before it is counted in the emulator, and timed where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ..catalogue.registry import UnknownSpec
from ..model.errors import hint
from . import execution, memory
from .base import Experiment, Outcome, Point, Quantity

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Point", "Quantity", "select"]

EXPERIMENTS: tuple[Experiment, ...] = (
    memory.coalescing,
    memory.bank_conflicts,
    memory.swizzles,
    execution.divergence,
    execution.occupancy,
    execution.arithmetic_intensity,
    execution.tile_quantisation,
    execution.wave_quantisation,
    memory.raster_order,
)
"""All of them, in the order of the page."""


def select(names: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments of these names, in the order of the page; all where there is none. Raises UnknownSpec."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    wanted = set(names)
    for name in sorted(wanted - set(known)):
        raise UnknownSpec(f"there is no experiment {name!r}; {hint(name, known, 'experiments')}")
    return tuple(e for e in EXPERIMENTS if not wanted or e.name in wanted)
