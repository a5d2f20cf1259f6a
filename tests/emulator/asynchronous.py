"""Arrays and kernels for copies that go on while a thread does something else."""

from __future__ import annotations

import numpy as np
from box_cases import tensor_text
from emulation import Array

from workbench.emulator import Entry, Program

RNG = np.random.default_rng(17)


WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], {phase}; @!%done bra WAIT;"


def random_bytes(count: int) -> Array:
    return RNG.integers(0, 256, count).astype(np.uint8)


REGISTERS = (
    ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b64 %a; .reg .b64 %x; .reg .b64 %o; .reg .b64 %m;"
    ".reg .b64 %state; .reg .pred %done; .reg .pred %first; .reg .pred %p;"
)


def tensor_kernel(
    rank: int, nbytes: int, load: bool, reduce: str = "", mode: str = "tile", offsets: tuple[int, ...] = ()
) -> Entry:
    """One block moves one box between the tensor and ``x``, whose bytes are those of shared memory.

    ``offsets`` are those of the pixels in the mode ``im2col``.
    """
    if load:
        opcode = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
    else:
        copy = f"cp.{'reduce.' if reduce else ''}async.bulk.tensor.{rank}d.global.shared::cta"
        opcode = f"{copy}{reduce and '.' + reduce}.{mode}.bulk_group"
    text = tensor_text(rank, nbytes, opcode, load, offsets).replace(", .param .u64 whole", "")
    return Program.from_ptx(text).entries["k"]


def tensor(dtype: str, shape: tuple[int, ...]) -> Array:
    return random_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape[::-1])


def strides(array: Array) -> tuple[int, ...]:
    return array.strides[:-1][::-1]
