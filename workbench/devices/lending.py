"""Device memory of one process that another one reads, by the handles of CUDA's interprocess communication.

Whoever borrows memory can write to it as well, so what is lent to a process that runs kernels of stages is a copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Lent:
    """Some bytes of the memory of a device, as another process can ask for them while they are not freed."""

    handle: bytes
    offset: int
    nbytes: int


def lend(memory: Any) -> Lent:
    """Let other processes read device memory, an array of CuPy, whose contents are there when this returns."""
    import cupy
    from cuda.bindings import driver

    error, base, _ = driver.cuMemGetAddressRange(memory.data.ptr)
    if int(error):
        raise RuntimeError(f"the driver does not say where memory begins: {error}")
    cupy.cuda.runtime.deviceSynchronize()
    handle = cupy.cuda.runtime.ipcGetMemHandle(int(base))
    return Lent(bytes(handle), memory.data.ptr - int(base), memory.nbytes)


@contextlib.contextmanager
def borrowed(lent: Lent) -> Iterator[Any]:
    """The bytes that another process lends, as an array of CuPy; give them back before that process goes on."""
    import cupy

    base = cupy.cuda.runtime.ipcOpenMemHandle(lent.handle)
    try:
        memory = cupy.cuda.memory.UnownedMemory(base + lent.offset, lent.nbytes, None, 0)
        yield cupy.ndarray((lent.nbytes,), np.uint8, cupy.cuda.memory.MemoryPointer(memory, 0))
        cupy.cuda.runtime.deviceSynchronize()
    finally:
        cupy.cuda.runtime.ipcCloseMemHandle(base)
