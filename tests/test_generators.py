"""PTX of other generators: right and clean, and faults are named; skipped where a generator is not installed."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from workbench.emulator import launch, load

sys.path.insert(0, str(Path(__file__).parent / "generator_kernels"))


def launched(program, name, kernels, kernel, expected=None):
    x, out = kernels.X.copy(), np.zeros_like(kernels.X if expected is None else expected)
    return out, launch(program, name, 2, 128, kernels.arguments(x, out))


def judge(program, name, kernels, kernel):
    if kernel in kernels.KERNELS:
        expected = kernels.KERNELS[kernel](kernels.X)
        out, report = launched(program, name, kernels, kernel, expected)
        assert report.ok, str(report)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    else:
        _, report = launched(program, name, kernels, kernel)
        finding = report.failures[0]
        assert finding.kind == kernels.FAULTS[kernel], str(report)
        return finding
    return None


NUMBA = ["scale", "sines", "reversed_by_block", "strided", "counted", "largest", "neighbours", "chosen", "reduced"]
NUMBA += ["polynomial", "beyond", "unordered"]


@pytest.mark.parametrize("name", NUMBA)
def test_kernels_of_numba_cuda(name):
    pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed: pip install numba-cuda[cu13]")
    import numba_kernels as kernels

    kernel = getattr(kernels, name)
    finding = judge(load(kernels.ptx(kernel)), None, kernels, kernel)
    assert finding is None or finding.source_line.endswith("# here"), str(finding)


WARP = ["scale", "sines", "summed", "largest", "neighbours", "lengths", "rotated", "clamped", "iterated", "chosen"]
WARP += ["beyond", "overwritten"]


@cache
def of_warp(folder):
    import warp_kernels as kernels

    file = kernels.ptx(folder)
    assert file.read_bytes().endswith(b"\0")  # as C ends a text
    return load(file)


@pytest.mark.parametrize("name", WARP)
def test_kernels_of_warp(name, tmp_path_factory):
    """One module has them all, each with its backward kernel."""
    pytest.importorskip("warp", reason="NVIDIA Warp is not installed: pip install warp-lang")
    import warp_kernels as kernels

    program = of_warp(tmp_path_factory.getbasetemp())
    judge(program, f"{name}_cuda_kernel_forward", kernels, getattr(kernels, name))


@pytest.mark.parametrize("name", ["scale", "vectors", "total", "through_shared", "beyond", "overwritten"])
def test_kernels_of_gluon(name):
    pytest.importorskip("triton.experimental.gluon", reason="Triton is not installed: pip install -e '.[triton]'")
    import gluon_kernels as kernels

    from workbench.triton import emulate

    kernel = getattr(kernels, name)
    expected = kernels.KERNELS[kernel](kernels.X) if kernel in kernels.KERNELS else kernels.X
    out = np.zeros_like(expected)
    with emulate(raise_on_hazard=False) as run:
        kernel[(2,)](kernels.X.copy(), out, 128)
    if kernel in kernels.KERNELS:
        assert run.ok, str(run)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    else:
        assert run.findings[0].kind == kernels.FAULTS[kernel] and run.findings[0].source_line.endswith("# here")


@pytest.mark.parametrize("name", ["add", "activated", "softmax", "row_sums", "normalised", "product", "overwritten"])
def test_kernels_of_helion(name):
    """It compiles for PyTorch's GPU, which the emulation stands in for."""
    pytest.importorskip("helion", reason="helion is not installed: pip install helion")
    from workbench.triton import emulate

    with emulate(raise_on_hazard=False) as run:
        import helion_kernels as kernels
        import torch

        kernel = getattr(kernels, name)
        x, y = torch.randn(2, 64, 48, device="cuda")
        found = kernel(x, y)
        if kernel in kernels.KERNELS:
            torch.testing.assert_close(found, kernels.KERNELS[kernel](x, y), rtol=2e-2, atol=2e-2)  # products are tf32
    assert run.launches and run.ok is (kernel in kernels.KERNELS), str(run)
    assert run.ok or run.findings[0].kind == kernels.FAULTS[kernel]


PALLAS = [
    "add",
    "activated",
    "chosen",
    "clipped",
    "rounded",
    "integral",
    "trigonometric",
    "softmax",
    "normalised",
    "gelu",
]
PALLAS += ["looped", "branched", "transposed", "row_sums", "largest", "where_largest", "product", "in_place", "tiled"]
PALLAS += ["masked", "beyond", "overwritten"]


def of_pallas():
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    import pallas_kernels

    return pallas_kernels


@pytest.mark.parametrize("name", PALLAS)
def test_kernels_of_pallas(name):
    from workbench.triton import emulate

    kernels = of_pallas()
    kernel = getattr(kernels, name)
    with emulate(raise_on_hazard=False) as run:
        found = np.asarray(kernel(kernels.X, kernels.Y))
    assert run.launches and run.ok is (kernel in kernels.KERNELS), str(run)
    if run.ok:
        np.testing.assert_allclose(
            found, np.asarray(kernels.KERNELS[kernel](kernels.X, kernels.Y)), rtol=2e-5, atol=2e-5
        )
    else:
        assert run.findings[0].kind == kernels.FAULTS[kernel] and run.findings[0].source_line.endswith("# here")


def test_a_fault_of_pallas_is_raised_as_such_though_jax_wraps_it_and_is_late():
    from workbench.triton import LaunchFault, emulate

    kernels = of_pallas()
    with pytest.raises(LaunchFault, match=r"out of bounds: reads 16 bytes at x\[4096\]"), emulate():
        kernels.beyond(kernels.X, kernels.Y)  # nobody asks for its result


def test_a_pallas_call_of_another_backend_is_refused_and_one_outside_of_the_emulation():
    from workbench.model.errors import WrongUsage
    from workbench.triton import emulate

    kernels = of_pallas()
    import jax

    with emulate():
        jitted = jax.jit(kernels.add).lower(kernels.X, kernels.Y).compile()
        with pytest.raises(WrongUsage, match=r"triton\.CompilerParams"):
            kernels.of_rows(lambda x, y, out: None, compiler_params=None)(kernels.X, kernels.Y)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"is called outside of it"):
        jax.block_until_ready(jitted(kernels.X, kernels.Y))
