"""Answers of broken kernels of the chunked scan, which have to be rejected."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ... import reference
from ...model.arrays import Arrays
from ..shared.controls import noticeable

Values = np.ndarray[Any, Any]

CHUNK = 64
"""Places of a chunk of a broken kernel."""


class Solved(Protocol):
    """What is asked of a problem."""

    @property
    def length(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def headdim(self) -> int: ...
    @property
    def dstate(self) -> int: ...
    def reference(self, inputs: Arrays) -> Arrays: ...
    def solved(self, inputs: Arrays, solver: Any, kind: Any) -> Arrays: ...


def controls(p: Solved, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """What broken kernels answer to a problem, by what is wrong with them."""
    log_a = inputs["log_a"]
    wrong = {
        "decays forgotten": p.reference({**inputs, "log_a": np.zeros_like(log_a)}),
        "decays by 2^x": p.reference({**inputs, "log_a": log_a * np.float32(np.log(2))}),
        "initial state forgotten": p.reference({**inputs, "h0": np.zeros_like(inputs["h0"])}),
        "b and c exchanged": p.reference({**inputs, "b": inputs["c"], "c": inputs["b"]}),
        "decayed after x was added": p.solved(inputs, _decayed_after, np.float64),
        "a place does not see itself": {**expected, "y": expected["y"] - _own(p, inputs)},
    }
    if p.length > 1:
        wrong["last place missing"] = {**expected, "h": _without_last(p, inputs)}
        late = np.roll(log_a, 1, axis=1)
        wrong["decays of the place before"] = p.reference({**inputs, "log_a": late})
    if p.length > CHUNK:
        wrong["state not handed to the next chunk"] = p.solved(inputs, _not_handed_on, np.float64)
        wrong["state not decayed over a chunk"] = p.solved(inputs, _not_decayed, np.float64)
    if p.groups > 1:
        other = {name: np.roll(inputs[name], 1, axis=2) for name in ("b", "c")}
        wrong["b and c of another group"] = p.reference(inputs | other)
    return {name: answer for name, answer in wrong.items() if noticeable(answer, expected, {"y": 0.1, "h": 0.1})}


def _own(p: Solved, inputs: Arrays) -> Values:
    """What every place adds to its own result."""
    dot = (inputs["b"].astype(np.float64) * inputs["c"].astype(np.float64)).sum(axis=-1)
    return np.asarray(np.repeat(dot, p.group, axis=2)[..., None] * inputs["x"].astype(np.float64))


def _without_last(p: Solved, inputs: Arrays) -> Values:
    """The state without the last place."""
    silent = {name: inputs[name].copy() for name in ("x", "log_a")}
    for values in silent.values():
        values[:, -1] = 0
    return p.reference(inputs | silent)["h"]


def _decayed_after(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    return reference.ssd(x * np.exp(log_a.astype(np.float64))[..., None], log_a, b, c, h0)


def _not_handed_on(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    cut = log_a.copy()
    cut[:, CHUNK::CHUNK] = -np.inf
    return reference.ssd(x, cut, b, c, h0)


def _not_decayed(x: Values, log_a: Values, b: Values, c: Values, h0: Values) -> tuple[Values, Values]:
    """Each chunk is right from the state it is given, which is the sum of those of all before it."""
    y, total = np.empty(x.shape), h0.astype(np.float64)
    for first in range(0, x.shape[1], CHUNK):
        at = slice(first, first + CHUNK)
        y[:, at], _ = reference.ssd(x[:, at], log_a[:, at], b[:, at], c[:, at], total)
        _, own = reference.ssd(x[:, at], log_a[:, at], b[:, at], c[:, at], np.zeros_like(total))
        total = total + own
    return y, total
