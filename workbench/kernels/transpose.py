"""Transpose of a matrix: y[c, r] = x[r, c]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.launch import Launch, ceil_div
from ..model.parts import Axis
from .rows import groups
from .rows.baselines import beside
from .rows.ladder import row_operation, timed
from .rows.problem import FLOATS, RowProblem
from .shared import common_dtype, rows_of


@dataclass(frozen=True)
class TransposeProblem(RowProblem):
    """x: (rows, columns) with `pad_x` elements between its rows, y: (columns, rows) with `pad_y`, of one type. Every
    element is moved as it is, NaN too: the bound is 0."""

    operations: ClassVar[int] = 0
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "values": ("normal",)}

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.columns} {self.dtype}"

    @property
    def ldy(self) -> int:
        return self.rows + self.pad_y

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.rows, self.columns), self.in_type, self.ldx),
            "y": Array((self.columns, self.rows), self.in_type, self.ldy, output=True),
        }

    def axes(self) -> tuple[Axis, ...]:
        return Axis("rows", {"x": 0, "y": 1}), Axis("columns", {"x": 1, "y": 0})

    def inputs(self) -> Arrays:
        return {"x": self.draw_rows(self.rng())}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.transpose(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": np.zeros_like(expected["y"])}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y = expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "shifted by one": np.roll(y, 1, axis=1),
            "not transposed": inputs["x"].astype(np.float64).reshape(y.shape),
            "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
            "last column missing": np.where(np.arange(y.shape[1]) == y.shape[1] - 1, 0.0, y),
        }
        return {name: {"y": value} for name, value in wrong.items()}


FEW_ROWS, FEW_COLUMNS = 64, 8
"""Up to which a tile of `realigned` has all of them, where they lie side by side in y or x."""

MANY_TILES = 512
"""Tiles of `padded` up to which such are faster with it: 4.6 us at 32x4811 with 151 tiles, where `realigned` took 5.5;
6.7 and 5.8 at 33x20000, 10.5 and 7.1 at 36x49384 (bf16, H200)."""

SMALL, LARGE, HUGE = 2**16, 2**22, 2**26
"""Elements of which the launch is most of the time, and from which on it is memory; bytes of a matrix for which longer
runs of each page are worth a way through shared memory."""

LEAST_VECTORS = 8
"""From how many vectors a row on `ldmatrix` is the fastest: the least that a row of its tiles has."""


def _is_copy(p: TransposeProblem) -> bool:
    """Whether y has the elements of x in the same order, side by side."""
    return (p.rows == 1 and p.ldy == 1) or (p.columns == 1 and p.ldx == 1)


def _runs(p: TransposeProblem) -> tuple[bool, bool]:
    """Whether all rows, few of them, are one run of y, and else whether all columns are one of x."""
    run_out = p.ldy == p.rows <= FEW_ROWS
    return run_out, not run_out and p.ldx == p.columns <= FEW_COLUMNS


def fastest(p: TransposeProblem) -> tuple[str, ...]:
    """`ldmatrix` where rows are whole vectors, and as many as a tile of it has. Where they are fewer, threads transpose
    blocks of them in registers if two lie side by side both ways, unless the matrix is huge. Others go through shared
    memory in vectors or, while the launch is most of the time, element by element, as small ones of two bytes do."""
    elements, width = p.rows * p.columns, 16 // p.in_type.itemsize
    tiles = ceil_div(p.rows, 32) * ceil_div(p.columns, 32)
    whole = _even(p) and (elements > SMALL or p.in_type.itemsize == 4)
    huge = elements * p.in_type.itemsize >= HUGE
    if whole and p.columns >= LEAST_VECTORS * width:
        return "ldmatrix", "padded"
    if whole and not huge and min(p.rows, p.columns) >= 2 * width:
        return "register_blocks", "padded"
    vectors = _is_copy(p) or elements >= LARGE or (any(_runs(p)) and tiles > MANY_TILES)
    return ("realigned", "padded") if vectors else ("padded",)


def _even(p: TransposeProblem) -> int:
    return groups.even(16 // p.in_type.itemsize, p.rows, p.columns, p.ldx, p.ldy)


TRANSPOSE = row_operation(
    TransposeProblem,
    "transpose",
    "transpose of a matrix",
    fastest,
    suite=timed(((16384, 8192), (8192, 8192), (65536, 1024), (1024, 65536))),
    defines=lambda p: {"IN": p.in_type.cuda if p.in_type.itemsize == 4 else "unsigned short", "EVEN": _even(p)},
)


def _launch(kernel: str, p: TransposeProblem, tile: tuple[int, int], block: tuple[int, int, int]) -> Launch:
    """A block takes a tile of so many columns and rows; tiles lie side by side along a row first."""
    across, down = ceil_div(p.columns, tile[0]), ceil_div(p.rows, tile[1])
    sizes = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy), np.int32(across)
    return Launch(kernel, (across * down, 1, 1), block, ("x", "y", *sizes))


@TRANSPOSE.stage("naive", idea="one thread moves one element", parameters={"BLOCK_X": 32, "BLOCK_Y": 8}, alignment=1)
def naive(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    tile = (size["BLOCK_X"], size["BLOCK_Y"])
    return _launch("transpose_naive", p, tile, (*tile, 1))


@TRANSPOSE.stage(
    "shared_tile",
    after=naive,
    idea="a tile in shared memory: a warp reads and writes neighbouring elements",
    parameters={"BLOCK_Y": 8},
    space={"BLOCK_Y": (4, 8, 16, 32)},
)
def shared_tile(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    return _launch("transpose_shared_tile", p, (32, 32), (32, size["BLOCK_Y"], 1))


@TRANSPOSE.stage("padded", after=shared_tile, idea="rows of the tile are one bank longer: no bank conflicts")
def padded(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    return _launch("transpose_padded", p, (32, 32), (32, size["BLOCK_Y"], 1))


@TRANSPOSE.stage(
    "register_blocks",
    after=naive,
    idea="a thread transposes a block of vectors in its registers",
    edge_cases=(
        TransposeProblem(rows=600, columns=45),
        TransposeProblem(rows=300, columns=70, dtype="fp32", pad_x=2, pad_y=4),
    ),
    parameters={"THREADS": 32, "ACROSS": 8},
    space={"THREADS": (32, 64, 128, 256), "ACROSS": (2, 4, 8, 16)},
    alignment=16,
)
def register_blocks(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    width, warps = 16 // p.in_type.itemsize, size["THREADS"] // 32
    tile = (size["ACROSS"] * width, 32 // size["ACROSS"] * width * warps)
    return _launch("transpose_register_blocks", p, tile, (size["THREADS"], 1, 1))


COPIED, FEW_COPIED = 4, 2**18
"""Vectors that a thread of the copy moves; but one, in small blocks, of so few that all are on their way at once."""


def _tile(p: TransposeProblem, size: Mapping[str, int]) -> dict[str, int]:
    """TILE_BYTES of elements in rows and columns of powers of two, as many of each as there are, else as nearly square
    as that allows; whether columns of the tile are one run of y, or rows one of x; rows of tiles that are taken
    together where they are long."""
    width, elements = 16 // p.in_type.itemsize, size["TILE_BYTES"] // p.in_type.itemsize
    run_out, run_in = _runs(p)
    columns = max(width, groups.power_of_two(p.columns))
    if run_out:
        rows = groups.power_of_two(p.rows)
    elif run_in:
        rows = elements // groups.power_of_two(p.columns)
    else:
        most = elements // min(SQUARE, columns)
        rows = max(width, min(most, groups.power_of_two(p.rows + (width if p.ldy % width else 0))))
    return {
        "TILE_R": rows,
        "TILE_C": max(width, min(columns, elements // rows)),
        "RUN_IN": int(run_in),
        "RUN_OUT": int(run_out),
        "BAND": BAND if p.columns >= WIDE else 1,
        **(
            {"COPIED": 1, "THREADS": 128}
            if p.rows * p.columns <= FEW_COPIED * width and _is_copy(p)
            else {"COPIED": COPIED}
        ),
    }


SQUARE = 64
"""Columns of a tile where rows are many."""

BAND, WIDE = 4, 2**16
"""Rows of tiles that are taken together; columns from which on the L2 does not hold what one row of tiles stores until
the next one has stored beside it."""


@TRANSPOSE.stage(
    "realigned",
    after=naive,
    idea="vectors of 16 bytes go through shared memory, wherever rows begin; tiles fit few rows or columns",
    problem=TransposeProblem(rows=8191, columns=8191, dtype="bf16", out="bf16"),
    edge_cases=(
        TransposeProblem(rows=1, columns=9001),
        TransposeProblem(rows=9001, columns=1, dtype="fp32"),
        TransposeProblem(rows=5, columns=3001),
        TransposeProblem(rows=3001, columns=5, pad_y=3),
        TransposeProblem(rows=301, columns=3, dtype="fp32", pad_x=1),
        TransposeProblem(rows=150, columns=131),
        TransposeProblem(rows=131, columns=150, dtype="fp32", pad_y=1),
        TransposeProblem(rows=1, columns=700, pad_y=2),
    ),
    parameters={"THREADS": 256, "TILE_BYTES": 16384},
    space={"THREADS": (64, 128, 256, 512), "TILE_BYTES": (8192, 16384, 32768)},
    sizes=_tile,
    architecture=80,
    alignment=16,
)
def realigned(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    width, threads = 16 // p.in_type.itemsize, size["THREADS"]
    if _is_copy(p):
        count = p.rows * p.columns
        blocks = ceil_div(count, size["COPIED"] * width * threads)
        return Launch("transpose_copy", (blocks, 1, 1), (threads, 1, 1), ("x", "y", np.int64(count)))
    tile = size["TILE_C"], size["TILE_R"]
    early = width if p.ldy % width and not size["RUN_OUT"] else 0  # rows that tiles begin early
    across, down = ceil_div(p.columns, tile[0]), ceil_div(p.rows + (early and width - 1), tile[1])
    loaded = min(p.rows, tile[1] + early)
    if size["RUN_IN"]:
        vectors = ceil_div(loaded * p.columns, width)
        vectors += vectors // 8
    else:
        vectors = loaded * (tile[0] // width + 1) + loaded // width
    sizes = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy), np.int32(across)
    return Launch(
        "transpose_realigned",
        (across * down, 1, 1),
        (threads, 1, 1),
        ("x", "y", *sizes),
        shared_bytes=(vectors + 1) * 16,
    )


FEW_ELEMENTS = {"THREADS": 64, "TILE_BYTES": 4096}
"""The parameters of `ldmatrix` for less than LARGE elements, so that more multiprocessors have a block."""


def _matrix_tile(p: TransposeProblem, size: Mapping[str, int]) -> dict[str, int]:
    """A tile of TILE_BYTES. Its columns have COLUMN_BYTES, or as many rows as there are, or so few that its rows have
    LEAST_VECTORS. A row has no more vectors than there are threads.

    Times on an H200, in us, of tiles of rows x columns, with 256 threads where no other number is in brackets:
    bf16, 16384x8192: 128x64 143, 128x128 143, 64x128 147, 128x64 (128) 145. 16x1048576: 16x512 22.4, 16x1024 22.8.
    1024x1024: 32x64 (64) 6.8, 32x64 (128) 7.0, 128x64 7.1. 2048x2048, the limit between them: all 10.2 to 10.4.
    fp32, 65536x1024: 64x64 140, 128x64 142, 128x32 144, 64x32 (128) 144. 1024x1024: 32x32 (64) 7.9, 64x32 8.0."""
    size = {**size, **(FEW_ELEMENTS if p.rows * p.columns < LARGE else {})}
    itemsize, vectors = p.in_type.itemsize, size["TILE_BYTES"] // 16
    rows = min(size["COLUMN_BYTES"] // itemsize, vectors // LEAST_VECTORS, groups.power_of_two(p.rows))
    return {**size, "TILE_R": rows, "TILE_C": min(vectors // rows, size["THREADS"]) * 16 // itemsize}


def _whole(p: TransposeProblem) -> str | None:
    """Why a stage that moves nothing but whole vectors does not take a problem."""
    return None if _even(p) else "rows of x and of y have to be whole vectors of 16 bytes"


@TRANSPOSE.stage(
    "ldmatrix",
    after=register_blocks,
    idea="ldmatrix transposes vectors, which lie in shared memory: each lane gets one of a column",
    edge_cases=(
        TransposeProblem(rows=8, columns=1032),
        TransposeProblem(rows=16, columns=520, dtype="fp16", pad_x=8, pad_y=16),
        TransposeProblem(rows=296, columns=136),
        TransposeProblem(rows=4, columns=1028, dtype="fp32"),
        TransposeProblem(rows=292, columns=68, dtype="fp32", pad_x=4, pad_y=8),
        TransposeProblem(rows=8, columns=LARGE // 8),
        TransposeProblem(rows=LARGE // 64 + 8, columns=72, pad_x=8, pad_y=16),
        TransposeProblem(rows=LARGE // 64 + 4, columns=68, dtype="fp32"),
    ),
    parameters={"THREADS": 256, "COLUMN_BYTES": 256, "TILE_BYTES": 16384},
    space={"THREADS": (64, 128, 256), "COLUMN_BYTES": (128, 256, 512), "TILE_BYTES": (8192, 16384, 32768)},
    sizes=_matrix_tile,
    supports=_whole,
    architecture=80,
)
def ldmatrix(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    launch = _launch("transpose_ldmatrix", p, (size["TILE_C"], size["TILE_R"]), (size["THREADS"], 1, 1))
    return replace(launch, shared_bytes=size["TILE_C"] * size["TILE_R"] * p.in_type.itemsize)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@TRANSPOSE.function
def transpose(x: Any) -> Call:
    """The transpose of a matrix as an array of its own. x: (rows, columns), rows any distance apart."""
    fields = rows_of("transpose", common_dtype("transpose", x=x), None, x=x)
    if x.ndim != 2:
        raise ValueError(f"transpose: x has shape {x.shape}; it has to have two dimensions")
    return Call(TransposeProblem(**{**fields, "out": "fp32"}), {"x": x})


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any) -> Any:
    import torch

    return x.t().clone(memory_format=torch.contiguous_format)  # contiguous() does not copy a single row or column


def _numpy(p: Any, x: Any) -> Any:
    return x.T.copy()  # as above


beside(TRANSPOSE, _torch, _numpy)
