"""Stages of GEMM with several tiles: those that small problems do not choose are right, too."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import source_with

import workbench
from workbench.catalogue import registry
from workbench.kernels.gemm import GemmProblem, tiling
from workbench.model.launch import ceil_div
from workbench.model.results import Verdict
from workbench.model.stage import Stage


def _here(name: str) -> Stage[GemmProblem]:
    """The stage with its sizes and its plan made in this process, where a test puts another choice of tiles."""
    (stage,) = map(registry.local, registry.select([f"gemm:{name}"]))
    sizes, plan = stage.sizes_for, stage.plan_for  # in lambdas, since the very functions would be called elsewhere
    return dataclasses.replace(stage, sizes_for=lambda p, size: sizes(p, size), plan_for=lambda p, size: plan(p, size))


def _verdict(stage: Stage[GemmProblem], problem: GemmProblem, code: str | None = None) -> Verdict:
    outcome = workbench.verify(stage, code=code, device="emulator", problem=problem)
    return outcome.run.stages[0].verification.verdict


def _right(name: str, **fields: Any) -> bool:
    problem = dataclasses.replace(GemmProblem(m=140, n=72, k=70, seed=3), **fields)
    return _verdict(_here(name), problem) == Verdict.PASS


@pytest.mark.parametrize(
    ("name", "chosen", "number", "parts", "fields"),
    [
        *(("fitted_pipeline", "fitted", n, 1 + n % 3, {}) for n in range(len(tiling.FITTED))),
        *(
            ("shifted_pipeline", "shifted_single", n, 1 + n // 2 % 2, {"k": 101, "pad_b": 2})
            for n in range(1, len(tiling.FITTED))
        ),
    ],
)
def test_every_tile_of_pipelines_in_fp32(name, chosen, number, parts, fields, monkeypatch):
    monkeypatch.setattr(tiling, chosen, lambda p: (tiling.FITTED[number], parts, 1))
    layout = ("nn", "nt")[number % 2 if fields else number // 2 % 2]
    assert _right(name, dtype="fp32", layout=layout, **fields)


@pytest.mark.long
@pytest.mark.parametrize("tile", [(128, 64, 2), (192, 64, 1), (192, 128, 4), (128, 256, 8)], ids=str)
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


NEIGHBOURS = {
    "nn": (
        *((128, 176, 2, 0, 1), (128, 64, 4, 1, 1), (192, 112, 2, 1, 1), (256, 80, 2, 0, 1), (256, 160, 4, 0, 1)),
        *((256, 160, 2, 1, 3), (128, 224, 4, 0, 1)),
        *((144, 128, 2, 0, 1), (112, 192, 4, 0, 1), (80, 256, 2, 1, 1), (160, 256, 4, 1, 1), (176, 192, 2, 0, 3)),
    ),
    "nt": (
        *((128, 256, 2, 1, 2), (192, 64, 4, 1, 1), (192, 176, 2, 0, 3), (256, 16, 4, 1, 1), (256, 32, 4, 0, 2)),
        *((224, 128, 4, 1, 1), (64, 128, 4, 0, 1), (112, 192, 2, 1, 1), (16, 256, 4, 0, 1), (160, 256, 2, 0, 2)),
    ),
}
"""Tiles of `flexible_multicast`, blocks of a cluster, whether they share A, and clusters that share a tile. The last
line of each layout is multiplied as transposes."""


@pytest.mark.parametrize(("layout", "tile"), [(layout, tile) for layout in NEIGHBOURS for tile in NEIGHBOURS[layout]])
def test_tiles_of_flexible_multicast_whatever_blocks_share(layout, tile, monkeypatch):
    monkeypatch.setattr(tiling, "multicast", lambda p: tile)
    pad_c = {"nn": 0, "nt": 1}[layout]  # with the pad C has no tensor map
    assert _right("flexible_multicast", m=290, n=200, k=64 * 7 + 16, layout=layout, out="bf16", pad_c=pad_c)


EXTENTS = st.integers(0, 15).flatmap(lambda bits: st.integers(1 << bits, 2 << bits))
PRODUCTS = st.builds(
    GemmProblem,
    m=EXTENTS,
    n=EXTENTS,
    k=EXTENTS,
    dtype=st.just("bf16"),
    out=st.sampled_from(["bf16", "fp32"]),
    layout=st.sampled_from(["nn", "nt"]),
    pad_a=st.integers(0, 9),
    pad_b=st.integers(0, 9),
)


@settings(deadline=None, database=None, derandomize=True)
@given(p=PRODUCTS, most=st.sampled_from([64, 128, 512]))
def test_no_tile_that_is_passed_over_would_take_fewer_cycles(p, most):
    _, *by_multicast = min(tiling.multicast_choices(p), key=lambda choice: choice[0])  # the first of equals
    assert [tiling.multicast(p)[:2], *tiling.multicast(p)[2:]] == by_multicast
    flexible = tiling.flexible_choices(p.m, p.n, p.k, p.out == p.dtype, most)
    _, tile, parts = min(flexible, key=lambda choice: choice[0])
    assert tiling.flexible(p, most) == (*tile, parts)
    shared = (
        (tiling.small_cycles(tile, parts, clusters), tile.shape, parts, clusters)
        for tile, shares in tiling._small_tiles(p.m, p.n, p.k, tiling.pieces(p))
        for parts in shares
        for clusters in range(1, tiling.MOST_CLUSTERS + 1)
        if clusters == 1 or parts * clusters * tiling.LEAST_SHARED <= tile.k_tiles
    )
    shape, _, *others = tiling.shared_again(p)
    assert [shape, *others] == list(min(shared)[1:])


@settings(deadline=None, database=None, derandomize=True)
@given(p=PRODUCTS)
def test_every_tile_that_flexible_multicast_may_choose_can_be_launched(p):
    choices = [choice[1:] for choice in tiling.multicast_choices(p)]
    rows, columns, *others = tiling.multicast(p)
    assert ((rows, columns), *others) in choices
    for (rows, columns), sharing, share_a, clusters in choices:
        swapped = tiling.is_swapped(rows, tiling.HIGHER)
        assert p.out == p.dtype or not swapped
        high, wide = (columns, rows) if swapped else (rows, columns)
        assert wide % 16 == 0 and 16 <= wide <= dict(tiling.HIGHER)[high]
        assert sharing in (2, 4) and (rows if share_a else columns) % (8 * sharing) == 0
        groups = tiling.clusters_of(p.m, p.n, rows, columns, sharing, share_a)
        down, across = (1, sharing) if share_a else (sharing, 1)
        assert groups == ceil_div(p.m, down * rows) * ceil_div(p.n, across * columns)
        if clusters > 1:  # all run at once, and each has some k-tiles
            assert groups * clusters <= tiling.CLUSTERS[sharing]
            assert clusters * tiling.LEAST_PARTED <= ceil_div(p.k, 64)


@pytest.mark.parametrize(
    ("tile", "right", "broken", "verdict"),
    [
        ((128, 64, 2, 0, 1), "      consumed.release_previous();\n", "", "deadlock"),
        ((128, 64, 2, 0, 1), "      consumed.release_last();\n", "", "deadlock"),
        ((128, 64, 2, 0, 1), "tma_load_to(ALL,", "tma_load_to(1 << cluster_rank(),", "deadlock"),
        ((128, 64, 2, 1, 1), "full, row + own, column", "full, row, column", "mismatch"),
        ((128, 64, 2, 1, 1), "to + own * PANEL;", "to;", "in_flight"),
        ((128, 64, 4, 0, 1), "int own = cluster_rank() *", "int own = 0 *", "in_flight"),
        ((128, 64, 4, 0, 1), "+= rank * (SHARE_A", "+= 0 * (SHARE_A", "race"),
        ((128, 64, 2, 0, 1), "      wgmma_wait<0>();\n", "", "accumulator_in_flight"),
        ((128, 64, 2, 0, 3), "const int first = all * part / CLUSTERS;", "const int first = 0;", "mismatch"),
        ((128, 64, 2, 0, 3), "group * SHARING + rank;", "group;", "race"),
        ((128, 64, 2, 0, 3), "  named_sync<THREADS>(NAME);  // all have", "  // all have", "race"),
        ((128, 64, 2, 0, 3), "  named_sync<THREADS>(NAME);\n  if (!last)", "  if (!last)", "uninitialised"),
        ((80, 128, 2, 0, 1), "        named_sync<WARPGROUP>(name);  // what", "        // what", "race"),
        ((80, 128, 2, 0, 1), "        named_sync<WARPGROUP>(name);  // all", "        // all", "race"),
        ((80, 128, 2, 0, 1), "        tma_store_wait_read<0>();\n", "", "in_flight"),
    ],
)
def test_a_hazard_or_fault_of_flexible_multicast_is_named(tile, right, broken, verdict, monkeypatch):
    monkeypatch.setattr(tiling, "multicast", lambda p: tile)
    stage = _here("flexible_multicast")
    source = source_with(right, stage.path)
    assert source.count(right) == 1
    problem = GemmProblem(m=290, n=200, k=64 * 13, dtype="bf16", out="bf16")
    assert _verdict(stage, problem, source.replace(right, broken)) == verdict
