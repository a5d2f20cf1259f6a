"""What the stages of `attention_varlen` are measured against. All of them give lse, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import reference
from .operation import ATTENTION_VARLEN
from .problem import AttentionVarlenProblem, tensor_maps


def _longest(p: AttentionVarlenProblem) -> tuple[int, int]:
    """The most rows and keys of a sequence, which the libraries have to be told."""
    rows, keys = p.lengths_of()
    return max(rows), max(keys)


def _fa3_refuses(p: AttentionVarlenProblem) -> str | None:
    return "it takes rows of a multiple of 8 elements" if p.dim % 8 else tensor_maps(p)


def _refuses(p: AttentionVarlenProblem) -> str | None:
    pairs = zip(*p.lengths_of(), strict=True)
    if any(rows > (keys if p.causal else keys * rows) for rows, keys in pairs):
        return "of a row that sees no key its logarithm is +inf"
    return _fa3_refuses(p)


@ATTENTION_VARLEN.baseline("PyTorch flash", requires="torch", vendor=True, refuses=_refuses)
def flash(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    """FlashAttention of packed sequences, as nested tensors and `torch.nn.attention.varlen` call it."""
    import torch

    call = torch.ops.aten._flash_attention_forward
    o, lse, *_ = call(q, k, v, offsets_q, offsets_k, *_longest(p), 0.0, p.causal, False, scale=p.factor)
    return o, lse


@ATTENTION_VARLEN.baseline("FlashAttention-3", requires=("torch", "fa3_fwd_interface"), refuses=_fa3_refuses)
def flash_3(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    """The wheel fa3-fwd."""
    from fa3_fwd_interface import flash_attn_varlen_func

    # 0: it chooses into how many parts it splits the keys. Else there is one
    options = {"softmax_scale": p.factor, "causal": p.causal, "return_attn_probs": True, "num_splits": 0}
    o, lse = flash_attn_varlen_func(q, k, v, offsets_q, offsets_k, *_longest(p), **options)
    return o, lse


@ATTENTION_VARLEN.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(
    p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any, o: Any, lse: Any
) -> Callable[[], object]:
    from ._triton import work

    return work(p, q, k, v, offsets_q, offsets_k, o, lse)


@ATTENTION_VARLEN.baseline("NumPy", requires="numpy")
def numpy(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    inputs = {"q": q, "k": k, "v": v, "offsets_q": offsets_q, "offsets_k": offsets_k}
    solved = p.solved(inputs, lambda one, given: one.solved(given, reference.attention, np.float32), np.float32)
    return solved["o"], solved["lse"]
