"""Conditions of the kernels of a stage that came out one way in every problem, as a verdict lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.results import Untested

if TYPE_CHECKING:
    from ..emulator.coverage import Outcomes

OUTCOMES = {1: "never false", 2: "never true"}


def listed(outcomes: Outcomes) -> list[Untested]:
    """Those that came out one way, by their place; not those that the shape of a block settles in every launch."""
    found = [
        Untested(c.file, c.line, c.text, OUTCOMES[bits], sorted(c.depends_on), c.is_bound)
        for c, bits in outcomes.items()
        if bits in OUTCOMES and not c.is_settled
    ]
    return sorted(found, key=lambda one: (one.is_bound, one.file, one.line, one.text))
