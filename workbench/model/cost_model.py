"""How long a stage takes for a problem, predicted from what its blocks do: work tiles, rounds, k-iterations, bytes.

Every multiprocessor works on one tile after another. A round of tiles takes its iterations, each as long as its
multiply-adds or as the bytes that it loads into shared memory, and a time a tile for the prologue and the epilogue;
the last round is as long as the others, however few tiles are left, unless blocks share them out. Memory, and the L2,
take time for the bytes of the problem. Both times overlap, but not wholly: the longer one counts most.

    time = launch + copied / bandwidth + sqrt(busy^2 + moving^2)
    busy = turns (iterations wait + tile) + rounds iterations (flops a + loaded b)
    moving = max(bytes / bandwidth, requested / bandwidth of the L2)

Blocks that share a multiprocessor wait for memory at the same time: there are as many rounds as one of them has tiles
in turn. An iteration takes no less than it waits, however little it multiplies.

The constants are those of one stage on one card, for one kind of its work, fitted to times that were measured there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

LEAST_SAMPLES = 6
"""Times of a stage from which its constants are fitted."""

LEAST_DIFFERENT = 4
"""Works that these have to be of: of one alone every constant is one time."""

L2_BANDWIDTH = 16e6
"""Bytes a microsecond that the L2 of a GH100 delivers in whole lines. Where k-tiles begin within lines, each row of 128
bytes needs two: 120 tiles of 128 x 256 took 53 us for 2554x1336x2880, and 45 where blocks shared one operand (H200).
With 12 TB/s what is chosen for 2048^3 takes 1.1 times as long as the fastest stage, with 20 what is chosen for such."""

LEAST, MOST = (0.05, 1e-4, 1e-13, 1e-13, 1e-5, 0.2e6), (40.0, 60.0, 1.0, 1.0, 50.0, 2e7)
"""Between which the constants are looked for: microseconds a launch, a tile, an operation, a loaded byte and a wait,
and the bandwidth."""

BEGINNINGS = ((4.0, 1.0, 1e-7, 1e-7, 0.05, 2e6), (4.0, 1.0, 1e-6, 1e-9, 1e-3, 1e6), (8.0, 3.0, 1e-8, 1e-6, 0.5, 4e6))
"""From which the search begins; the best of what it finds is taken."""

STEPS, MUCH, NOTHING = 100, 0.4, 0.005
"""Steps of a search; the logarithm of an error from which on it counts less, and part of every time below which a
constant counts as zero."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Work:
    """What a stage does for a problem.

    `tiles` are worked on by a block each, in `iterations` of the mainloop with `flops` operations on `loaded` bytes of
    operands: together at least as many operations as the problem has. `shared`: blocks share out the tiles of the last
    round. `bytes` is what the problem has to read and write. So many blocks are `resident` on a multiprocessor at once.
    Work of another `kind` has constants of its own. `copied` are bytes that launches before have read and written.
    `requested` are the bytes of all lines that blocks get from the L2, 0 where these are not counted."""

    tiles: int
    iterations: int
    flops: int
    loaded: int
    bytes: int
    shared: bool = False
    resident: int = 1
    kind: str = ""
    copied: int = 0
    requested: int = 0

    def rounds(self, multiprocessors: int) -> float:
        """Tiles that the busiest multiprocessor works on."""
        each = self.tiles / multiprocessors
        return each if self.shared and each > 1 else math.ceil(each)

    def turns(self, multiprocessors: int) -> float:
        """Rounds of as many tiles as are worked on at once."""
        rounds = self.rounds(multiprocessors)
        return rounds if self.resident == 1 else math.ceil(rounds / self.resident)

    def moving(self, bandwidth: float) -> float:
        """Microseconds in which the memory, at so many bytes a microsecond, and the L2 deliver what is needed."""
        return max(self.bytes / bandwidth, self.requested / L2_BANDWIDTH)


@dataclass(frozen=True)
class Constants:
    """Of a stage on a card: microseconds a launch and a tile, microseconds an operation and a loaded byte of one
    multiprocessor, bytes of memory a microsecond of all, and microseconds that an iteration waits. `error` is the
    median of relative ones on what was measured, of so many `samples`, the shortest of which took `least_us`."""

    launch_us: float
    tile_us: float
    flop_us: float
    loaded_us: float
    bandwidth: float
    wait_us: float = 0.0
    error: float = 0.0
    samples: int = 0
    least_us: float = 0.0

    def covers(self, us: float) -> bool:
        """Whether such a time is not far from all that was measured: of a launch that is much shorter, what is fixed
        decides, which the fit hardly sees."""
        return 2 * us >= self.least_us


@dataclass(frozen=True)
class Prediction:
    """`bound` is what takes the time: `tiles` or `memory`."""

    us: float
    rounds: float
    bound: str


