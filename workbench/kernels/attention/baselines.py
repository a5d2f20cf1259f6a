"""What the stages of `attention` are measured against. All of them give lse, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import reference
from .operation import ATTENTION
from .problem import AttentionProblem, tensor_maps


def _torch_refuses(p: AttentionProblem) -> str | None:
    if p.causal and p.rows != p.keys:
        return "its causal mask is aligned to the first key, not to the last"
    if p.dim % 8:
        return "it takes rows of a multiple of 8 elements"
    return tensor_maps(p)


def _cudnn_version() -> str | None:
    import torch

    number = torch.backends.cudnn.version()
    return None if number is None else str(number)


@ATTENTION.baseline(
    "cuDNN",
    requires="torch",
    vendor=True,
    version=_cudnn_version,
    refuses=_torch_refuses,
)
def cudnn(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """What scaled_dot_product_attention calls where it is told to use cuDNN, with lse."""
    import torch

    call = torch.ops.aten._scaled_dot_product_cudnn_attention
    o, lse, *_ = call(q, k, v, None, True, 0.0, p.causal, False, scale=p.factor)
    return o, lse


@ATTENTION.baseline("PyTorch flash", requires="torch", refuses=_torch_refuses)
def flash(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """What scaled_dot_product_attention calls where it is told to use FlashAttention, with lse."""
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention
    o, lse, *_ = call(q, k, v, 0.0, p.causal, False, scale=p.factor)
    return o, lse


def _fa3_refuses(p: AttentionProblem) -> str | None:
    return "it takes rows of a multiple of 8 elements" if p.dim % 8 else tensor_maps(p)


@ATTENTION.baseline("FlashAttention-3", requires=("torch", "fa3_fwd_interface"), refuses=_fa3_refuses)
def flash_3(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """The wheel fa3-fwd, which takes the order bshd."""
    from fa3_fwd_interface import flash_attn_func

    given = (x.transpose(1, 2) for x in (q, k, v))
    # 0: it chooses into how many parts it splits the keys. Else there is one
    options = {"softmax_scale": p.factor, "causal": p.causal, "return_attn_probs": True, "num_splits": 0}
    o, lse = flash_attn_func(*given, **options)
    return o.transpose(1, 2), lse


@ATTENTION.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: AttentionProblem, q: Any, k: Any, v: Any, o: Any, lse: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, q, k, v, o, lse)


@ATTENTION.baseline("NumPy", requires="numpy")
def numpy(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    solved = p.solved({"q": q, "k": k, "v": v}, reference.attention, np.float32)
    return solved["o"], solved["lse"]
