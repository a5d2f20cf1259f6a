"""Faults planted in our own kernels get the verdict that names them, at the line where they are.

Each plant replaces one line of a correct source. Numbers are those of the classes of fault that really happen in
hand-written kernels: rewrites that return zeros, hang, race, or are right for one size only.
"""

from __future__ import annotations

import shutil

import pytest

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.model import origin
from workbench.model.results import Failure, Verdict
from workbench.toolchain.compiler import with_headers


@pytest.fixture
def verify(tmp_path, monkeypatch):
    """Verify a stage whose source has one piece of text replaced by another."""
    sources = tmp_path / "cuda_src"
    shutil.copytree(origin.SOURCES, sources)
    monkeypatch.setattr(origin, "SOURCES", sources)
    monkeypatch.setattr("workbench.toolchain.compiler.INCLUDE", sources / "include")

    def verify_with(spec: str, old: str, new: str) -> Failure:
        (stage,) = registry.select([spec])
        files = {path: path.read_text() for path in with_headers(stage.path)}
        assert sum(text.count(old) for text in files.values()) == 1, (
            f"{old!r} is not once in the source and its headers"
        )
        for path, text in files.items():
            path.write_text(text.replace(old, new))
        result = harness.verify(stage, open_device("emulator"), examples=40, seed=0)
        assert result.verdict is not Verdict.PASS
        assert result.failure is not None
        assert result.failure.replay.startswith(f"workbench verify {spec} ")
        return result.failure

    return verify_with


def test_an_accumulation_that_never_happens(verify):
    failure = verify("gemm:vectorized", "sum[i][j] += a[", "a[i / QUAD].x[0] += 0 * a[")
    assert failure.verdict is Verdict.MISMATCH
    assert {e.got for e in failure.wrong} == {"0"}


def test_rows_and_columns_swapped_is_found_though_square_problems_pass(verify):
    failure = verify("gemm:naive", "static_cast<long long>(m) * ldc + n]", "static_cast<long long>(n) * ldc + m]")
    assert failure.verdict in (Verdict.MISMATCH, Verdict.OUT_OF_BOUNDS)


def test_a_bound_off_by_one_names_array_and_index(verify):
    failure = verify("gemm:naive", "n >= N) return", "n > N) return")
    assert failure.verdict is Verdict.OUT_OF_BOUNDS
    assert "1_naive.cu:" in failure.message
    assert "B[1] is one past the end of B" in failure.message


def test_a_tail_that_is_dropped(verify):
    failure = verify("gemm:naive", "k < K; ++k", "k < K / 2 * 2; ++k")
    assert failure.verdict is Verdict.MISMATCH
    assert ",k=1," in failure.problem


def test_half_of_the_tile_never_loaded(verify):
    failure = verify("gemm:vectorized", "BLOCK_M, BLOCK_K> a_copy;", "BLOCK_M / 2, BLOCK_K> a_copy;")
    assert failure.verdict in (Verdict.UNINITIALISED, Verdict.COMPILE_ERROR)


def test_no_wait_for_the_full_barrier(verify):
    failure = verify("gemm:tma_pipeline", "mbarrier_wait(full[from.stage], from.parity);", "")
    assert failure.verdict in (Verdict.UNINITIALISED, Verdict.IN_FLIGHT, Verdict.RACE)
    assert "k_tile.cuh" in failure.message


def test_no_wait_for_the_empty_barrier(verify):
    failure = verify("gemm:tma_pipeline", "    mbarrier_wait(empty[to.stage], to.parity ^ 1);\n", "")
    assert failure.verdict in (Verdict.MBARRIER_MISUSE, Verdict.IN_FLIGHT)


@pytest.mark.parametrize("change", ["+ 16", "- 16"])
def test_a_wrong_number_of_expected_bytes(verify, change):
    size = "commit(stage, sizeof(input_block)"
    failure = verify("gemm:tma_pipeline", size, f"{size} {change}")
    assert failure.verdict in (Verdict.DEADLOCK, Verdict.MBARRIER_MISUSE)
    assert "barrier" in failure.message


@pytest.mark.long
def test_a_parity_that_is_wrong_once_the_ring_wraps(verify):
    failure = verify("gemm:tma_pipeline", "full[from.stage], from.parity)", "full[from.stage], 0)")
    assert failure.verdict in (Verdict.IN_FLIGHT, Verdict.MBARRIER_MISUSE, Verdict.MISMATCH, Verdict.DEADLOCK)


def test_accumulators_read_before_the_wgmma_is_done(verify):
    failure = verify("gemm:tma_pipeline", "      wgmma_wait<0>();\n", "")
    assert failure.verdict is Verdict.ACCUMULATOR_IN_FLIGHT
    assert "wgmma.wait_group" in failure.message


def test_waiting_for_one_group_of_copies_too_few(verify):
    failure = verify("gemm:cp_async", "cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>")
    assert failure.verdict in (Verdict.IN_FLIGHT, Verdict.UNINITIALISED)


def test_a_barrier_that_not_every_warp_reaches(verify):
    failure = verify(
        "gemm:tma_pipeline",
        "      consume(g, shared);",
        "      if (roles::consumer()) __syncthreads();\n      consume(g, shared);",
    )
    assert failure.verdict is Verdict.DIVERGENT_COLLECTIVE


def test_a_wait_for_a_phase_that_never_comes_says_who_waits_for_what(verify):
    failure = verify("gemm:tma_pipeline", "mbarrier_init(full[s], commits);", "mbarrier_init(full[s], commits + 1);")
    assert failure.verdict is Verdict.DEADLOCK
    assert "1 arrival pending" in failure.message


def test_a_loop_without_end(verify):
    failure = verify("vector_add:naive", "if (i < n)", "while (c[0] == c[0] || i < n)")
    assert failure.verdict in (Verdict.LIVELOCK, Verdict.UNINITIALISED)


@pytest.mark.long
def test_a_tile_overwritten_while_other_warps_read_it(verify):
    failure = verify("gemm:vectorized", "    __syncthreads();  // everyone has read the k-tile before\n", "")
    assert failure.verdict is Verdict.RACE
    assert "__syncthreads() is missing between" in failure.message


def test_a_tile_read_before_all_of_it_has_come(verify):
    failure = verify("gemm:vectorized", "    __syncthreads();\n\n#pragma unroll\n", "\n#pragma unroll\n")
    assert failure.verdict in (Verdict.RACE, Verdict.UNINITIALISED)


def test_a_wait_for_copies_on_the_wrong_side_of_the_barrier(verify):
    comment = "// this k-tile has come for everyone, and everyone is done with the one before"
    wait = "    cp_async_wait<STAGES - 2>();\n"
    barrier = f"    __syncthreads();  {comment}\n"
    failure = verify("gemm:cp_async", wait + barrier, barrier + wait)
    assert failure.verdict in (Verdict.RACE, Verdict.IN_FLIGHT, Verdict.UNINITIALISED)


def test_warps_that_store_what_other_blocks_store(verify):
    failure = verify("vector_add:naive", "if (i < n) c[i]", "if (i < n) c[i % blockDim.x]")
    assert failure.verdict is Verdict.RACE


def test_every_finding_of_the_emulator_is_a_verdict():
    from workbench.emulator import FindingKind

    assert {str(kind) for kind in FindingKind} <= {str(verdict) for verdict in Verdict}
