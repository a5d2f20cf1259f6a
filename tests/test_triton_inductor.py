"""``torch.compile`` where PyTorch has no GPU: Inductor's kernels run in the emulator, as do those of ``triton_op``."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import triton.language as tl  # noqa: E402

from workbench.emulator import FindingKind  # noqa: E402
from workbench.triton import emulate  # noqa: E402

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch has a GPU, which Inductor compiles for")

FUNCTIONS = {
    "softmax": lambda x, y: torch.softmax(x * 2 + y.sin(), dim=-1),
    "norm": lambda x, y: torch.nn.functional.rms_norm(x, (100,)) * y,
    "total": lambda x, y: (x * y).sum(),
    "by_columns": lambda x, y: x.sum(0) + y.amax(0),
    "gathered": lambda x, y: x[:, torch.arange(99, -1, -1)] + torch.cumsum(y, 1),
    "loss": lambda x, y: torch.nn.functional.cross_entropy(x, y.argmax(1)),
    "chosen": lambda x, y: torch.where(x > y, x, y.clamp(-1, 1)) + torch.ones(100, device=x.device),
}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("cuda", ["emulated", "absent"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_are_right_and_clean(name, cuda):
    torch.manual_seed(0)
    x, y = torch.randn(2, 63, 100)
    expected = FUNCTIONS[name](x, y)
    with emulate(cuda=cuda) as run:
        found = torch.compile(FUNCTIONS[name])(x, y)
    assert run.launches and all(launched.kernel.startswith("triton_") for launched in run.launches)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_compiled_module_has_the_gradients_of_one_that_is_not():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(48, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
    x = torch.randn(16, 48)
    gradients = []
    with emulate() as run:
        for function in (module, torch.compile(module)):
            given = x.clone().requires_grad_()
            function(given).square().sum().backward()
            gradients.append(given.grad)
    assert run.launches
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@triton.jit
def doubled(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def beyond(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, 2 * tl.load(x + at), mask=at < n)


def operator(kernel):
    @torch.library.triton_op(f"workbench_tests::{kernel.__name__}", mutates_args={})
    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), block=128)
        return out

    return call


def test_an_operator_of_triton_op_runs_by_itself_and_in_compiled_functions():
    x = torch.arange(1000.0)
    right, wrong = operator(doubled), operator(beyond)
    with emulate(raise_on_hazard=False) as run:
        torch.testing.assert_close(right(x), 2 * x)
        torch.testing.assert_close(torch.compile(lambda x: right(x) + 1)(x), 2 * x + 1)
    assert run.ok and {"doubled", "triton_poi_fused_add_0"} <= {launched.kernel for launched in run.launches}, str(run)
    with emulate(raise_on_hazard=False) as run:
        torch.compile(lambda x: wrong(x) + 1)(x)
    (finding,) = {(finding.kind, finding.source_line) for finding in run.findings}
    assert finding[0] == FindingKind.OUT_OF_BOUNDS and "tl.load(x + at)" in finding[1]


@pytest.mark.parametrize(("configurations", "launches"), [(None, 2), ("all", 4)])
def test_as_many_configurations_are_launched_as_are_asked_for(configurations, launches):
    """Those that Inductor compares, and then the one that it takes."""
    x, y = torch.randn(2, 64, 100)
    with emulate(configurations=configurations) as run:
        torch.compile(FUNCTIONS["softmax"])(x, y)
    assert len(run.launches) == launches, str(run)
