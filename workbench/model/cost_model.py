"""How long a stage takes for a problem, predicted from what its blocks do: work tiles, rounds, k-iterations, bytes.

Every multiprocessor works on one tile after another. A round of tiles takes its iterations, each as long as its
multiply-adds or as the bytes that it loads into shared memory, and a time a tile for the prologue and the epilogue;
the last round is as long as the others, however few tiles are left, unless blocks share them out. A launch takes no
less than the bytes of the problem take at the bandwidth of memory.

    time = launch + copied / bandwidth
        + max(turns (iterations wait + tile) + rounds iterations (flops a + loaded b), moving)
    moving = max(bytes / bandwidth, requested / bandwidth of the L2)

Blocks that share a multiprocessor wait for memory at the same time: there are as many rounds as one of them has tiles
in turn. An iteration takes no less than it waits, however little it multiplies.

The constants are those of one stage on one card, for one kind of its work, fitted to times that were measured there.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

LEAST_SAMPLES = 6
"""Times of a stage from which its constants are fitted."""

LEAST_DIFFERENT = 4
"""Works that these have to be of: of one alone every constant is one time."""

L2_BANDWIDTH = 12.5e6
"""Bytes a microsecond that the L2 of a GH100 delivers in whole lines: 268 MB in 21 us and a launch for 2048x2048x2048
(`ping_pong`, H200). Where k-tiles begin within lines, each row of 128 bytes needs two: 120 tiles of 128 x 256 took 53
us for 2554x1336x2880, and 45 where blocks shared one operand."""

BANDWIDTHS = tuple(1e6 * 1.1**n for n in range(-15, 31))
"""Bytes a microsecond that are tried: 0.24 to 17 TB/s."""

MOST_SEEN = 0.7
"""Of the logarithm of an error, in the choice among bandwidths: one time that fits no constants does not decide."""

MOST_ALIKE = 1e10
"""Condition of the normal equations from which columns count as the same."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Work:
    """What a stage does for a problem.

    `tiles` are worked on by a block each, in `iterations` of the mainloop with `flops` operations on `loaded` bytes of
    operands. `shared`: blocks share out the tiles of the last round. `bytes` is what the problem has to read and write.
    So many blocks are `resident` on a multiprocessor at once. Work of another `kind` has constants of its own. `copied`
    are bytes that launches before have read and written. `requested` are the bytes of all lines that blocks get from
    the L2, 0 where these are not counted.
    """

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
    return Prediction(before + max(busy, moved), rounds, "tiles" if busy >= moved else "memory")


def fit(samples: Sequence[tuple[Work, float]], multiprocessors: int) -> Constants | None:
    """The constants with which predictions are nearest to the microseconds measured, relative errors squared and added
    up; None of too few samples.

    For each bandwidth, what memory bounds is told from the rest by the constants found so far, and those are fitted to
    the rest by least squares, none of them negative.
    """
    if len(samples) < LEAST_SAMPLES or len({work for work, _ in samples}) < LEAST_DIFFERENT:
        return None
    work, us = [w for w, _ in samples], np.array([t for _, t in samples])
    turns, iterations = (np.array(x) for x in ([w.turns(multiprocessors) for w in work], [w.iterations for w in work]))
    every = iterations * np.array([w.rounds(multiprocessors) for w in work])
    columns = [turns, every * [w.flops for w in work], every * [w.loaded for w in work], turns * iterations]
    matrix = np.column_stack([np.ones(len(us)), *columns])
    copied = np.array([float(w.copied) for w in work])
    found: list[tuple[float, tuple[float, ...], float]] = []
    known: dict[bytes, Floats] = {}  # many bandwidths bound the same
    for bandwidth in BANDWIDTHS:
        compute, moving = np.ones(len(us), bool), np.array([w.moving(bandwidth) for w in work])
        for _ in range(4):
            which = compute.tobytes() + (str(bandwidth).encode() if copied.any() else b"")
            if which not in known:
                known[which] = _least_squares(matrix[compute], us[compute], copied[compute] / bandwidth)
            chosen = known[which]
            times = chosen[0] + copied / bandwidth + np.maximum(matrix[:, 1:] @ chosen[1:], moving)
            bounded = matrix[:, 1:] @ chosen[1:] < moving
            found.append((float(np.minimum(np.log(times / us) ** 2, MOST_SEEN**2).sum()), tuple(chosen), bandwidth))
            if bounded.sum() > len(us) - LEAST_SAMPLES + 2 or (compute == ~bounded).all():
                break
            compute = ~bounded
    _, (launch, tile, flop, loaded, wait), bandwidth = min(found)
    made = Constants(launch, tile, flop, loaded, bandwidth, wait)
    error = statistics.median(abs(predict(w, made, multiprocessors).us / t - 1) for w, t in samples)
    return replace(made, error=error, samples=len(samples), least_us=float(us.min()))


def _least_squares(matrix: Floats, us: Floats, known: Floats) -> Floats:
    """The coefficients, none negative, of the smallest relative errors of microseconds of which some are known: of
    every choice of columns the best."""
    scaled = matrix / us[:, None]
    scale = np.sqrt((scaled**2).sum(axis=0))
    scaled, wanted = scaled / np.where(scale > 0, scale, 1), 1 - known / us
    products, right = scaled.T @ scaled, scaled.T @ wanted
    best, least = np.zeros(matrix.shape[1]), math.inf
    for count in range(1, matrix.shape[1] + 1):
        for columns in itertools.combinations(range(matrix.shape[1]), count):
            of = list(columns)
            if (scale[of] == 0).any() or np.linalg.cond(products[np.ix_(of, of)]) > MOST_ALIKE:
                continue
            part = np.linalg.solve(products[np.ix_(of, of)], right[of])
            error = float(((scaled[:, of] @ part - wanted) ** 2).sum())
            if (part >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(matrix.shape[1]), error
                best[of] = part
    found: Floats = best / np.where(scale > 0, scale, 1)
    return found
