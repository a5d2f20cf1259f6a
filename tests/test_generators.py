"""PTX of other generators: right and clean, and faults are named; skipped where a generator is not installed."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from workbench.emulator import launch, load


def names(module):
    """The kernels of a module, and those with a fault, without an import of what may not be installed."""
    text = (Path(__file__).parent / "generator_kernels" / f"{module}.py").read_text()
    kernels, faults = text.partition("\nKERNELS = {")[2].split("\nFAULTS = ", 1)
    return re.findall(r"^    [\"]?(\w+)[\"]?: ", kernels, re.M) + re.findall(r"(\w+)[\"]?: ", faults.partition("}")[0])


def launched(program, name, kernels, kernel, expected=None):
    x, out = kernels.X.copy(), np.zeros_like(kernels.X if expected is None else expected)
    return out, launch(program, name, 2, 128, kernels.arguments(x, out))


def judge(program, name, kernels, kernel):
    if kernel in kernels.KERNELS:
        expected = np.float32(kernels.KERNELS[kernel](kernels.X))
        out, report = launched(program, name, kernels, kernel, expected)
        assert report.ok, str(report)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    else:
        _, report = launched(program, name, kernels, kernel)
        finding = report.failures[0]
        assert finding.kind == kernels.FAULTS[kernel], str(report)
        return finding
    return None


@pytest.mark.parametrize("name", names("numba_kernels"))
def test_kernels_of_numba_cuda(name):
    pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed: pip install numba-cuda[cu13]")
    import numba_kernels as kernels

    kernel = getattr(kernels, name)
    finding = judge(load(kernels.ptx(kernel)), None, kernels, kernel)
    assert finding is None or finding.source_line.endswith("# here"), str(finding)


@cache
def of_warp(folder):
    import warp_kernels as kernels

    file = kernels.ptx(folder)
    assert file.read_bytes().endswith(b"\0")  # as C ends a text
    return load(file)


@pytest.mark.parametrize("name", names("warp_kernels"))
def test_kernels_of_warp(name, tmp_path_factory):
    """One module has them all, each with its backward kernel."""
    pytest.importorskip("warp", reason="NVIDIA Warp is not installed: pip install warp-lang")
    import warp_kernels as kernels

    program = of_warp(tmp_path_factory.getbasetemp())
    judge(program, f"{name}_cuda_kernel_forward", kernels, getattr(kernels, name))


@pytest.mark.parametrize("name", names("gluon_kernels"))
def test_kernels_of_gluon(name):
    pytest.importorskip("triton.experimental.gluon", reason="Triton is not installed: pip install -e '.[triton]'")
    import gluon_kernels as kernels

    from workbench.triton import emulate

    kernel = getattr(kernels, name)
    expected = np.float32(kernels.KERNELS[kernel](kernels.X) if kernel in kernels.KERNELS else kernels.X)
    out = np.zeros_like(expected)
    with emulate(raise_on_hazard=False) as run:
        kernel[(2,)](kernels.X.copy(), out, 128)
    if kernel in kernels.KERNELS:
        assert run.ok, str(run)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    else:
        assert run.findings[0].kind == kernels.FAULTS[kernel] and run.findings[0].source_line.endswith("# here")


@pytest.mark.parametrize("name", names("helion_kernels"))
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


def of_pallas():
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    import pallas_kernels

    return pallas_kernels


@pytest.mark.parametrize("name", names("pallas_kernels"))
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


PYPTX = [f"{a}_{n}" for a in ("ampere", "hopper", "blackwell") for n in ("rms_norm", "layer_norm", "swiglu")]
PYPTX += ["ampere_softmax", "hopper_softmax", "gemm", "gemm_pipelined", "gemm_highperf", "grouped_gemm"]
PYPTX += ["scaled", "sines", "chosen", "summed_by_warp", "reversed_by_block", "iterated"]
PYPTX += ["beyond", "unordered"]


def of_pyptx():
    pytest.importorskip("pyptx", reason="pyptx is not installed: pip install pyptx")
    pytest.importorskip("jax", reason="JAX, which the examples of pyptx import, is not installed: pip install jax")


@pytest.mark.parametrize("name", PYPTX)
def test_kernels_of_pyptx(name):
    """Products are those of its package, with ldmatrix, mma, cp.async, TMA and wgmma."""
    of_pyptx()
    import pyptx_kernels as kernels

    if name in kernels.EXAMPLES:
        module, build, shape, arrays, expected = kernels.EXAMPLES[name]
        found, report = kernels.run(kernels.example(module, build, *shape), *arrays)
    else:
        body = getattr(kernels, name)
        found, report = kernels.run(kernels.of_elements(body), kernels.X)
        expected = kernels.OWN[body](kernels.X) if body in kernels.OWN else None
    if expected is None:
        assert report.failures[0].kind == kernels.FAULTS[getattr(kernels, name)], str(report)
    else:
        assert report.ok, str(report)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_an_example_of_pyptx_lacks_a_proxy_fence():
    """Its attention stores probabilities to shared memory and has wgmma read them, with only a barrier between."""
    of_pyptx()
    import pyptx_kernels as kernels

    module, build, shape, arrays, expected = kernels.EXAMPLES["flash_attention_hopper"]
    built = kernels.example(module, build, *shape)
    _, report = kernels.run(built, *arrays)
    assert {str(finding.kind) for finding in report.failures} == {"proxy_fence"}, str(report)
    text = built.ptx().replace("bar.sync 0, 128;", "fence.proxy.async.shared::cta;\nbar.sync 0, 128;")
    found, report = kernels.run(built, *arrays, text=text)
    assert report.ok, str(report)
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("name", names("cute_kernels"))
def test_kernels_of_cute_dsl(name):
    if find_spec("cutlass") is None:  # which is imported when its environment is set
        pytest.skip("CuTe DSL is not installed: pip install nvidia-cutlass-dsl")
    import cute_kernels as kernels

    kernel = getattr(kernels, name)
    found, report = kernels.run(kernel)
    if kernel in kernels.KERNELS:
        assert report.ok, str(report)
        np.testing.assert_allclose(found, kernels.KERNELS[kernel](kernels.X, kernels.Y), rtol=1e-5, atol=1e-5)
    else:
        finding = report.failures[0]
        assert finding.kind == kernels.FAULTS[kernel] and finding.source_line.endswith("# here"), str(report)


@cache
def of_tilelang(folder):
    import tilelang_kernels as kernels

    sources = kernels.sources()
    return sources, kernels.program("\n".join(sources.values()), folder)


@pytest.mark.parametrize("name", names("tilelang_kernels"))
def test_kernels_of_tilelang(name, tmp_path_factory):
    """One file has them all, so that nvcc reads the headers once."""
    pytest.importorskip("tilelang", reason="TileLang is not installed: pip install tilelang")
    pytest.importorskip(
        "nvidia.cu13.bin", reason="nvcc is not installed: pip install nvidia-cuda-nvcc nvidia-cuda-cccl"
    )
    import tilelang_kernels as kernels

    sources, program = of_tilelang(tmp_path_factory.getbasetemp())
    found, report = kernels.run(program, name, sources[name])
    if name in kernels.FAULTS:
        assert report.failures[0].kind == kernels.FAULTS[name], str(report)
    else:
        assert report.ok, str(report)
        tolerance = 5e-3 if name.startswith("product") else 1e-5  # whose inputs are fp16
        np.testing.assert_allclose(
            found, kernels.KERNELS[name][1](kernels.X, kernels.Y), rtol=tolerance, atol=4 * tolerance
        )
