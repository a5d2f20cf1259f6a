"""Transpose of a matrix: y[c, r] = x[r, c]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ... import reference
from ...model.arrays import Array, Arrays, element_bytes
from ...model.launch import Launch, ceil_div
from ...model.operation import Operation
from ...model.problem import Cost, Size
from ..rows import groups
from ..rows.problem import FLOATS, RowProblem, row_problems

__all__ = ["TRANSPOSE", "TransposeProblem"]


@dataclass(frozen=True)
class TransposeProblem(RowProblem):
    """x: (rows, columns) with `pad_x` elements between its rows, y: (columns, rows) with `pad_y`, of one type. Every
    element is moved as it is, NaN too: the bound is 0."""

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

    def inputs(self) -> Arrays:
        return {"x": self.draw_rows(self.rng())}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.transpose(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": np.zeros(expected["y"].shape)}

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

    @property
    def cost(self) -> Cost:
        return Cost(0, element_bytes(self.arrays().values()))


TRANSPOSE = Operation(
    name="transpose",
    summary="transpose of a matrix",
    problem=TransposeProblem,
    problems=row_problems(TransposeProblem),
    suite=tuple(
        TransposeProblem(rows=rows, columns=columns, dtype=dtype)
        for dtype in ("bf16", "fp32")
        for rows, columns in ((16384, 8192), (8192, 8192), (65536, 1024), (1024, 65536))
    ),
    defines=lambda p: {
        "IN": p.in_type.cuda if p.in_type.itemsize == 4 else "unsigned short",
        "EVEN": groups.even(16 // p.in_type.itemsize, p.rows, p.columns, p.ldx, p.ldy),
    },
    emulator_size=Size(extent=6000, work=20_000),
    cuda_size=Size(extent=200_000, work=4_000_000),
    metric="GB/s",
)


def _launch(kernel: str, p: TransposeProblem, tile: tuple[int, int], block: tuple[int, int, int]) -> Launch:
    """A block takes a tile of so many columns and rows; tiles lie side by side along a row first."""
    across, down = ceil_div(p.columns, tile[0]), ceil_div(p.rows, tile[1])
    sizes = np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy), np.int32(across)
    return Launch(kernel, (across * down, 1, 1), block, ("x", "y", *sizes))


@TRANSPOSE.stage(
    "naive",
    source="transpose/01_naive.cu",
    idea="one thread moves one element",
    parameters={"BLOCK_X": 32, "BLOCK_Y": 8},
    alignment=1,
)
def naive(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    tile = (size["BLOCK_X"], size["BLOCK_Y"])
    return _launch("transpose_naive", p, tile, (*tile, 1))


@TRANSPOSE.stage(
    "shared_tile",
    source="transpose/02_shared_tile.cu",
    idea="a tile in shared memory: reads and writes are both of neighbours",
    parameters={"BLOCK_Y": 8},
    space={"BLOCK_Y": (4, 8, 16, 32)},
    alignment=1,
)
def shared_tile(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    return _launch("transpose_shared_tile", p, (32, 32), (32, size["BLOCK_Y"], 1))


@TRANSPOSE.stage(
    "padded",
    source="transpose/03_padded.cu",
    idea="rows of the tile are one bank longer: no bank conflicts",
    parameters={"BLOCK_Y": 8},
    space={"BLOCK_Y": (4, 8, 16, 32)},
    alignment=1,
)
def padded(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    return _launch("transpose_padded", p, (32, 32), (32, size["BLOCK_Y"], 1))


@TRANSPOSE.stage(
    "register_blocks",
    source="transpose/04_register_blocks.cu",
    idea="a thread transposes a block of vectors in its registers",
    parent="naive",
    edge_cases=(
        TransposeProblem(rows=600, columns=45),
        TransposeProblem(rows=300, columns=70, dtype="fp32", pad_x=2, pad_y=4),
    ),
    parameters={"THREADS": 128, "ACROSS": 4},
    space={"THREADS": (32, 64, 128, 256), "ACROSS": (2, 4, 8, 16)},
)
def register_blocks(p: TransposeProblem, size: Mapping[str, int]) -> Launch:
    width, warps = 16 // p.in_type.itemsize, size["THREADS"] // 32
    tile = (size["ACROSS"] * width, 32 // size["ACROSS"] * width * warps)
    return _launch("transpose_register_blocks", p, tile, (size["THREADS"], 1, 1))
