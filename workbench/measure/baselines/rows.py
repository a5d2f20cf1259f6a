"""What operations on rows are measured against: PyTorch's calls, the same compiled, and NumPy.

A call gets the module `torch` and returns the outputs in the order that the problem has them. Where PyTorch has no call
for the whole, it is written out in float, which `torch.compile` fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...model.arrays import Array, Arrays
from ...model.problem import Problem
from . import pytorch
from .base import Prepared, one_type
from .pytorch import Call, Tensors


class Returned:
    """A call that returns the outputs, by PyTorch or by what its compiler makes of it."""

    solves = True

    def __init__(self, call: Call, *, compiled: bool, refuses: Callable[[Problem], str | None] = one_type) -> None:
        self.name = "torch.compile" if compiled else "PyTorch"
        self._call, self._compiled, self._refuses = call, compiled, refuses

    def version(self) -> str | None:
        torch = pytorch.load()
        return None if torch is None else f"torch {torch.__version__}, CUDA {torch.version.cuda}"

    def refuses(self, problem: Problem) -> str | None:
        return self._refuses(problem)

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        torch, held = pytorch.load(), pytorch.tensors(arrays, buffers)
        assert torch is not None
        outputs = [held.pop(name) for name, array in arrays.items() if array.output]

        def solve(given: Tensors) -> Any:
            return self._call(torch, problem, given)

        if self._compiled:
            torch.compiler.reset()  # it compiles a function for a few shapes, and then no more
            # in this process: for one kernel others need not be started
            solve = torch.compile(solve, fullgraph=True, dynamic=False, options={"compile_threads": 1})
        answer: list[Any] = []

        def enqueue() -> None:
            answer.clear()  # its memory serves for the next
            found = solve(held)
            answer.extend(found if isinstance(found, tuple) else (found,))

        def finish() -> None:
            for output, found in zip(outputs, answer, strict=True):
                output.copy_(found.reshape(output.shape))

        return Prepared(enqueue, finish)


def _residual_rms_norm(torch: Any, p: Any, t: Tensors) -> Any:
    s = t["x"] + t["residual"]
    return s, torch.nn.functional.rms_norm(s, (p.columns,), t["w"], p.eps)


def _rms_norm_backward(torch: Any, p: Any, t: Tensors) -> Any:
    x, w, dy = (t[name].float() for name in ("x", "w", "dy"))
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + p.eps)
    n, g = x * scale, w * dy
    dx = scale * (g - n * (g * n).mean(-1, keepdim=True))
    return dx.to(t["x"].dtype), (dy * n).sum(0).to(t["x"].dtype)


def _layer_norm_backward(torch: Any, p: Any, t: Tensors) -> Any:
    x, w, dy = (t[name].float() for name in ("x", "w", "dy"))
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + p.eps)
    n, g = (x - mean) * scale, w * dy
    dx = scale * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
    return tuple(v.to(t["x"].dtype) for v in (dx, (dy * n).sum(0), dy.sum(0)))


def _cross_entropy(torch: Any, p: Any, t: Tensors) -> Any:
    x = t["x"].float()
    loss = torch.nn.functional.cross_entropy(x, t["labels"].long(), reduction="none", ignore_index=-100)
    return loss, torch.logsumexp(x, -1)


def _rotary(torch: Any, p: Any, t: Tensors) -> Any:
    x, cos, sin = (t[name].float() for name in ("x", "cos", "sin"))
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    if p.pairs == "interleaved":
        u, v = x[..., 0::2], x[..., 1::2]
        y = torch.stack((u * cos - v * sin, u * sin + v * cos), -1).flatten(-2)
    else:
        u, v = x.chunk(2, -1)
        y = torch.cat((u * cos - v * sin, u * sin + v * cos), -1)
    return y.to(t["x"].dtype)


def _reduce(torch: Any, p: Any, t: Tensors) -> Any:
    dims = {"columns": (1,), "rows": (0,), "all": (0, 1)}[p.over]
    return (torch.sum if p.op == "sum" else torch.amax)(t["x"], dims)


def returned(*, compiled: bool) -> dict[str, Returned]:
    """PyTorch's call of every operation on rows. Cross entropy has outputs of fp32 by definition."""
    made = {name: Returned(call, compiled=compiled) for name, call in CALLS.items()}
    made["cross_entropy"] = Returned(_cross_entropy, compiled=compiled, refuses=lambda problem: None)
    return made


