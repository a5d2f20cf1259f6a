"""Liger is asked for what an operation computes. Its kernels need a GPU: modules of NumPy that take the same arguments,
and treat them as it does, stand for it and for PyTorch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench import reference
from workbench.catalogue import registry
from workbench.judge.case import Case
from workbench.measure.baselines import base, peer_versions, peers_of, pytorch
from workbench.model.operation import Baseline
from workbench.model.problem import Problem

BESIDE = (
    *("softmax", "rms_norm", "layer_norm", "residual_rms_norm", "rotary"),
    *("softmax_backward", "rms_norm_backward", "layer_norm_backward"),
)


class Tensor(np.ndarray[Any, Any]):
    """An array with those methods of a tensor that baselines call."""

    backward: Callable[[Any], tuple[Any, ...]]

    def detach(self) -> Any:
        return self.view()

    def requires_grad_(self) -> Any:
        return self

    def copy_(self, other: Any) -> None:
        self[...] = other

    def float(self) -> Any:
        return self.astype(np.float32)

    def transpose(self, first: int, second: int) -> Any:  # type: ignore[override]
        return self.swapaxes(first, second)

    data = device = property(lambda self: self)  # type: ignore[assignment]


def tensor(values: Any, like: Any = None) -> Tensor:
    return np.asarray(values, None if like is None else like.dtype).view(Tensor)


def gradients_of(y: Any, backward: Callable[[Any], tuple[Any, ...]]) -> Any:
    """A result with what autograd calls for its gradient."""
    y.backward = backward
    return y


def softmax(x: Any) -> Any:
    y = tensor(reference.softmax(x), x)
    return gradients_of(y, lambda dy: (tensor(reference.softmax_backward(y, dy), x),))


def rms_norm(
    x: Any, w: Any, eps: float, offset: float = 0.0, casting_mode: str = "llama", in_place: bool = True
) -> Any:
    """In llama's mode the rows are rounded before the product; `in_place` has dx where dy was."""
    if casting_mode == "llama":
        y = tensor(tensor(reference.rms_norm(x, np.ones_like(w), eps), x) * (w + offset), x)
    else:
        y = tensor(reference.rms_norm(x, w + offset, eps), x)

    def backward(dy: Any) -> tuple[Any, ...]:
        dx, dw = (tensor(g, x) for g in reference.rms_norm_backward(x, w, dy, eps))
        if in_place:
            dy[...] = dx
        return dx, dw

    return gradients_of(y, backward)


def layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    y = tensor(reference.layer_norm(x, w, b, eps), x)
    return gradients_of(y, lambda dy: tuple(tensor(g, x) for g in reference.layer_norm_backward(x, w, dy, eps)))


def add_rms_norm(
    x: Any, r: Any, w: Any, eps: float, offset: float = 0.0, casting_mode: str = "llama", in_place: bool = True
) -> Any:
    return rms_norm(x + r, w, eps, offset, casting_mode), x + r


def rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Rotates in place what is contiguous as (batch, seq, heads, dim)."""
    assert cos.shape == sin.shape == (1, q.shape[2], q.shape[3])
    assert k.shape == (q.shape[0], 1, *q.shape[2:])
    half = q.shape[3] // 2
    rows = np.ascontiguousarray(q.swapaxes(1, 2)).view(Tensor)
    rows[...] = reference.rotary(rows.swapaxes(1, 2), cos[0, :, :half], sin[0, :, :half]).swapaxes(1, 2)
    return rows.swapaxes(1, 2), k


LIGER = {
    **{"liger_softmax": softmax, "liger_rms_norm": rms_norm, "liger_layer_norm": layer_norm},
    **{"liger_fused_add_rms_norm": add_rms_norm, "liger_rope": rope},
}
TORCH = {
    "autograd": SimpleNamespace(grad=lambda y, given, dy, retain_graph: y.backward(dy)),
    "enable_grad": nullcontext,
    "zeros_like": np.zeros_like,
    "empty": lambda shape, dtype, device: np.full(shape, np.nan, dtype).view(Tensor),
    "cat": lambda parts, axis: np.concatenate(parts, axis).view(Tensor),
    "nn": SimpleNamespace(
        functional=SimpleNamespace(
            rms_norm=lambda x, shape, w, eps: rms_norm(x, w, eps, casting_mode="gemma", in_place=False),
            layer_norm=lambda x, shape, w, b, eps: layer_norm(x, w, b, eps),
        )
    ),
}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**TORCH))
    for name in ("liger_kernel", "liger_kernel.transformers"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers.functional", SimpleNamespace(**LIGER))


def declared(operation: str, name: str = "Liger") -> Baseline[Any]:
    (found,) = (b for b in registry.operations()[operation].baselines if b.name == name)
    return found


def error(baseline: Baseline[Any], problem: Problem) -> str:
    """What is wrong with an answer that was computed twice, or nothing."""
    case = Case.of(problem)
    storage = case.storage()
    held = {name: array.view(storage[name]).view(Tensor) for name, array in case.arrays.items()}

    def copy(to: Any, value: Any) -> None:
        to[...] = value.reshape(to.shape)

    work = base.prepared(baseline, problem, case.arrays, held, copy)
    work.enqueue()
    work.enqueue()
    work.deliver()
    failure, _ = case.judge(storage.__getitem__)
    return failure.message if failure else ", ".join(case.changed_inputs(storage))


def make_of(operation: str) -> Callable[[str], Any]:
    """What makes a problem of an operation from its fields."""
    return registry.operations()[operation].problem.parse


def problems(operation: str) -> list[Problem]:
    make = make_of(operation)
    if operation == "rotary":
        sizes = "batch=2,heads=3,seq=5,half=8"
        more = ("dtype=bf16,pad_x=8,gap_x=3", "dtype=fp32")
        return [make(f"{sizes},{m},layout={layout}") for m in more for layout in ("bhsd", "bshd")]
    types = ("fp32",) if operation == "softmax_backward" else ("bf16", "fp32")
    return [make(f"rows=9,columns=70,dtype={t},out={t},pad_x=2,pad_y=4") for t in types]


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("operation", BESIDE)
def test_it_solves_the_operation_and_leaves_the_inputs_alone(operation: str) -> None:
    for problem in problems(operation):
        assert declared(operation).refuses(problem) is None
        assert error(declared(operation), problem) == "", problem


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("operation", ["rms_norm_backward", "layer_norm_backward"])
def test_autograd_gives_the_gradients_of_pytorch(operation: str) -> None:
    for problem in problems(operation):
        assert error(declared(operation, "PyTorch autograd"), problem) == "", problem


@pytest.mark.usefixtures("modules")
def test_llamas_rounding_would_be_found_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_by_default(*given: Any, casting_mode: str) -> Any:
        return rms_norm(*given)

    monkeypatch.setattr(sys.modules["liger_kernel.transformers.functional"], "liger_rms_norm", as_by_default)
    assert "are wrong" in error(declared("rms_norm"), problems("rms_norm")[0])


def test_it_is_beside_these_operations_and_says_what_it_does_not_take() -> None:
    assert {o for o in registry.operations() if "Liger" in peers_of(o)} == set(BESIDE)
    for operation in set(BESIDE) - {"rotary"}:
        make = make_of(operation)
        assert declared(operation).refuses(make("1x65536,dtype=fp32,out=fp32")) is None
        assert "at most 65,536 elements, not 65,537" in str(declared(operation).refuses(make("1x65537,out=fp32")))
        assert "one type" in str(declared(operation).refuses(make("1x8,dtype=bf16,out=fp32")))
    assert "in bf16" in str(declared("softmax_backward").refuses(make_of("softmax_backward")("dtype=bf16,out=bf16")))
    make = make_of("rotary")
    assert declared("rotary").refuses(make("pairs=interleaved")) == "it rotates elements half a row apart"


def test_where_it_is_not_installed_it_is_no_peer_and_where_it_is_its_version_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = SimpleNamespace(__version__="2.9", version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setattr(pytorch, "load", lambda: torch)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else found(name))
    assert "Liger" not in peer_versions("softmax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "liger_kernel", SimpleNamespace())
    monkeypatch.setattr(pytorch.metadata, "version", lambda name: {"liger_kernel": "0.8.5"}[name])
    assert peer_versions("softmax")["Liger"] == "liger_kernel 0.8.5, torch 2.9, CUDA 13.0"
