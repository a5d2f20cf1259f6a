"""Small tiles that a warp moves: ldmatrix, stmatrix and movmatrix."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from batches import Kernel
from case import Case, case_module
from form import Array
from form_operands import operands
from warp_cases import lanes


def vector_text(name: str, count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"%{name}{n}" for n in range(first, first + count)) + "}"


def tile_moves(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """ldmatrix and stmatrix: the rows of every warp's tile lie in an order of its own; and movmatrix."""
    warps = 8 * size
    for count, transposed, generic, store in itertools.product((1, 2, 4), (False, True), (False, True), (False, True)):
        yield _tile_case(warps, count, transposed, generic, store, rng)
    (values,) = operands(["b32"], warps * 32, 17)
    turned = np.ascontiguousarray(values.view(np.uint16).reshape(warps, 8, 8).swapaxes(1, 2)).view(np.uint32)
    operation = "movmatrix.sync.aligned.m8n8.trans.b16"
    kernel, expected = lanes(f"{operation} %x, %a;", [("b32", values)], [("b32", turned.ravel())])
    yield Case(operation, [operation], kernel, expected)


def _tile_case(warps: int, count: int, transposed: bool, generic: bool, store: bool, rng: np.random.Generator) -> Case:
    """So many tiles a warp, loaded or stored by one instruction."""
    tiles = rng.integers(0, 2**16, (warps, count, 8, 8)).astype(np.uint16)
    order = np.stack([rng.permutation(8 * count) for _ in range(warps)])
    lane, tile, element = np.ogrid[:32, :count, :2]
    row, column = lane // 4, lane % 4 * 2 + element
    fragments = tiles[:, tile, column, row] if transposed else tiles[:, tile, row, column]
    fragments = np.ascontiguousarray(fragments).view(np.uint32).reshape(warps * 32, count)
    rows = np.zeros((warps, 32, 8), np.uint16)
    np.put_along_axis(rows, order[:, :, None], tiles.reshape(warps, -1, 8), axis=1)
    places = np.zeros((warps, 32), np.uint32)
    places[:, : 8 * count] = 16 * order
    operation = f"{'st' if store else 'ld'}matrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}"
    operation += ".b16" if generic else ".shared.b16"
    block = min(warps * 32, 256)
    rows = rows.reshape(warps * 32, 8)
    expected: list[Array | None]
    if store:
        arguments: list[Any] = [np.zeros_like(rows), fragments, places.ravel()]
        expected = [rows, None, None]
    else:
        arguments = [rows, np.zeros_like(fragments), places.ravel()]
        expected = [None, fragments, None]
    text = _tile_text(_tile_sequence(operation, count, generic, store), count)
    return Case(operation, [operation], Kernel(text, warps * 32 // block, block, arguments), expected)


def _tile_sequence(operation: str, count: int, generic: bool, store: bool) -> str:
    """What a lane does: registers of a lane lie together in memory, so do the 16 bytes of a row."""
    at = "%g" if generic else "%s"
    if store:
        loads = " ".join(f"ld.global.b32 %r{n}, [%f+{4 * n}];" for n in range(count))
        return (
            f"st.shared.v4.b32 [%m], {{0, 0, 0, 0}}; bar.warp.sync -1; {loads} "
            f"{operation} [{at}], {vector_text('r', count)}; bar.warp.sync -1; "
            "ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%m]; st.global.v4.b32 [%q], {%v0, %v1, %v2, %v3};"
        )
    stores = " ".join(f"st.global.b32 [%f+{4 * n}], %r{n};" for n in range(count))
    return (
        "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%q]; st.shared.v4.b32 [%m], {%v0, %v1, %v2, %v3}; bar.warp.sync -1; "
        f"{operation} {vector_text('r', count)}, [{at}]; {stores}"
    )


def _tile_text(sequence: str, count: int) -> str:
    """``sequence`` with what it needs: %q a row in global memory, %f a fragment, %m and %s or %g rows in the tile."""
    return case_module(
        f"""
        mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %thread, %tid.x; mad.lo.u32 %i, %i, %t, %thread;
        ld.param.u64 %q, [rows]; mul.wide.u32 %o, %i, 16; add.u64 %q, %q, %o;
        ld.param.u64 %f, [fragments]; mul.wide.u32 %o, %i, {4 * count}; add.u64 %f, %f, %o;
        ld.param.u64 %g, [places]; mul.wide.u32 %o, %i, 4; add.u64 %g, %g, %o; ld.global.u32 %s, [%g];
        mov.u32 %t, tile; mul.lo.u32 %m, %thread, 16; add.u32 %m, %m, %t;
        and.b32 %thread, %thread, -32; mul.lo.u32 %thread, %thread, 16; add.u32 %t, %t, %thread; add.u32 %s, %s, %t;
        cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;
        {sequence} ret;
        """,
        ".param .u64 rows, .param .u64 fragments, .param .u64 places",
        ".reg .b32 %i; .reg .b32 %t; .reg .b32 %thread; .reg .b32 %s; .reg .b32 %m; .reg .b64 %q; .reg .b64 %f;"
        ".reg .b64 %g; .reg .b64 %o; .reg .b32 %r<4>; .reg .b32 %v<4>; .shared .align 16 .b8 tile[4096];",
    )
