"""The values that are the same in all threads of a launch, as the engine takes them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .allocation import Allocation
from .device_limits import limits_of
from .launch_checks import shared_bytes_of
from .program import Entry
from .registers import CELL
from .table import Constant

__all__ = ["Shape", "constant_pool"]

_Triple = tuple[int, int, int]
Shape = tuple[_Triple, _Triple, _Triple, int, Allocation | None]  # grid, block, cluster, dynamic bytes, workspace


def constant_pool(entry: Entry, shape: Shape, variables: Mapping[str, Allocation]) -> npt.NDArray[np.uint8]:
    """All constants of the entry, each repeated for the 32 lanes; kept for a launch of the same shape."""
    key = (*shape[:-1], shape[-1] and shape[-1].address, tuple(variable.address for variable in variables.values()))
    if entry.constant_pool is not None and entry.constant_pool[0] == key:
        return entry.constant_pool[1]
    decoded, specials = entry.decoded, _uniform_specials(entry, *shape)

    def value(constant: Constant) -> int:
        if constant.kind == "special":
            return specials[constant.name]
        if constant.kind == "dynamic":
            return entry.dynamic_shared_offset + constant.value
        if constant.kind == "global":
            return variables[constant.name].address + constant.value
        return constant.value

    nbytes = max(decoded.constant_bytes, CELL)
    raw = np.zeros(nbytes + CELL, np.uint8)
    start = -raw.ctypes.data % CELL
    pool = raw[start : start + nbytes]
    words = pool.view(np.uint32)
    longs = pool.view(np.uint64)
    for constant, offset in decoded.constants.items():
        if constant.size == 8:
            longs[offset // 8 : offset // 8 + 32] = value(constant) % 2**64
        else:
            words[offset // 4 : offset // 4 + 32] = value(constant) % 2**32
    entry.constant_pool = (key, pool)
    return pool


def _uniform_specials(
    entry: Entry,
    grid: _Triple,
    block: _Triple,
    cluster: _Triple,
    dynamic: int,
    workspace: Allocation | None,
) -> dict[str, int]:
    """Special registers that are the same in every thread of a launch; ``decode.UNIFORM_SPECIALS`` are their names."""
    limits = limits_of(entry.program.arch)
    shared = shared_bytes_of(entry, dynamic)
    reserved = shared_bytes_of(entry, dynamic, reserved=True) - limits.shared_reserved_per_block
    address = 0 if workspace is None else workspace.address
    values = {
        "%nwarpid": limits.max_warps_per_sm,
        "%nsmid": limits.sm_count,
        "%gridid": 1,
        "%is_explicit_cluster": int(entry.cluster is not None or cluster != (1, 1, 1)),
        "%cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "%total_smem_size": shared,
        "%aggr_smem_size": shared,
        "%dynamic_smem_size": dynamic,
        "%current_graph_exec": 0,
        "%reserved_smem_offset_begin": reserved,
        "%reserved_smem_offset_end": reserved + limits.shared_reserved_per_block,
        "%reserved_smem_offset_cap": limits.shared_reserved_per_block,
        "%reserved_smem_offset_0": reserved,
        "%reserved_smem_offset_1": reserved + limits.shared_reserved_per_block // 2,
        "%envreg1": address >> 32,  # how the driver tells where the state of a grid-wide barrier is
        "%envreg2": address & 0xFFFFFFFF,
    }
    for name, numbers in (("ntid", block), ("nctaid", grid), ("cluster_nctaid", cluster)):
        values.update({f"%{name}.{axis}": number for axis, number in zip("xyz", numbers, strict=True)})
    for axis, blocks, step in zip("xyz", grid, cluster, strict=True):
        values[f"%nclusterid.{axis}"] = blocks // step
    return values
