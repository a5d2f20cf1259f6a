"""The operation ssd, and what the declarations of its stages share."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from .fastest import fastest
from .problem import SUITE, Decays, SsdProblem, problems

SSD = Operation(
    name="ssd",
    summary="chunked scan of Mamba-2: a state with a scalar decay a head",
    problem=SsdProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=400, work=2_000_000),
    cuda_size=Size(extent=4000, work=100_000_000),
    fastest=fastest,
)

EDGE_CASES = (
    SsdProblem(length=130, headdim=64, dstate=64, decays=Decays.RESETS),
    SsdProblem(heads=2, length=200, headdim=64, dstate=128, group=2, decays=Decays.NEAR_ONE, pad_x=8, pad_bc=16),
    SsdProblem(batch=2, heads=2, length=65, headdim=128, dstate=64, decays=Decays.NEAR_ZERO),
    SsdProblem(length=129, headdim=33, dstate=70, pad_x=3, pad_bc=1),
)
"""What random problems would hardly hit: each kind of decays over some chunks, both sizes of state and head."""


def steps(p: SsdProblem) -> tuple[np.generic, ...]:
    """Elements of x, and of b and c, from one batch to the next and from one place to the next."""
    arrays = p.arrays()
    return tuple(np.int64(step) for name in ("x", "b") for step in arrays[name].element_strides[:2])


def counts(p: SsdProblem) -> tuple[np.generic, ...]:
    """Heads, how many of them share b and c, length, headdim and dstate."""
    return tuple(np.int32(n) for n in (p.heads, p.group, p.length, p.headdim, p.dstate))
