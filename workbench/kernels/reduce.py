"""Sum or maximum of a matrix, along its columns, its rows, or of all its elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.dtypes import FP32, dtype_of
from ..model.launch import Argument, Launch, Plan, ceil_div, scaled
from ..model.operation import Operation
from ..model.parts import Axis, Part
from ..model.problem import Size, Tier, draw_values
from ..model.stage import every_problem
from .rows import groups
from .rows.baselines import beside
from .rows.ladder import THREADS, WARP
from .rows.problem import FLOATS, VALUES, RowProblem, row_problems
from .shared import common_dtype, rows_of


@dataclass(frozen=True)
class ReduceProblem(RowProblem):
    """x: (rows, columns) with `pad_x` elements between its rows; y: (rows,), (columns,) or (1,) of type `out`.

    A sum with NaN, or with infinities of both signs, is NaN; a maximum with NaN is NaN."""

    op: str = "sum"
    over: str = "columns"

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "out": FLOATS,
        "values": VALUES,
        "op": ("sum", "max"),
        "over": ("columns", "rows", "all"),
    }

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.rows}x{self.columns} {self.dtype}{out} {self.op} over {self.over}"

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return {"columns": self.rows, "rows": self.columns, "all": 1}[self.over]

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.rows, self.columns), self.in_type, self.ldx),
            "y": Array((self.outputs,), self.out_type, output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        if self.over == "all":
            return ()
        field, at = ("rows", 0) if self.over == "columns" else ("columns", 1)
        return (Axis(field, {"x": at, "y": 0}),)

    def drawn_parts(self, rng: np.random.Generator, stratum: int) -> list[Part]:
        return super().drawn_parts(rng, stratum) or [Part(self, {})]

    def inputs(self) -> Arrays:
        rng = self.rng()
        if self.tier is Tier.EXACT:
            return {"x": draw_values(rng, self.tier, (self.rows, self.columns), self.in_type)}
        return {"x": self.draw_rows(rng)}

    def _solved(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return reference.reduce(x, op=self.op, over=self.over)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": self._solved(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        y = expected["y"]
        if self.op == "max":  # no arithmetic
            return {"y": self.out_type.unit_roundoff * np.abs(y) + self.out_type.smallest}
        magnitude = reference.reduce(np.abs(inputs["x"]), over=self.over)
        return {"y": bounds.dot_products(y, magnitude, self.rows * self.columns // self.outputs, self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        last = y.copy()
        last[-1] = 0.0
        wrong = {"all zeros": np.zeros_like(y), "shifted by one": np.roll(y, 1), "last element missing": last}
        if self.rows * self.columns // self.outputs > 1:
            half = x[:, : (self.columns + 1) // 2] if self.over == "columns" else x[: (self.rows + 1) // 2]
            wrong["of the first half"] = self._solved(half)
        if self.op == "sum" and self.tier is Tier.EXACT:
            dropped = x.copy()
            dropped[-1, :] = 0
            wrong["last row dropped"] = self._solved(dropped)
            dropped = x.copy()
            dropped[:, -1] = 0
            wrong["last column dropped"] = self._solved(dropped)
        if self.op == "max":
            wrong["of magnitudes"] = self._solved(np.abs(x))
            wrong["starts from zero"] = np.maximum(y, 0)
        return {name: {"y": value} for name, value in wrong.items()}


# ----------------------------------------------------------------------------------------------------------- the stages


SHORT, LONG, LARGE = 512, 2**16, 2**26
"""Columns for which a warp is too much, and bytes of a row for which it is too few, however many rows there are; and
bytes of a matrix whose columns all blocks share for longer than a second launch takes."""


def fastest(p: ReduceProblem) -> tuple[str, ...]:
    """A warp is enough for a row where there are many, unless they are short, or long and not very many; all else is
    shared by as many threads as there are, in one launch, or along the rows in two where that takes much longer."""
    row = p.columns * p.in_type.itemsize
    most = LONG if p.rows >= VERY_MANY else 16 * LEAST_OF_BLOCKS
    if p.over == "columns" and p.rows >= groups.MANY and p.columns > SHORT and row < most:
        return ("vectorized", "parallel")
    return ("split", "parallel") if p.over == "rows" and p.rows * row >= LARGE else ("one_launch", "split", "parallel")


REDUCE = Operation(
    name="reduce",
    summary="sum or maximum of a matrix along columns or rows, or of all",
    problem=ReduceProblem,
    problems=row_problems(ReduceProblem, op=ReduceProblem.choices["op"], over=ReduceProblem.choices["over"]),
    suite=tuple(
        ReduceProblem(rows=rows, columns=columns, dtype=dtype, out=dtype, over=over)
        for dtype in ("bf16", "fp32")
        for rows, columns, over in (
            (16384, 8192, "columns"),
            (131072, 128, "columns"),
            (16384, 8192, "rows"),
            (8, 2**24, "columns"),
            (1, 2**28, "all"),
        )
    ),
    defines=lambda p: {
        "IN": dtype_of(p.dtype).cuda,
        "OUT": dtype_of(p.out).cuda,
        "MAXIMUM": "true" if p.op == "max" else "false",
        "EVEN": groups.even(_width(p), *((p.rows * p.columns,) if _in_one_piece(p) else (p.columns, p.ldx))),
    },
    emulator_size=Size(extent=6000, work=20_000),
    cuda_size=Size(extent=200_000, work=1_000_000),
    metric="GB/s",
    fastest=fastest,
)


def _few_enough(p: ReduceProblem) -> str | None:
    """One thread is not to be at work for seconds."""
    terms = p.rows * p.columns // p.outputs
    return f"{terms} terms are too many for one thread" if terms > groups.MOST_SERIAL else None


@REDUCE.stage(
    "naive", idea="one thread computes one element", parameters={"THREADS": 128}, supports=_few_enough, alignment=1
)
def naive(p: ReduceProblem, size: Mapping[str, int]) -> Launch:
    # from one element of y to the next; stretches of a row or none; elements of a stretch
    next_, runs, run, count, step = {
        "columns": (p.ldx, 1, 0, p.columns, 1),
        "rows": (1, 1, 0, p.rows, p.ldx),
        "all": (0, p.rows, p.ldx, p.columns, 1),
    }[p.over]
    walk = np.int64(next_), np.int32(runs), np.int64(run), np.int32(count), np.int64(step)
    grid = (ceil_div(p.outputs, size["THREADS"]), 1, 1)
    return Launch("reduce_naive", grid, (size["THREADS"], 1, 1), ("x", "y", np.int32(p.outputs), *walk))


def _launch(kernel: str, blocks: int, size: Mapping[str, int], *args: Argument) -> Launch:
    return Launch(kernel, (blocks, 1, 1), (size["THREADS"], 1, 1), args)


@REDUCE.stage(
    "parallel",
    after=naive,
    idea="lanes read neighbouring elements, and several lanes or warps share an element of the result",
    parameters={"THREADS": 256},
    space={"THREADS": THREADS},
    supports=every_problem,
)
def parallel(p: ReduceProblem, size: Mapping[str, int]) -> Launch | Plan:
    warps, shape = size["THREADS"] // WARP, (np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx))
    if p.over == "rows":
        return _launch("reduce_rows", ceil_div(p.columns, WARP), size, "x", "y", *shape)
    blocks = ceil_div(p.rows, warps)
    if p.over == "columns":
        return _launch("reduce_columns", blocks, size, "x", "y", *shape)
    first = _launch("reduce_columns_partial", blocks, size, "x", "partial", *shape)
    second = _launch("reduce_combine", 1, size, "partial", "y", np.int32(1), np.int32(p.rows))
    return Plan((first, second), scratch={"partial": Array((p.rows,), FP32, output=True)})


TILES = ReduceProblem(rows=150, columns=650, over="rows")
"""Several tiles of columns, and rows for several rounds of all warps."""


def _width(p: ReduceProblem) -> int:
    """Elements in 16 bytes."""
    return 16 // p.in_type.itemsize


def _in_one_piece(p: ReduceProblem) -> bool:
    """Whether all elements are reduced, and nothing lies between them."""
    return p.over == "all" and p.ldx == p.columns


def _stretches(p: ReduceProblem, length: int) -> tuple[int, int, int, int]:
    """Rows, columns and distance of rows of all elements, and how many there are with what lies between: a matrix
    without padding is cut into rows of `length`."""
    total = (p.rows - 1) * p.ldx + p.columns
    if _in_one_piece(p):
        return ceil_div(total, length), length, length, total
    return p.rows, p.columns, p.ldx, total


@REDUCE.stage(
    "vectorized",
    after=parallel,
    idea="16 bytes a load, several loads in flight",
    edge_cases=(TILES,),
    parameters={"THREADS": 256, "VECTORS": 4},
    space={"THREADS": THREADS, "VECTORS": (1, 2, 4, 8)},
    alignment=16,
)
def vectorized(p: ReduceProblem, size: Mapping[str, int]) -> Launch | Plan:
    warps = size["THREADS"] // WARP
    if p.over == "rows":
        shape = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx)
        return _launch("reduce_rows", ceil_div(p.columns, WARP * _width(p)), size, "x", "y", *shape)
    rows, columns, ldx, total = _stretches(p, 8 * WARP * _width(p) * size["VECTORS"])
    shape = np.int32(rows), np.int32(columns), np.int64(ldx)
    if p.over == "columns":
        return _launch("reduce_columns", ceil_div(rows, warps), size, "x", "y", *shape, np.int64(total))
    first = _launch("reduce_columns_partial", ceil_div(rows, warps), size, "x", "partial", *shape, np.int64(total))
    second = _launch("reduce_combine", 1, size, "partial", "y", np.int32(1), np.int32(rows))
    return Plan((first, second), scratch={"partial": Array((rows,), FP32, output=True)})


def _split_rows(p: ReduceProblem, size: Mapping[str, int]) -> Plan:
    """Along the rows: blocks have a tile of columns and some rows."""
    tiles, once = ceil_div(p.columns, WARP * _width(p)), size["THREADS"] // WARP * size["VECTORS"]
    wanted = max(1, min(ceil_div(scaled(size["TARGET"]), tiles), ceil_div(p.rows, once)))
    height = ceil_div(ceil_div(p.rows, wanted), once) * once
    parts = ceil_div(p.rows, height)
    shape = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx), np.int32(tiles), np.int32(height)
    first = _launch("reduce_rows_parts", tiles * parts, size, "x", "partial", *shape)
    blocks, extent = ceil_div(p.columns, size["THREADS"]), (np.int32(p.columns), np.int32(parts))
    second = _launch("reduce_rows_combine", blocks, size, "partial", "y", *extent)
    return Plan((first, second), scratch={"partial": Array((parts, p.columns), FP32, output=True)})


@REDUCE.stage(
    "split",
    after=vectorized,
    idea="several blocks share an element of the result",
    problem=ReduceProblem(rows=8, columns=2**24),
    parameters={"THREADS": 256, "VECTORS": 4, "TARGET": 1056},
    space={"THREADS": THREADS, "VECTORS": (1, 2, 4, 8), "TARGET": (528, 1056, 2112)},
    edge_cases=(
        TILES,
        ReduceProblem(rows=2, columns=40_000),
        ReduceProblem(rows=3, columns=9001, dtype="fp32", out="fp32", over="all"),
        ReduceProblem(rows=9001, columns=3, over="rows"),
        ReduceProblem(rows=70, columns=45, over="rows", pad_x=3),  # whole vectors and a part of one
        ReduceProblem(rows=1, columns=100_001, over="all"),
    ),
)
def split(p: ReduceProblem, size: Mapping[str, int]) -> Plan:
    if p.over == "rows":
        return _split_rows(p, size)
    once = size["THREADS"] * size["VECTORS"]
    rows, columns, ldx, total = _stretches(p, 2**20)
    vectors = ceil_div(columns + _width(p) - 1, _width(p))
    wanted = max(1, min(ceil_div(scaled(size["TARGET"]), rows), vectors // once))
    each = ceil_div(ceil_div(vectors, wanted), size["THREADS"]) * size["THREADS"]
    parts = ceil_div(vectors, each)
    shape = np.int32(columns), np.int64(ldx), np.int64(total), np.int32(parts), np.int32(each)
    first = _launch("reduce_columns_parts", rows * parts, size, "x", "partial", *shape)
    outputs, left = (rows, parts) if p.over == "columns" else (1, rows * parts)
    second = _launch("reduce_combine", outputs, size, "partial", "y", np.int32(left))
    return Plan((first, second), scratch={"partial": Array((rows * parts,), FP32, output=True)})


MOST_PARTS = 2**13
"""Values of blocks that the last one combines, of all."""


def _tiles(p: ReduceProblem, size: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Along the rows: lanes side by side, tiles of so many vectors, parts of the rows, of TILES blocks in all, and rows
    of a part, of which a thread loads IN_FLIGHT at least twice."""
    across = min(WARP, groups.power_of_two(ceil_div(p.columns, _width(p))))
    tiles, once = ceil_div(p.columns, across * _width(p)), size["THREADS"] // across * size["IN_FLIGHT"]
    wanted = max(1, min(ceil_div(scaled(size["TILES"]), tiles), p.rows // (2 * once)))
    height = ceil_div(ceil_div(p.rows, wanted), once) * once
    return across, tiles, ceil_div(p.rows, height), height


def _spread(p: ReduceProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Along the columns or of all: as many threads share a row as the device has for it."""
    rows, columns, _, total = _stretches(p, 2**20)
    vectors = ceil_div(min(columns, total) + (0 if p.ldx % _width(p) == 0 or p.rows == 1 else _width(p) - 1), _width(p))
    chosen = groups.spread(rows, vectors, size["IN_FLIGHT"], size["THREADS"], blocks=scaled(size["TARGET"]))
    if p.over == "all":  # of which each block has one row
        chosen["GROUP"] = chosen["THREADS"]
    elif rows >= VERY_MANY and vectors <= MOST_OF_LANES:  # two vectors a lane
        group = groups.power_of_two(ceil_div(vectors, 2))
        return {"GROUP": group, "THREADS": size["THREADS"], "VECTORS": min(2, size["IN_FLIGHT"]), "BLOCKS": 1}
    elif groups.MANY <= rows < VERY_MANY and vectors >= LEAST_OF_BLOCKS and chosen["BLOCKS"] == 1:
        chosen |= {"GROUP": size["THREADS"], "THREADS": size["THREADS"]}
    return {**chosen, "VECTORS": size["IN_FLIGHT"] * (2 if chosen["BLOCKS"] > 1 else 1)}


VERY_MANY, MOST_OF_LANES, LEAST_OF_BLOCKS = 8 * groups.MANY, 2 * WARP, 2**9
"""Rows whose lanes have work for long; vectors of a row for which a warp has two each, and from which on a block shares
one of many."""


def _of_one_launch(p: ReduceProblem, size: Mapping[str, int]) -> dict[str, int]:
    """What its kernels are compiled for: how threads are shared, and whether blocks share a result."""
    if p.over == "rows":
        across, _, parts, _ = _tiles(p, size)
        rest = {"ACROSS": across, "SHARED": int(parts > 1), "ALL": 0}
        return {"GROUP": size["THREADS"], "VECTORS": size["IN_FLIGHT"], **rest}
    chosen = _spread(p, size)
    blocks = chosen.pop("BLOCKS")
    shared = blocks > 1 or (p.over == "all" and _stretches(p, 2**20)[0] > 1)
    return {**chosen, "ACROSS": 1, "SHARED": int(shared), "ALL": int(p.over == "all")}


def _few_parts(p: ReduceProblem) -> str | None:
    """One block is not to combine too much."""
    rows = _stretches(p, 2**20)[0]
    if p.over != "all" or rows <= MOST_PARTS:
        return None
    return f"{rows} rows with gaps between them are too many for one block to combine"


@REDUCE.stage(
    "one_launch",
    after=vectorized,
    idea="one launch: the last block that shares a result combines it; a row has as many threads as there are for it",
    parameters={"THREADS": 256, "IN_FLIGHT": 4, "TARGET": 2112, "TILES": 1056},
    space={"THREADS": THREADS, "IN_FLIGHT": (1, 2, 4, 8), "TARGET": (528, 1056, 2112)},
    sizes=_of_one_launch,
    supports=_few_parts,
    edge_cases=(
        TILES,
        ReduceProblem(rows=2, columns=40_000),
        ReduceProblem(rows=3, columns=9001, dtype="fp32", out="fp32", over="all"),
        ReduceProblem(rows=9001, columns=3, over="rows"),
        ReduceProblem(rows=5000, columns=8, dtype="fp32", over="rows"),
        ReduceProblem(rows=1, columns=140_001, dtype="fp32", out="fp32", op="max"),
    ),
)
def one_launch(p: ReduceProblem, size: Mapping[str, int]) -> Plan:
    extent: tuple[Argument, ...] = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx)
    if p.over == "rows":
        _, tiles, parts, height = _tiles(p, size)
        kernel, blocks, results, values = "reduce_tiles", tiles * parts, tiles, (parts, p.columns)
        extent = (*extent, *map(np.int32, (tiles, parts, height)))
    else:
        rows, columns, ldx, total = _stretches(p, 2**20)
        vectors, shares = ceil_div(columns + _width(p) - 1, _width(p)), _spread(p, size)["BLOCKS"]
        kernel, blocks = "reduce_groups", ceil_div(rows, size["THREADS"] // size["GROUP"]) * shares
        results, values = 1 if p.over == "all" else rows, (1, blocks)
        extent = np.int32(rows), np.int32(columns), np.int64(ldx), np.int64(total)
        extent = (*extent, np.int32(shares), np.int32(ceil_div(vectors, shares)))
    scratch: dict[str, Array] = {}
    if size["SHARED"]:
        counters = Array((results,), FP32, output=True, zero=True)  # 4 bytes each
        scratch = {"partial": Array(values, FP32, output=True), "counters": counters}
    handed = tuple(scratch) or ("y", "y")  # where nothing is handed over any address will do
    return Plan((_launch(kernel, blocks, size, "x", "y", *handed, *extent),), scratch)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@REDUCE.function
def reduce(x: Any, *, op: str = "sum", over: str = "columns", out_dtype: Any = None) -> Call:
    """Sum or maximum (`op` sum or max) of a matrix, added up in fp32. x: (rows, columns), rows any distance apart;
    returns (rows,) where `over` is columns, (columns,) where it is rows, and (1,) where it is all."""
    fields = rows_of("reduce", common_dtype("reduce", x=x), out_dtype, x=x)
    for name, value in (("op", op), ("over", over)):
        if value not in ReduceProblem.choices[name]:
            allowed = ", ".join(ReduceProblem.choices[name])
            raise ValueError(f"reduce: {name} is {value!r}; it has to be one of {allowed}")
    if x.ndim != 2:
        raise ValueError(f"reduce: x has shape {x.shape}; it has to have two dimensions")
    return Call(ReduceProblem(**fields, op=op, over=over), {"x": x})


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any) -> Any:
    import torch

    return (torch.sum if p.op == "sum" else torch.amax)(x, {"columns": (1,), "rows": (0,), "all": (0, 1)}[p.over])


def _numpy(p: Any, x: Any) -> Any:
    axis = {"columns": 1, "rows": 0, "all": None}[p.over]
    return np.atleast_1d((np.sum if p.op == "sum" else np.max)(x, axis=axis))


beside(REDUCE, _torch, _numpy)