CALLS: dict[str, Call] = {
    "softmax": lambda torch, p, t: torch.softmax(t["x"], -1),
    "softmax_backward": lambda torch, p, t: torch.ops.aten._softmax_backward_data(t["dy"], t["y"], -1, t["y"].dtype),
    "rms_norm": lambda torch, p, t: torch.nn.functional.rms_norm(t["x"], (t["x"].shape[-1],), t["w"], p.eps),  # type: ignore[attr-defined]
    "layer_norm": lambda torch, p, t: torch.layer_norm(t["x"], (t["x"].shape[-1],), t["w"], t["b"], p.eps),  # type: ignore[attr-defined]
    "residual_rms_norm": _residual_rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "layer_norm_backward": _layer_norm_backward,
    "cross_entropy": _cross_entropy,
    "rotary": _rotary,
    "transpose": lambda torch, p, t: t["x"].t().contiguous(),
    "reduce": _reduce,
    "scan": lambda torch, p, t: torch.cumsum(t["x"], -1, dtype=t["x"].dtype),
}


def _numpy_softmax(p: Any, x: Arrays) -> Any:
    e = np.exp(x["x"] - x["x"].max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _numpy_rms(x: Any, w: Any, eps: float) -> Any:
    return x * w / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(eps))


def _numpy_residual(p: Any, x: Arrays) -> Any:
    s = x["x"] + x["residual"]
    return {"s": s, "y": _numpy_rms(s, x["w"], p.eps)}


def _numpy_layer_norm(p: Any, x: Arrays) -> Any:
    centred = x["x"] - x["x"].mean(axis=1, keepdims=True)
    return _numpy_rms(centred, x["w"], p.eps) + x["b"]


def _numpy_cross_entropy(p: Any, x: Arrays) -> Any:
    logits, labels = x["x"], x["labels"].astype(np.int64)
    top = logits.max(axis=1)
    lse = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    loss = np.where(labels < 0, 0, lse - logits[np.arange(len(labels)), np.maximum(labels, 0)])
    return {"loss": loss.astype(np.float32), "lse": lse}


def _numpy_rotary(p: Any, x: Arrays) -> Any:
    v, cos, sin = x["x"], x["cos"], x["sin"]
    if p.layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    y, half = np.empty_like(v), v.shape[-1] // 2
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if p.pairs == "interleaved" else (slice(half), slice(half, None))
    )
    y[..., first] = v[..., first] * cos - v[..., second] * sin
    y[..., second] = v[..., first] * sin + v[..., second] * cos
    return y


def _numpy_reduce(p: Any, x: Arrays) -> Any:
    axis = {"columns": 1, "rows": 0, "all": None}[p.over]
    return np.atleast_1d((np.sum if p.op == "sum" else np.max)(x["x"], axis=axis))


def _numpy_norm_backward(p: Any, x: Arrays, centred: bool) -> Any:
    v = x["x"] - x["x"].mean(axis=1, keepdims=True) if centred else x["x"]
    scale = 1 / np.sqrt(np.mean(v * v, axis=1, keepdims=True) + np.float32(p.eps))
    n, g = v * scale, x["w"] * x["dy"]
    inner = g - n * np.mean(g * n, axis=1, keepdims=True)
    answer = {"dx": scale * (inner - g.mean(axis=1, keepdims=True) if centred else inner)}
    return answer | {"dw": (x["dy"] * n).sum(axis=0)} | ({"db": x["dy"].sum(axis=0)} if centred else {})


SOLVERS: dict[str, Callable[[Any, Arrays], Any]] = {
    "softmax": _numpy_softmax,
    "softmax_backward": lambda p, x: x["y"] * (x["dy"] - (x["y"] * x["dy"]).sum(axis=1, keepdims=True)),
    "rms_norm": lambda p, x: _numpy_rms(x["x"], x["w"], p.eps),
    "layer_norm": _numpy_layer_norm,
    "residual_rms_norm": _numpy_residual,
    "rms_norm_backward": lambda p, x: _numpy_norm_backward(p, x, False),
    "layer_norm_backward": lambda p, x: _numpy_norm_backward(p, x, True),
    "cross_entropy": _numpy_cross_entropy,
    "rotary": _numpy_rotary,
    "transpose": lambda p, x: np.ascontiguousarray(x["x"].T),
    "reduce": _numpy_reduce,
    "scan": lambda p, x: np.cumsum(x["x"], axis=1, dtype=np.float32),
}
"""In fp32: the output, or all outputs by name."""
