"""Kernels of Triton in the emulator: correct ones pass, and a fault is named at its line of Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

import chained_kernels as chained  # noqa: E402
import faulty_kernels as faulty  # noqa: E402
import launches  # noqa: E402
from small_kernels import normalised, product_and_extremes, sum_of_products  # noqa: E402

from workbench.emulator import FindingKind, KernelFault  # noqa: E402
from workbench.triton import LaunchFault, Output, emulate  # noqa: E402

KERNELS = [(name, "sm_90a") for name in launches.REFERENCES]
KERNELS += [(name, target) for name in ("matmul", "matmul_host_descriptors") for target in ("sm_80", "sm_120")]


@pytest.mark.parametrize(("kernel", "target"), KERNELS)
def test_kernels_are_right_and_clean(kernel, target):
    with emulate(target, reference=launches.REFERENCES) as run:
        getattr(launches, kernel)()
    assert run.ok
    (launched,) = run.launches
    assert launched.kernel == kernel
    assert ("cp.async.bulk.tensor" in launched.ptx) is ("descriptors" in kernel and target != "sm_80")


@pytest.mark.parametrize("block", [16, 32, 64])
def test_threads_that_only_hold_what_another_stores_race_with_nobody(block):
    """Fewer elements than threads, in place: all threads load, and one that holds the element stores it."""
    rows = np.random.default_rng(0).random((4, block), np.float32) + 1
    expected = rows / rows.sum(1, keepdims=True)
    with emulate() as run:
        normalised[(4,)](rows, block, BLOCK=block)
    assert run.ok
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    with emulate(raise_on_hazard=False) as run:
        normalised[(2,)](rows, block // 2, BLOCK=block)
    assert {finding.kind for finding in run.findings} == {FindingKind.RACE}


def test_a_fence_that_triton_leaves_out_is_strict():
    with emulate(strict=True, raise_on_hazard=False) as run:
        launches.matmul_host_descriptors()
    assert "mbarrier_init_fence" in {finding.code for finding in run.findings}
    with emulate() as run:
        launches.matmul_host_descriptors()
    assert run.ok


@pytest.mark.parametrize("fused", [True, False])
def test_a_sum_that_lanes_round_differently_is_strict(fused):
    """An element for each thread: lanes add their own product, fused into the sum, to one that another has rounded."""
    x, y = np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32)
    for strict in (False, True):
        out = np.zeros(2, np.float32)
        with emulate(strict=strict, raise_on_hazard=False) as run:
            sum_of_products[(2,)](x, y, out, BLOCK=128, num_warps=4, enable_fp_fusion=fused)
        assert run.ok is not (strict and fused)
        assert {finding.code for finding in run.findings} == ({"race_of_replicas"} if fused else set())
        assert ("race" in str(run)) is (strict and fused)  # Triton's own doing is told only where it is asked for
        np.testing.assert_allclose(out, (x * y).reshape(2, 128).sum(1), rtol=1e-5)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("size", [(16, 16, 16), (64, 32, 16)])
def test_a_tile_that_several_warps_hold_is_right_and_clean(target, size):
    """Warps with the same part of a small tile store it with one another; sm_120 computes with pairs and triples."""
    m, n, k = size
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    out, sums, largest = np.zeros((m, n), np.float32), np.zeros(m, np.float32), np.zeros(n, np.float32)
    for warps in (1, 4):
        with emulate(target) as run:
            given = Output(out), Output(sums), Output(largest)
            product_and_extremes[(1,)](a, b, *given, M=m, N=n, K=k, num_warps=warps)
        assert run.ok
        product = a.astype(np.float32) @ b.astype(np.float32)
        np.testing.assert_allclose(out, product, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(sums, product.sum(1), rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(largest, out.max(0))


def lines_named(finding) -> list[str]:
    """The lines of Python that a finding speaks of, its own first."""
    places = [place for place in (finding.location, finding.other) if place is not None]
    return [Path(place.file).read_text().splitlines()[place.line - 1].strip() for place in places]


@pytest.mark.parametrize(("kernel", "fault"), faulty.IN_SOURCE.items(), ids=lambda f: getattr(f, "__name__", ""))
def test_faults_in_the_source_are_named_at_their_line(kernel, fault):
    kind, launch = fault
    with emulate() as run, pytest.raises(LaunchFault) as raised:
        launch(kernel)
    assert raised.value.finding.kind == FindingKind(kind)
    assert lines_named(raised.value.finding)[0].endswith("# here")
    assert "faulty_kernels.py" in str(raised.value) and kernel.__name__ in str(raised.value)
    assert not run.ok and run.findings == [raised.value.finding]


@pytest.mark.parametrize("fault", faulty.IN_PTX)
def test_faults_in_the_ptx_are_named_at_their_line(fault):
    kernel, target, change, (kind, line) = faulty.IN_PTX[fault]
    with emulate(target, change_ptx=change), pytest.raises(KernelFault) as raised:
        getattr(launches, kernel)()
    assert raised.value.finding.kind == FindingKind(kind)
    assert any(line in named for named in lines_named(raised.value.finding))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kernel", chained.LAUNCHES)
def test_programs_and_iterations_that_depend_on_one_another_are_in_order(kernel, target):
    for order in range(3):
        with emulate(target, seed=order, reachable=chained.REACHABLE) as run:
            assert chained.LAUNCHES[kernel](fault=False)
        assert run.ok


@pytest.mark.parametrize("kernel", chained.LAUNCHES)
def test_what_is_wrong_in_that_order_is_named_at_its_line(kernel):
    for order in range(3):
        with emulate(seed=order, raise_on_hazard=False, reachable=chained.REACHABLE) as run:
            chained.LAUNCHES[kernel](fault=True)
        assert run.findings
        assert lines_named(run.findings[0])[0].endswith(f"# {kernel}"), str(run)
