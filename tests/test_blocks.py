"""The blocks of `examples/blocks` answer by `workbench.ops` what they answer in plain PyTorch: in the emulator, and on
a GPU, where `torch.compile` takes them, too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from emulated_gpu import EmulatedGpu  # noqa: E402

from workbench import ops  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "blocks"))

import compare  # noqa: E402
import plain  # noqa: E402
from blocks import MambaBlock, TransformerBlock  # noqa: E402

SMALL = {
    "transformer": partial(TransformerBlock, width=64, heads=4, key_heads=2, hidden=96, longest=300),
    "Mamba-2": partial(MambaBlock, width=64, inner=128, headdim=16, dstate=16),
}

CALLED = {
    "transformer": {"gemm", "rms_norm", "rotary", "attention", "residual_rms_norm"},
    "Mamba-2": {"gemm", "rms_norm", "ssd"},
}
"""Operations of a block."""


class Emulated:
    """The operations of `workbench.ops` on tensors of the CPU: copies of them, strides and all, on an emulated GPU."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu, self.called = gpu, set[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*tensors: Any, **options: Any) -> Any:
            self.called.add(name)
            return _each(self.download, getattr(ops, name)(*map(self.upload, tensors), **options))

        return call

    def upload(self, tensor: Any) -> Any:
        storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        whole = self.gpu.upload(_numpy(storage))
        strides = [step * tensor.itemsize for step in tensor.stride()]
        start = whole.data + tensor.storage_offset() * tensor.itemsize
        return cupy.ndarray(tensor.shape, whole.dtype, start, strides)

    def download(self, array: Any) -> Any:
        values = self.gpu.download(array)
        if values.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(values)


def _numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _each(change: Callable[[Any], Any], results: Any) -> Any:
    """The result, or the tuple of results, of an operation, each changed."""
    if not isinstance(results, tuple):
        return change(results)
    values = map(change, results)
    return type(results)(*values) if hasattr(results, "_fields") else tuple(values)


@pytest.mark.long
@pytest.mark.parametrize(("batch", "positions"), [(1, 1), (2, 37), (1, 150)])
@pytest.mark.parametrize("name", SMALL)
def test_a_block_in_the_emulator_is_as_exact_as_in_pytorch(
    gpu: EmulatedGpu, name: str, batch: int, positions: int
) -> None:
    contest = compare.Contest(SMALL[name], batch, positions, device="cpu")
    contest.ours.operators = emulated = Emulated(gpu)
    ours, theirs = contest.errors(lambda: contest.ours(contest.x), lambda: contest.plain(contest.x))
    assert compare.right_enough(ours, theirs), (ours, theirs)
    assert emulated.called == CALLED[name]


@pytest.mark.parametrize("name", SMALL)
def test_an_operation_that_is_a_tenth_off_is_noticed(name: str) -> None:
    contest = compare.Contest(SMALL[name], 1, 40, device="cpu")
    for wrong in CALLED[name]:
        contest.ours.operators = OneWrong(wrong)
        ours, theirs = contest.errors(lambda: contest.ours(contest.x), lambda: contest.plain(contest.x))
        assert not compare.right_enough(ours, theirs), wrong


