"""What the stages of `attention_backward` are measured against. None of them computes o and lse again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import reference
from ..attention.baselines import _cudnn_version, _torch_refuses
from .operation import ATTENTION_BACKWARD
from .problem import AttentionBackwardProblem


def _refuses(p: AttentionBackwardProblem) -> str | None:
    if p.group > 1:
        return "its call takes as many heads of keys as of queries"
    return _torch_refuses(p)


def _no_dropout(like: Any) -> tuple[Any, Any]:
    """A seed and an offset of random numbers, which nobody draws."""
    import torch

    seed, offset = (torch.empty((), dtype=torch.int64, device=like.device) for _ in range(2))
    return seed, offset


@ATTENTION_BACKWARD.baseline(
    "cuDNN",
    requires="torch",
    vendor=True,
    version=_cudnn_version,
    refuses=_refuses,
)
def cudnn(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    """What autograd calls for scaled_dot_product_attention by cuDNN."""
    import torch

    call = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    seed, offset = _no_dropout(q)
    none = (None, None, None)  # no bias, and lengths that do not vary
    sizes = (p.rows, p.keys, 0.0, p.causal)
    return tuple(call(do, q, k, v, o, lse.unsqueeze(-1), seed, offset, *none, *sizes, scale=p.factor))


@ATTENTION_BACKWARD.baseline("PyTorch flash", requires="torch", refuses=_refuses)
def flash(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    """What autograd calls for scaled_dot_product_attention by FlashAttention."""
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention_backward
    sizes = (None, None, p.rows, p.keys, 0.0, p.causal)
    return tuple(call(do, q, k, v, o, lse, *sizes, *_no_dropout(q), scale=p.factor))


@ATTENTION_BACKWARD.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(
    p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, dq: Any, dk: Any, dv: Any
) -> Callable[[], object]:
    from ._triton import work

    return work(p, q, k, v, o, lse, do, dq, dk, dv)


@ATTENTION_BACKWARD.baseline("NumPy", requires="numpy")
def numpy(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    inputs = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do}
    return tuple(p.gradients(inputs, reference.attention_backward, np.float32).values())
