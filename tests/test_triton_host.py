"""What the host does beside launches: memory that nothing is stored in, and PyTorch's CUDA where there is none."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


import reported_kernels as reported  # noqa: E402
import small_kernels as small  # noqa: E402

from workbench.emulator import FindingKind, KernelFault  # noqa: E402
from workbench.model.errors import WrongUsage  # noqa: E402
from workbench.triton import Output, emulate  # noqa: E402

X = np.arange(1000, dtype=np.float32)


def stored_in(out, elements: int) -> None:
    small.scale[(4,)](X, out, elements, 2.0, BLOCK=256)


def test_numpys_empty_arrays_tell_what_is_read_before_it_was_stored():
    with emulate(empty="unwritten", raise_on_hazard=False) as run:
        whole, part, tail = np.empty(1000, np.float32), np.empty_like(X), np.empty(1000, np.float32)
        stored_in(whole, 1000)
        stored_in(part, 990)
        stored_in(tail, 990)
        tail[990:] = 0
        assert whole.sum() == 2 * X.sum() and part[:990].sum() == 2 * X[:990].sum() and part[5] == 10
        np.testing.assert_allclose(tail[:990], whole[:990])
        assert tail.copy().tolist()[-1] == 0 and not run.findings
        part.max()  # the caller reads it
        stored_in(part, 990)
    (finding,) = run.host_findings
    assert finding.kind == FindingKind.UNINITIALISED and finding.source_line.endswith("# the caller reads it\n")
    assert "10 of 1000 elements" in finding.message and not run.ok and "[990]" in str(run)
    assert type(np.empty(3)) is np.ndarray


@pytest.mark.parametrize(
    "read", ["array[995]", "array[[3, 995]]", "array + 1", "np.concatenate([array, array])", "str(array)"]
)
def test_each_way_to_read_an_array_counts(read):
    with emulate(empty="unwritten"):
        array = np.empty(1000, np.float32)
        stored_in(array, 990)
        with pytest.raises(KernelFault, match="in which nothing was stored"):
            eval(read, {"np": np, "array": array})
        eval(read, {"np": np, "array": array})  # said once


def test_a_reset_of_bytes_that_looks_like_new_memory_is_found():
    """Elements of a byte may be stored as what they are; their neighbours tell."""
    with emulate(empty="unwritten") as run:
        array = np.empty(1024, np.uint8)
        array[:] = np.arange(1024) % 256
        out = np.zeros(1024, np.uint8)
        small.scale[(4,)](array, Output(out), 1024, 1, BLOCK=256)
    assert run.ok and np.array_equal(out, array)


@pytest.mark.parametrize("option", [{"empty": "none"}, {"cuda": True}, {"bounds": "array"}, {"configurations": 0}])
def test_choices_that_there_are_not_are_refused(option):
    with pytest.raises(WrongUsage, match="is none of"):
        emulate(**option)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[baselines]'")


@pytest.mark.long
def test_tensors_without_values_are_followed_through_copies_and_operations(torch):
    x = torch.from_numpy(X)
    with emulate(empty="unwritten", raise_on_hazard=False) as run:
        parts = [torch.empty(1000), torch.empty_like(x), x.new_empty(1000), torch.empty_strided((1000,), (1,))]
        for part in parts:
            stored_in(part, 990)
            assert part[:990].sum() > 0
        filled, added = torch.empty(1000).fill_(1), torch.empty(1000)
        torch.add(x, x, out=added)
        assert filled.mean() == 1 and added.sum() == 2 * x.sum() and not run.findings
        copy = parts[0].clone().to(torch.float16).float()
        small.scale[(4,)](copy, torch.zeros(1000), 990, 2.0, BLOCK=256)
        assert run.ok
        small.scale[(4,)](copy, torch.zeros(1000), 1000, 2.0, BLOCK=256)
        assert run.findings[0].source_line.endswith("mask=at < n)") and run.findings[0].index == 990
        parts[1].sum()  # read 1
        parts[2].numpy()  # read 2
        parts[3].mul_(2)  # read 3
    assert [finding.source_line.strip()[-6:] for finding in run.host_findings] == ["read 1", "read 2", "read 3"]


def test_memory_that_is_used_again_holds_nothing_of_before(torch):
    """The state of a tensor goes with it, whoever has its address next."""
    with emulate(empty="unwritten") as run:
        for _ in range(20):
            torch.empty(1000)
            stored_in(torch.zeros(1000), 990)
            small.scale[(4,)](torch.ones(1000), torch.zeros(1000), 1000, 2.0, BLOCK=256)
    assert run.ok


def test_the_generator_of_the_device_counts_as_pytorchs(torch):
    """What functions that draw by Philox read and advance: 16 bytes of a seed and an offset."""
    with emulate():
        torch.manual_seed(7)
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state = generator.get_state()
        seed, offset = map(int, state.view(torch.int64))
        assert (seed, offset, generator.initial_seed(), state.dtype) == (7, 0, 7, torch.uint8)
        state.view(torch.int64)[1] = offset + 12
        generator.set_state(state)
        assert generator.get_offset() == 12
        torch.cuda.manual_seed(7)
        assert generator.get_offset() == 0


def test_operators_of_pytorch_have_the_type_of_an_autocast_of_the_device(torch):
    with emulate():
        x, layer = torch.randn(4, 8, device="cuda"), torch.nn.Linear(8, 8, device="cuda")
        with torch.autocast("cuda"):
            assert layer(x).dtype == torch.float16
            with torch.autocast("cuda", dtype=torch.bfloat16):
                assert (x @ x.T).dtype == torch.bfloat16
            with torch.autocast("cuda", enabled=False):
                assert layer(x).dtype == torch.float32
            assert (x @ x.T).dtype == torch.float16
        assert layer(x).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def test_a_generator_of_the_device_draws(torch):
    with emulate():
        draws = [
            torch.randn(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed))
            for seed in (1, 1, 2)
        ]
        assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
        assert isinstance(torch.default_generator, torch.Generator)


def test_functions_of_libraries_run_as_they_are_on_tensors_of_the_cpu(torch):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
            out = torch.empty_like(x)
            with torch.cuda.device(x.device.index):
                small.scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
            return out

        @staticmethod
        def backward(ctx, gradient):
            assert gradient.is_cuda and torch.cuda.current_device() == 0
            out = torch.empty(gradient.shape, device=gradient.device)
            small.scale[(4,)](gradient.contiguous(), out, 1000, 2.0, BLOCK=256)
            return out

    with emulate("sm_89") as run:
        assert torch.cuda.get_device_capability() == (8, 9)
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == 128
        x = torch.randn(1000, device="cuda", requires_grad=True)
        Doubled.apply(x).sum().backward()
        assert torch.equal(x.grad, torch.full((1000,), 2.0, device="cuda:0"))
        assert torch.autograd.grad(Doubled.apply(x).sum(), x)[0].sum() == 2000
        layer = torch.nn.Linear(4, 4, device="cuda").to("cuda").cuda()
        assert layer(torch.tensor([1.0] * 4, device=x.device)).cpu().shape == (4,)
    assert run.ok and len(run.launches) == 4
    assert not x.is_cuda and x.device.type == "cpu" and not torch.cuda.is_available()
    with emulate(cuda="absent"):
        assert not torch.zeros(1).is_cuda and not torch.cuda.is_available()


@pytest.mark.long
def test_pytorch_may_be_imported_before_or_after(torch):
    text = """
