"""What happens between the samples of a launch, so that none can be told from another or prepared for."""

from __future__ import annotations

import secrets
from typing import Any

from ..devices.cuda import CudaPlan

MOST_TURNED = 1 << 20
"""Elements by which inputs are moved along at most."""


def by_chance() -> int:
    """A number of elements that nobody can foresee."""
    return 1 + secrets.randbelow(MOST_TURNED)


def turn(plan: CudaPlan) -> None:
    """Have other inputs of the same kind in the plan: its own come when nobody expects them."""
    plan.turn(by_chance())


class SampleReset:
    """Called before each cold sample with the name of who is next, and with none after the last.

    Outputs are unwritten then, and the inputs others, moved along by a number of elements that is drawn: no launch
    finds what one before it did. In one of the first `samples` of the plan's own, drawn as well, they are those of the
    problem, and the outputs are kept, to be judged. Without a `name` none are: the plan itself launches nothing."""

    def __init__(self, plan: CudaPlan, name: str | None, samples: int) -> None:
        self._plan, self._name = plan, name
        self._left = secrets.randbelow(max(1, samples))
        self._due = False
        self.kept: dict[str, Any] = {}
        """The outputs of the sample that was drawn, in memory of the device."""

    def __call__(self, name: str) -> None:
        plan = self._plan
        if self._due:
            outputs = (array for array, declared in plan.arrays.items() if declared.output and not declared.zero)
            self.kept = {array: plan.buffers[array].copy() for array in outputs}
        self._due = name == self._name and self._left == 0
        self._left -= name == self._name
        plan.turn(0 if self._due else by_chance())
        plan.poison()
