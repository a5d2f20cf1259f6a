"""Arrays and kernels for copies that go on while a thread does something else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from emulation import Array, module

from workbench.emulator import Entry, Program

RNG = np.random.default_rng(17)


WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], {phase}; @!%done bra WAIT;"


def random_bytes(count: int) -> Array:
    return RNG.integers(0, 256, count).astype(np.uint8)


REGISTERS = (
    ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b64 %a; .reg .b64 %x; .reg .b64 %o; .reg .b64 %m;"
    ".reg .b64 %state; .reg .pred %done; .reg .pred %first; .reg .pred %p;"
)


def swizzled(tile: Array, swizzle: int) -> Array:
    """Bytes as they lie in shared memory from an address that is a multiple of 1024."""
    position = np.arange(tile.size)
    pattern = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    place = position ^ ((position >> 7) & pattern) << 4
    out = np.empty_like(tile)
    out[place] = tile
    return out


def tensor_kernel(
    rank: int, nbytes: int, load: bool, reduce: str = "", mode: str = "tile", offsets: tuple[int, ...] = ()
) -> Entry:
    """One block moves one box between the tensor and ``x``, whose bytes are those of shared memory.

    ``offsets`` are those of the pixels in the mode ``im2col``.
    """
    shifts = ", {" + ", ".join(f"%h{n}" for n in range(len(offsets))) + "}" if offsets else ""
    coordinates = ", ".join(f"%c{n}" for n in range(rank))
    load_coordinates = " ".join(f"ld.param.s32 %c{n}, [c{n}];" for n in range(rank))
    head = f"""
    mov.u32 %i, %tid.x; ld.param.u64 %x, [x]; mov.b64 %m, map; cvta.param.u64 %m, %m; {load_coordinates}
    setp.eq.u32 %first, %i, 0;
    {" ".join(f"mov.b16 %h{n}, {offset};" for n, offset in enumerate(offsets))}
    """
    if load:
        body = f"""
        @%first mbarrier.init.shared::cta.b64 [bar], 1;
        @%first fence.mbarrier_init.release.cluster;
        bar.sync 0;
        @!%first bra GO;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
            [tile], [%m, {{{coordinates}}}], [bar]{shifts};
        GO: {WAIT.format(phase=0)}
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra END;
        mov.u32 %t, tile; add.u32 %t, %t, %s; ld.shared.u8 %v, [%t];
        cvt.u64.u32 %o, %s; add.u64 %a, %x, %o; st.global.u8 [%a], %v;
        add.u32 %s, %s, 64; bra LOOP;
        END: ret;
        """
    else:
        opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduce}" if reduce else ""
        opcode = opcode or f"cp.async.bulk.tensor.{rank}d.global.shared::cta"
        body = f"""
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra STORE;
        mov.u32 %t, tile; add.u32 %t, %t, %s; cvt.u64.u32 %o, %s; add.u64 %a, %x, %o;
        ld.global.u8 %v, [%a]; st.shared.u8 [%t], %v;
        add.u32 %s, %s, 64; bra LOOP;
        STORE: fence.proxy.async.shared::cta;
        bar.sync 0;
        @!%first bra END;
        {opcode}.{mode}.bulk_group [%m, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        END: ret;
        """
    parameters = ".param .align 64 .b8 map[128], .param .u64 x" + "".join(f", .param .s32 c{n}" for n in range(rank))
    registers = f"{REGISTERS} .reg .b32 %c<5>; .reg .b16 %h<3>; .shared .align 8 .b64 bar;"
    registers += f".shared .align 1024 .b8 tile[{nbytes}];"
    return Program.from_ptx(module(head + body, parameters, registers)).entries["k"]


def box_of(array: Array, box: tuple[int, ...], corner: tuple[int, ...], fill: Any = 0) -> Array:
    """The box with its corner at a position, all innermost first, with ``fill`` outside the array."""
    out = np.full(box[::-1], fill, array.dtype)
    for place in itertools.product(*(range(n) for n in box)):
        position = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= p < n for p, n in zip(position, array.shape[::-1], strict=True)):
            out[place[::-1]] = array[position[::-1]]
    return out


def tensor(dtype: str, shape: tuple[int, ...]) -> Array:
    return random_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape[::-1])


def strides(array: Array) -> tuple[int, ...]:
    return array.strides[:-1][::-1]
