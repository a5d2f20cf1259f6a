"""Stages of GEMM with several tiles: those that small problems do not choose are right, too."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import workbench
from workbench.kernels.gemm import GemmProblem, tiling


def _right(stage: str, **fields: Any) -> bool:
    problem = dataclasses.replace(GemmProblem(m=140, n=72, k=70, seed=3), **fields)
    return workbench.verify(f"gemm:{stage}", device="emulator", problem=problem).ok


@pytest.mark.parametrize("number", range(len(tiling.FITTED)))
def test_every_tile_of_fitted_pipeline(number, monkeypatch):
    shape, parts = tiling.FITTED[number], 1 + number % 3
    monkeypatch.setattr(tiling, "fitted", lambda p: (shape, parts))
    assert _right("fitted_pipeline", dtype="fp32", layout=("nn", "nt")[number // 2 % 2])


@pytest.mark.parametrize("number", range(1, len(tiling.FITTED)))
def test_every_tile_of_shifted_pipeline(number, monkeypatch):
    shape, parts = tiling.FITTED[number], 1 + number // 2 % 2
    monkeypatch.setattr(tiling, "shifted_single", lambda p: (shape, parts))
    assert _right("shifted_pipeline", dtype="fp32", layout=("nn", "nt")[number % 2], k=101, pad_b=2)


@pytest.mark.parametrize("tile", [(128, 256, 8), (192, 128, 4), (192, 64, 1), (128, 64, 2)], ids=str)
def test_tiles_of_fitted_tiles_that_clusters_share_and_narrow_ones(tile, monkeypatch):
    monkeypatch.setattr(tiling, "wide", lambda p, most: tile)
    assert _right("fitted_tiles", k=64 * 9 + 16, n=136, layout="nn" if tile[1] == 64 else "nt", out="bf16")


@pytest.mark.parametrize(
    "tile",
    [
        *[(128, 176, 1), (192, 112, 1), (128, 96, 2), (192, 128, 4), (128, 16, 1)],
        *[(144, 128, 1), (176, 192, 1), (96, 128, 2), (64, 192, 4), (256, 128, 8), (16, 128, 1)],  # as transposes
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_tiles_of_flexible_tiles_with_either_side_of_any_width(tile, layout, monkeypatch):
    monkeypatch.setattr(tiling, "flexible", lambda p, most: tile)
    assert _right("flexible_tiles", m=290, n=200, k=64 * 9 + 16, layout=layout, out="bf16")


def test_a_tile_of_flexible_tiles_leaves_little_over():
    assert tiling.flexible(GemmProblem(m=288, n=7680, k=12728, dtype="bf16", out="bf16"), 128) == (144, 128, 1)
    assert tiling.flexible(GemmProblem(m=14688, n=184, k=1448, dtype="bf16", out="bf16"), 128) == (128, 192, 1)
    # sums of fp32 are not transposed
    assert not tiling.is_swapped(tiling.flexible(GemmProblem(m=288, n=7680, k=12728, dtype="bf16"), 128)[0])
