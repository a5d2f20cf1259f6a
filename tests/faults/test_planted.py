"""Faults planted in our own kernels get the verdict that names them, on the problems that verification draws.

Each changes one line of a correct source: rewrites that return zeros, hang, race, or are right for one size only.
"""

from __future__ import annotations

import re

import pytest
from harness_planting import planted_stage
from planting import Change
from plants import entries

from workbench import harness
from workbench.devices import open_device
from workbench.emulator import FindingKind
from workbench.model.results import Verdict

TABLE = r"""
an accumulation that never happens | gemm:vectorized | MISMATCH | \[WrongElement(?!.*got='[^0]).*got='0'
    sum[i][j] += a[ => a[i / QUAD].x[0] += 0 * a[
rows and columns swapped, where square problems pass | gemm:naive | MISMATCH OUT_OF_BOUNDS
    static_cast<long long>(m) * ldc + n] => static_cast<long long>(n) * ldc + m]
a bound off by one | gemm:naive | OUT_OF_BOUNDS | 1_naive\.cu:(.|\n)*B\[1\] is one past the end of B
    n >= N) return => n > N) return
a tail that is dropped | gemm:naive | MISMATCH | ,k=1,
    k < K; ++k => k < K / 2 * 2; ++k
half of the tile never loaded | gemm:vectorized | UNINITIALISED COMPILE_ERROR
    BLOCK_M, BLOCK_K> a_copy; => BLOCK_M / 2, BLOCK_K> a_copy;
no wait for the full barrier | gemm:tma_pipeline | UNINITIALISED IN_FLIGHT RACE | k_tile\.cuh
    mbarrier_wait(full[from.stage], from.parity); =>
no wait for the empty barrier | gemm:tma_pipeline | MBARRIER_MISUSE IN_FLIGHT
        mbarrier_wait(empty[to.stage], to.parity ^ 1);¶ =>
too many expected bytes | gemm:tma_pipeline | DEADLOCK MBARRIER_MISUSE | barrier
    commit(stage, sizeof(input_block) => commit(stage, sizeof(input_block) + 16
too few expected bytes | gemm:tma_pipeline | DEADLOCK MBARRIER_MISUSE | barrier
    commit(stage, sizeof(input_block) => commit(stage, sizeof(input_block) - 16
a parity that is wrong once the ring wraps | gemm:tma_pipeline | IN_FLIGHT MBARRIER_MISUSE MISMATCH DEADLOCK
    full[from.stage], from.parity) => full[from.stage], 0)
accumulators read before the wgmma is done | gemm:tma_pipeline | ACCUMULATOR_IN_FLIGHT | wgmma\.wait_group
          wgmma_wait<0>();¶ =>
one group of copies too few waited for | gemm:cp_async | IN_FLIGHT UNINITIALISED
    cp_async_wait<STAGES - 2> => cp_async_wait<STAGES - 1>
a barrier that not every warp reaches | gemm:tma_pipeline | DIVERGENT_COLLECTIVE
          consume(g, shared); =>       if (roles::consumer()) __syncthreads();¶      consume(g, shared);
a wait for a phase that never comes | gemm:tma_pipeline | DEADLOCK | 1 arrival pending
    mbarrier_init(full[s], commits); => mbarrier_init(full[s], commits + 1);
a loop without end | vector_add:naive | LIVELOCK UNINITIALISED
    if (i < n) => while (c[0] == c[0] || i < n)
a tile overwritten while other warps read it | gemm:vectorized | RACE | __syncthreads\(\) is missing between
        __syncthreads();  // everyone has read the k-tile before¶ =>
a tile read before all of it has come | gemm:vectorized | RACE UNINITIALISED
        __syncthreads();¶¶#pragma unroll¶ => ¶#pragma unroll¶
a wait for copies on the wrong side of the barrier | gemm:cp_async | RACE IN_FLIGHT UNINITIALISED
        cp_async_wait<STAGES - 2>();¶    __syncthreads();  // this k-tile has come for everyone, and
    =>     __syncthreads();¶    cp_async_wait<STAGES - 2>();  // this k-tile has come for everyone, and
warps that store what other blocks store | vector_add:naive | RACE
    if (i < n) c[i] => if (i < n) c[i % blockDim.x]
"""
"""What is wrong, with what, and what has to come of it: a verdict, and what the report of the failure matches."""


@pytest.mark.parametrize(("fields", "changes"), [pytest.param(*entry, id=entry[0][0]) for entry in entries(TABLE)])
def test_a_fault_in_a_stage_is_found_by_verification(fields: list[str], changes: list[tuple[str, str]]) -> None:
    _, spec, verdicts, *says = fields
    result = harness.verify(planted_stage(spec, Change(*changes[0])), open_device("emulator"), examples=40, seed=0)
    failure = result.failure
    assert failure.verdict in [Verdict[name] for name in verdicts.split()], failure
    assert failure.replay.startswith(f"workbench verify {spec} ")
    for pattern in says:
        assert re.search(pattern, f"{failure.message}\n{failure.problem}\n{failure.wrong}"), failure


def test_every_finding_of_the_emulator_is_a_verdict() -> None:
    assert {str(kind) for kind in FindingKind} <= {str(verdict) for verdict in Verdict}
