"""The gradients of a product, which are products, for autograd of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .problem import Activation


class ProductGradients:
    """Of activation(alpha a b + beta c), with dz the gradient before the activation: da = alpha dz b^T and
    db = alpha a^T dz are products, stored in the order of a and b; dc is beta times the sum of dz over what shares c.

    Kept are arrays of the call, and for relu its result. The derivatives of gelu and silu are taken at
    alpha a b + beta c, which another product computes again: so a call has the same result from the same kernel,
    whether or not its gradients are wanted. For da and db, dz is rounded to the dtype of a and b."""

    def saved(
        self, arrays: Sequence[Any], results: Sequence[Any], wanted: Sequence[bool], options: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Any]:
        like = [(x.shape, x.stride()) if needed else None for x, needed in zip(arrays, wanted, strict=False)]
        activation = options.get("activation", "none")
        if activation in (Activation.GELU, Activation.SILU):
            return arrays, (like, options)
        a, b = arrays[:2]
        kept = a if wanted[1] else None, b if wanted[0] else None
        return (kept if activation == Activation.NONE else (*kept, *results)), (like, options)

    def solve(
        self, called: Callable[[str], Any], saved: Sequence[Any], kept: Any, gradient: Any, wanted: Sequence[bool]
    ) -> Sequence[Any]:
        gemm, (a, b), (like, options) = called("gemm"), saved[:2], kept
        alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
        dz = _before(gemm, saved, gradient, options)
        dc = dz.sum_to_size(like[2][0]) * beta if len(like) > 2 and like[2] and beta else None
        if not (wanted[0] or wanted[1]):
            return None, None, dc
        dtype, factors = (b if a is None else a).dtype, {"alpha": alpha} if alpha != 1 else {}
        dz = dz if dz.dtype == dtype else dz.to(dtype)
        dz = dz if dz.is_contiguous() or dz.mT.is_contiguous() else dz.contiguous()
        trans_b = options.get("trans_b", False)
        da = _product(gemm, dz, b if trans_b else b.mT, like[0], factors) if wanted[0] else None
        if not wanted[1]:
            return da, None, dc
        return da, _product(gemm, *((dz.mT, a) if trans_b else (a.mT, dz)), like[1], factors), dc


def _before(gemm: Any, saved: Sequence[Any], dy: Any, options: Mapping[str, Any]) -> Any:
    """The gradient before the activation."""
    activation = options.get("activation", "none")
    if activation == Activation.NONE:
        return dy
    import torch

    aten = torch.ops.aten
    if activation == Activation.RELU:
        return aten.threshold_backward(dy, saved[2], 0)
    z = gemm(*saved, **{name: value for name, value in options.items() if name != "activation"})
    if activation == Activation.GELU:
        return aten.gelu_backward(dy, z)
    if torch.is_grad_enabled():  # silu_backward has no gradient of its own
        part = z.sigmoid()
        return dy * (part * (1 + z * (1 - part)))
    return aten.silu_backward(dy, z)


def _product(gemm: Any, x: Any, y: Any, like: tuple[Any, Any], factors: Mapping[str, Any]) -> Any:
    """x y as the gradient of an array of this shape and these strides: stored in its order; and added up over a batch
    that it has one matrix for, by one product whose k is that of all."""
    shape, strides = like
    if (len(shape) == 2 or shape[0] == 1) and max(x.ndim, y.ndim) == 3:
        batch = x.shape[0] if x.ndim == 3 else y.shape[0]
        x, y = x.expand(batch, *x.shape[-2:]), y.expand(batch, *y.shape[-2:])
        x, y = x.movedim(0, 1).flatten(1), y.flatten(0, 1)
    turned = strides[-2] == 1 != strides[-1]
    found = gemm(y.mT, x.mT, **factors).mT if turned else gemm(x, y, **factors)
    return found.view(shape) if found.ndim < len(shape) else found
