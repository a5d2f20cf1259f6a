"""Values that several threads of a program hold: which of their reads race, and which do not."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


import replica_kernels as replicas  # noqa: E402
from product_kernels import product_in_halves  # noqa: E402

from workbench.emulator import FindingKind  # noqa: E402
from workbench.triton import emulate  # noqa: E402


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kernel", replicas.CLEAN, ids=lambda kernel: kernel.__name__)
def test_a_read_that_reaches_only_the_storing_thread_is_clean(kernel, target):
    programs = 4 if "lock" in kernel.__name__ else 1
    for warps in (1, 4):
        x, out = replicas.initial(kernel)
        with emulate(target, seed=warps) as run:
            kernel[(programs,)](x, out, num_warps=warps)
        expected = replicas.CLEAN[kernel](programs)
        assert run.ok and out[: len(expected)].tolist() == expected


@pytest.mark.parametrize("kernel", replicas.RACES, ids=lambda kernel: kernel.__name__)
def test_a_read_that_reaches_more_than_the_storing_thread_is_a_race(kernel):
    with emulate(raise_on_hazard=False) as run:
        kernel[(1,)](*replicas.initial(kernel))
    assert run.findings[0].kind == FindingKind.RACE
    assert run.findings[0].source_line.endswith("# here")


def test_programs_without_a_lock_race_for_a_scalar():
    with emulate(raise_on_hazard=False) as run:
        replicas.counted[(2,)](*replicas.initial(replicas.counted))
    assert run.findings[0].kind == FindingKind.RACE


def test_programs_that_store_the_same_value_to_one_element_are_strict():
    for kernel, code in ((replicas.stored_by_all, "race_same_value"), (replicas.stored_by_each, "race")):
        for strict in (False, True):
            with emulate(strict=strict, raise_on_hazard=False) as run:
                kernel[(3,)](np.zeros(64, np.int32))
            assert {finding.code for finding in run.findings} == {code}
            assert run.ok is (code == "race_same_value" and not strict)


@pytest.mark.parametrize("block", [(64, 64, 64), (128, 32, 64), (128, 128, 32)])
def test_accumulators_of_halves_are_read_behind_the_wait(block):
    m, n, k = block
    random = np.random.default_rng(4)
    a, b = (random.integers(-2, 3, shape).astype(np.float16) for shape in ((m, 128), (128, n)))
    sums, out = np.zeros((m, n), np.float32), np.zeros((m, n), np.float16)
    with emulate("sm_90a") as run:
        product_in_halves[(1,)](a, b, sums, out, 128, M=m, N=n, BLOCK=k)
    assert run.ok and ".f16.f16.f16" in run.launches[0].ptx
    assert np.array_equal(sums, a.astype(np.float32) @ b.astype(np.float32)) and np.array_equal(out, sums)