class OneWrong:
    """The operations of `plain.py`, of which one answers a tenth too much."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def __getattr__(self, name: str) -> Any:
        right = getattr(plain, name)
        if name != self.wrong:
            return right

        def call(*tensors: Any, **options: Any) -> Any:
            return _each(lambda result: result * 1.1, right(*tensors, **options))

        return call


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "positions"), [(1, 1), (2, 37), (1, 300)])
@pytest.mark.parametrize("name", SMALL)
def test_a_block_on_a_gpu_is_as_exact_as_in_pytorch_compiled_and_captured_too(
    name: str, batch: int, positions: int
) -> None:
    torch.compiler.reset()
    contest = compare.Contest(SMALL[name], batch, positions)
    calls = contest.ways()
    contest.errors(*calls.values())  # compiles, which cannot be captured
    calls |= {f"{way}, as a graph": compare.captured(call) for way, call in calls.items()}
    found = dict(zip(calls, contest.errors(*calls.values()), strict=True))
    wrong = {way: error for way, error in found.items() if not compare.right_enough(error, found[compare.THEIRS])}
    assert not wrong, (wrong, found[compare.THEIRS])


def _norm(x: Any, w: Any) -> Any:
    return w * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def _llama(b: TransformerBlock, x: Any) -> Any:
    """A layer of Llama for one sequence, (positions, width), whose pairs of elements are complex numbers."""
    turn = torch.complex(b.cos[: len(x)], b.sin[: len(x)])
    q, k, v = (_norm(x, b.norm_before) @ b.qkv.T).view(len(x), -1, b.dim).split((b.heads, b.key_heads, b.key_heads), 1)
    q, k = (torch.complex(*part.transpose(0, 1).chunk(2, -1)) * turn for part in (q, k))
    found = []
    for head in range(b.heads):
        of = head * b.key_heads // b.heads
        scores = (q[head] @ k[of].mH).real / b.dim**0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        found.append(scores.masked_fill(later, float("-inf")).softmax(-1) @ v[:, of])
    x = x + torch.cat(found, -1) @ b.out.T
    gate, up = b.gate_up.chunk(2)
    y = _norm(x, b.norm_between)
    g = y @ gate.T
    return x + (g * torch.sigmoid(g) * (y @ up.T)) @ b.down.T


def _mamba(b: MambaBlock, x: Any) -> Any:
    """A layer of Mamba-2 for one sequence, (positions, width), a position after the other."""
    state, before, found = x.new_zeros(b.heads, b.dstate, b.headdim), [x.new_zeros(b.convolved)] * 3, []
    for row in x:
        z, mixed, step = (b.entry @ _norm(row, b.norm)).split((b.inner, b.convolved, b.heads))
        before = [*before[-3:], mixed]
        mixed = sum(tap * each for tap, each in zip(b.taps, before, strict=True)) + b.bias
        u, into, out_of = (mixed * torch.sigmoid(mixed)).split((b.inner, b.dstate, b.dstate))
        step, u = torch.log1p(torch.exp(step + b.step_bias)), u.view(b.heads, b.headdim)
        state = state * torch.exp(-step * b.log_rates.exp())[:, None, None]
        state = state + (step[:, None] * u)[:, None, :] * into[:, None]
        y = out_of @ state + b.skip[:, None] * u
        found.append(row + b.exit @ _norm(y.flatten() * z * torch.sigmoid(z), b.norm_gated))
    return torch.stack(found)


@pytest.mark.parametrize(("name", "formula"), [("transformer", _llama), ("Mamba-2", _mamba)])
def test_a_block_is_what_its_model_says(name: str, formula: Callable[[Any, Any], Any]) -> None:
    torch.manual_seed(0)
    block = SMALL[name](operators=plain).double()
    x = torch.randn(2, 150, 64, dtype=torch.float64)
    assert torch.allclose(block(x), torch.stack([formula(block, sequence) for sequence in x]))


@pytest.mark.parametrize("length", [1, 127, 128, 300])
def test_the_plain_state_space_model_is_its_recurrence(length: int) -> None:
    torch.manual_seed(0)
    x, b, c = (torch.randn(2, length, *shape, dtype=torch.float64) for shape in ((4, 8), (2, 5), (2, 5)))
    log_a = -torch.rand(2, length, 4, dtype=torch.float64)
    h, right = torch.zeros(2, 4, 5, 8, dtype=torch.float64), []
    for t in range(length):
        added = torch.einsum("bhn,bhd->bhnd", b[:, t].repeat_interleave(2, 1), x[:, t])
        h = log_a[:, t, :, None, None].exp() * h + added
        right.append(torch.einsum("bhn,bhnd->bhd", c[:, t].repeat_interleave(2, 1), h))
    assert torch.allclose(plain.ssd(x, log_a, b, c).y, torch.stack(right, 1))