def predict(work: Work, constants: Constants, multiprocessors: int) -> Prediction:
    """The time of a launch from a cold L2."""
    c, rounds = constants, work.rounds(multiprocessors)
    busy = rounds * work.iterations * (work.flops * c.flop_us + work.loaded * c.loaded_us)
    busy += work.turns(multiprocessors) * (work.iterations * c.wait_us + c.tile_us)
    moved = work.moving(c.bandwidth)
    before = c.launch_us + work.copied / c.bandwidth
    return Prediction(before + math.hypot(busy, moved), rounds, "tiles" if busy >= moved else "memory")


def least_us(flops: int, moved: int, constants: Constants, multiprocessors: int) -> float:
    """Microseconds that no work takes less than which has so many operations in all and moves so many bytes of memory,
    whatever its tiles."""
    c = constants
    return c.launch_us + math.hypot(flops / multiprocessors * c.flop_us + c.wait_us + c.tile_us, moved / c.bandwidth)


def fit(samples: Sequence[tuple[Work, float]], multiprocessors: int) -> Constants | None:
    """The constants with which the logarithms of predictions are nearest to those of the microseconds measured, by
    SciPy's least squares, in which large errors count less; None of too few samples. What takes no part worth
    mentioning of any time is zero. Raises ImportError without SciPy (`kernel-workbench[stats]`)."""
    if len(samples) < LEAST_SAMPLES or len({work for work, _ in samples}) < LEAST_DIFFERENT:
        return None
    from scipy.optimize import least_squares

    measured, bounds = _Measured(samples, multiprocessors), np.log((LEAST, MOST))
    how = {"bounds": bounds, "loss": "soft_l1", "f_scale": MUCH, "max_nfev": STEPS}
    searches = (least_squares(measured.errors, np.log(x), measured.slopes, **how) for x in BEGINNINGS)
    constants = np.exp(min(searches, key=lambda search: search.cost).x)
    constants[1:5] *= (constants[1:5] * measured.parts > NOTHING * measured.us[:, None]).any(axis=0)
    launch, tile, flop, loaded, wait, bandwidth = (float(x) for x in constants)
    made = Constants(launch, tile, flop, loaded, bandwidth, wait)
    error = statistics.median(abs(predict(w, made, multiprocessors).us / t - 1) for w, t in samples)
    return replace(made, error=error, samples=len(samples), least_us=float(measured.us.min()))


def misfit(samples: Sequence[tuple[Work, float]], constants: Constants, multiprocessors: int) -> float:
    """What `fit` makes small, of these constants."""
    logs = np.log([predict(work, constants, multiprocessors).us / us for work, us in samples])
    return float((np.sqrt(1 + (logs / MUCH) ** 2) - 1).sum())


class _Measured:
    """Times, and what of the work they depend on. Constants, as their logarithms, are those of a launch, a tile, an
    operation, a loaded byte, a wait, and the bandwidth."""

    def __init__(self, samples: Sequence[tuple[Work, float]], multiprocessors: int) -> None:
        works = [work for work, _ in samples]
        self.us = np.array([us for _, us in samples])
        turns, iterations = (
            np.array(x) for x in ([w.turns(multiprocessors) for w in works], [w.iterations for w in works])
        )
        every = iterations * np.array([w.rounds(multiprocessors) for w in works])
        columns = [turns, every * [w.flops for w in works], every * [w.loaded for w in works], turns * iterations]
        self.parts: Floats = np.column_stack(columns).astype(float)
        self.bytes, self.requested, self.copied = (
            np.array([float(getattr(w, name)) for w in works]) for name in ("bytes", "requested", "copied")
        )

    def errors(self, logs: Floats) -> Floats:
        """The logarithms of predicted times over those measured."""
        return self._predicted(logs)[0]

    def slopes(self, logs: Floats) -> Floats:
        """Their derivatives by the logarithms of the constants."""
        return self._predicted(logs)[1]

    def _predicted(self, logs: Floats) -> tuple[Floats, Floats]:
        constants = np.exp(logs)
        each, bandwidth = self.parts * constants[1:5], constants[5]
        busy, by_memory, by_l2 = each.sum(axis=1), self.bytes / bandwidth, self.requested / L2_BANDWIDTH
        moving = np.maximum(by_memory, by_l2)
        both, before = np.hypot(busy, moving), self.copied / bandwidth
        times = constants[0] + before + both
        of_memory = before + np.where(by_memory >= by_l2, moving * moving / both, 0.0)
        slopes = np.column_stack([np.full(len(times), constants[0]), each * (busy / both)[:, None], -of_memory])
        return np.log(times / self.us), slopes / times[:, None]