with workbench.triton.emulate() as run:
    import torch
    assert torch.cuda.is_available() and torch.zeros(3, device="cuda").is_cuda
assert not torch.cuda.is_available()
"""
    for first in ("import workbench.triton, triton", "import torch, workbench.triton", "import workbench.triton"):
        subprocess.run([sys.executable, "-c", f"{first}\n{text}"], check=True)


GRID = {"B": 64, "EVEN": False}


def compiled(x, n, tmp_path, kind):
    """The kernel, made from text that Triton has written itself."""
    path = tmp_path / f"kernel.{kind}"
    path.write_text(small.increased.warmup(x, n, **GRID, grid=(1,)).asm[kind])
    return triton.compile(str(path))


def run_of_compiled(x, n, tmp_path):
    kernel = small.increased.warmup(x, n, **GRID, grid=(1,))
    kernel.run(2, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, n, *GRID.values())


LAUNCHES = {
    "run": lambda x, n, _: small.increased.run(x, n, **GRID, grid=(2,), warmup=False),
    "warmup": lambda x, n, _: small.increased.warmup(x, n, **GRID, grid=(1,))[(2, 1, 1)](x, n, *GRID.values()),
    "run of what was compiled": run_of_compiled,
    "ttir": lambda x, n, tmp_path: compiled(x, n, tmp_path, "ttir")[(2, 1, 1)](x, n),
    "ttgir": lambda x, n, tmp_path: compiled(x, n, tmp_path, "ttgir")[(2, 1, 1)](x, n),
    "heuristics of a tuner": lambda x, n, _: small.increased_even[(2,)](x, n),
    "a tuner of heuristics": lambda x, n, _: small.increased_tuned[lambda meta: (triton.cdiv(n, meta["B"]),)](x, n),
}


@pytest.mark.parametrize("launch", LAUNCHES)
def test_however_it_is_launched_a_kernel_is_taken_over(launch, tmp_path):
    for n, ok in ((100, True), (101, False)):
        x = np.zeros(100, np.float32)
        with emulate(raise_on_hazard=False) as run:
            LAUNCHES[launch](x, n, tmp_path)
        assert run.launches and run.ok is ok and x.tolist() == [1.0] * 100


def test_operators_of_a_library_are_taken_over(torch):
    """One that PyTorch may trace, and one that is made for CUDA alone."""

    def triton_op(x):
        out = x.clone()
        torch.library.wrap_triton(small.increased)[(2,)](out, 100, **GRID)
        return out

    def custom_op(x):
        small.increased[(2,)](x, 100, **GRID)

    triton_op.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    custom_op.__annotations__ = {"x": torch.Tensor, "return": None}
    traced = torch.library.triton_op("workbench_tests::increased", triton_op, mutates_args={})
    made = torch.library.custom_op("workbench_tests::increase", custom_op, mutates_args={"x"}, device_types="cuda")
    x = torch.zeros(100)
    with emulate() as run:
        made(x)
        assert traced(x).tolist() == [2.0] * 100
    assert run.ok and len(run.launches) == 2 and x.tolist() == [1.0] * 100


@pytest.mark.parametrize("report", reported.REPORTS)
def test_faults_that_people_have_reported_are_named_and_their_remedies_are_clean(report):
    for fixed in (False, True):
        with emulate(empty="unwritten", raise_on_hazard=False) as run:
            reported.REPORTS[report](fixed)
        errors = [finding for finding in run.findings if finding.severity == "error"]
        assert run.launches and run.ok is fixed, str(run)
        assert all("# here" in finding.source_line for finding in errors[:1]), str(run)
        assert len(errors) >= 1 or fixed
