"""Inclusive sums along the rows of a matrix: y[r, c] = sum_{j <= c} x[r, j]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.dtypes import FP32
from ..model.launch import Argument, Launch, Plan, ceil_div, scaled
from ..model.problem import Tier, draw_values
from .rows import groups, ladder
from .rows.baselines import beside
from .rows.problem import FLOATS, RowProblem
from .shared import call_on_rows


@dataclass(frozen=True)
class ScanProblem(RowProblem):
    """x, y: (rows, columns). Sums are kept in fp32. From the first NaN of a row on its sums are NaN."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "out": FLOATS, "values": ("normal",)}

    def inputs(self) -> Arrays:
        rng = self.rng()
        if self.tier is Tier.EXACT:
            return {"x": draw_values(rng, self.tier, (self.rows, self.columns), self.in_type)}
        return {"x": self.draw_rows(rng)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.scan(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        magnitude = reference.scan(np.abs(inputs["x"]))
        terms = np.arange(1, self.columns + 1, like=magnitude)
        return {"y": bounds.dot_products(expected["y"], magnitude, terms, self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "not summed": x,
            "exclusive": y - x,
            "from the end": reference.scan(x[:, ::-1])[:, ::-1],
            "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
            "last column missing": np.where(np.arange(self.columns) == self.columns - 1, 0.0, y),
        }
        if self.columns > 32:
            wrong["no carry"] = y - np.where(np.arange(self.columns) >= 32, y[:, 31:32], 0.0)
        return {name: {"y": value} for name, value in wrong.items()}


def fastest(p: ScanProblem) -> tuple[str, ...]:
    """Rows are held by lanes or a block each where one can; of others, many have a block each, and few are scanned in
    parts."""
    held = ("registers",) if groups.by_block(p) else ()
    parts = ("look_back", "split_rows") if p.rows < 2 * scaled(groups.ENOUGH) else ()
    return (*held, *parts, "block_row", "vectorized")


SCAN = ladder.row_operation(
    ScanProblem,
    "scan",
    "inclusive sums along the rows of a matrix",
    fastest,
    suite=(("fp32", 1, 2**28), ("fp32", 16384, 4096), ("fp32", 131072, 128), ("bf16", 16384, 8192)),
)

ladder.declare_first(
    SCAN,
    "x",
    "y",
    warp="a warp shares a row and adds up by shuffles",
    vectorized="16 bytes a load and a store; a lane first adds up its own elements",
)

LONG = (ScanProblem(rows=1, columns=40_000, out="bf16"), ScanProblem(rows=2, columns=9001, dtype="fp32", out="fp32"))


@SCAN.stage(
    "block_row",
    after="vectorized",
    idea="a block shares a row, with several vectors a thread",
    parameters={"THREADS": 512, "VECTORS": 1},
    space={"THREADS": ladder.THREADS, "VECTORS": (1, 2, 4)},
    supports=groups.worth_splitting,
    edge_cases=LONG,
)
def block_row(p: ScanProblem, size: Mapping[str, int]) -> Launch:
    return Launch("scan_block_row", (p.rows, 1, 1), (size["THREADS"], 1, 1), ("x", "y", *p.scalars()))


@SCAN.stage(
    "split_rows",
    after=block_row,
    idea="few rows are split over all blocks; a second kernel adds the sums of the parts before",
    problem=ScanProblem(rows=1, columns=2**28),
    parameters={"THREADS": 512, "VECTORS": 1, "TARGET": 528},
    space={"THREADS": ladder.THREADS, "VECTORS": (1, 2, 4), "TARGET": (528, 1056, 2112)},
)
def split_rows(p: ScanProblem, size: Mapping[str, int]) -> Plan:
    count, launch = ladder.on_parts(p, size)
    columns, ldx = np.int32(p.columns), np.int64(p.ldx)
    first = launch("scan_parts", ("x", "partial", columns, ldx))
    second = launch("scan_rest", ("x", "partial", "y", columns, ldx, np.int64(p.ldy)))
    return Plan((first, second), scratch={"partial": Array((p.rows * count,), FP32, output=True)})


@SCAN.stage(
    "registers",
    after="vectorized",
    idea="threads hold the row in registers: all loads are in flight at once",
    parameters=ladder.HELD,
    sizes=groups.block,
    supports=groups.fits(groups.block, ladder.HELD, "a block"),
    edge_cases=(
        ScanProblem(rows=2, columns=20_000, out="bf16"),
        ScanProblem(rows=3, columns=9001, dtype="fp32", out="fp32"),
        ScanProblem(rows=70, columns=40, out="bf16"),
    ),
)
def registers(p: ScanProblem, size: Mapping[str, int]) -> Launch:
    return ladder.held_rows("scan_registers", p, size, ("x", "y", *p.scalars()))


LOOK_BACK = {"THREADS": 512, "VECTORS": 8, "EACH": 2, "TARGET": 132}
"""Threads of a block, twice as many for whole vectors of four bytes an element; vectors of a part that a thread holds
at most; sums of parts that a lane waits for; parts of all rows up to which a thread holds fewer."""

MOST_POSTED = 2**20
"""Sums that the last block clears."""


def _posted(p: ScanProblem, size: Mapping[str, int]) -> tuple[int, int]:
    """Parts of a row, and their groups."""
    parts = ceil_div(groups.vectors(p), size["THREADS"] * size["VECTORS"])
    return parts, ceil_div(parts, ladder.WARP * size["EACH"])


def _of_parts(p: ScanProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As few vectors a thread as make TARGET parts; in the largest blocks that leave a thread its registers."""
    held, threads = 1, size["THREADS"] * (2 if p.widest == 4 and groups.defines(p)["EVEN"] else 1)
    while held < size["VECTORS"]:
        if p.rows * _posted(p, {**size, "THREADS": threads, "VECTORS": held})[0] <= scaled(size["TARGET"]):
            break
        held *= 2
    return {"THREADS": threads, "VECTORS": held}


def _few_posted(p: ScanProblem, size: Mapping[str, int]) -> str | None:
    """One warp is not to clear too much."""
    if p.rows * sum(_posted(p, {**size, **_of_parts(p, size)})) <= MOST_POSTED:
        return None
    return f"{p.rows} rows have more parts than one warp clears"


@SCAN.stage(
    "look_back",
    after=registers,
    idea="one pass: a block waits for the sums of the parts before its own",
    problem=ScanProblem(rows=1, columns=2**28),
    parameters=LOOK_BACK,
    space={"THREADS": (128, 256, 512), "VECTORS": (2, 4, 8), "EACH": (1, 2, 4), "TARGET": (132, 264, 528)},
    sizes=_of_parts,
    supports=groups.worth_splitting,
    constraint=_few_posted,
    edge_cases=(
        *LONG,
        ScanProblem(rows=1, columns=535_000, dtype="fp32", out="fp32"),  # three groups of parts
        ScanProblem(rows=45, columns=8240, dtype="fp32", out="fp32"),  # parts with two vectors a thread
    ),
)
def look_back(p: ScanProblem, size: Mapping[str, int]) -> Plan:
    parts, together = _posted(p, size)
    posted = Array((p.rows * (parts + together), 2), FP32, output=True, zero=True)
    counters = Array((2,), FP32, output=True, zero=True)  # 4 bytes each
    args: tuple[Argument, ...] = ("x", "y", "posted", "counters", *p.scalars(), np.int32(parts), np.int32(together))
    launch = Launch("scan_look_back", (p.rows * parts, 1, 1), (size["THREADS"], 1, 1), args)
    return Plan((launch,), scratch={"posted": posted, "counters": counters})


# ---------------------------------------------------------------------------------------------- as a function on arrays


@SCAN.function
def scan(x: Any, *, out_dtype: Any = None) -> Call:
    """Inclusive sums along the last axis, added up in fp32. x: (..., columns), as for `softmax`."""
    return call_on_rows("scan", ScanProblem, ("y",), out_dtype, {"x": x})


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any) -> Any:
    import torch

    return torch.cumsum(x, -1, dtype=x.dtype)


def _numpy(p: Any, x: Any) -> Any:
    return np.cumsum(x, axis=1, dtype=np.float32)


beside(SCAN, _torch, _numpy)
