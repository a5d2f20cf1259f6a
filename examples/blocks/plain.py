"""The operations of `workbench.ops` that the blocks call, with the same arguments, in plain PyTorch.

They take every floating type. In float64 they say what a block should compute. `torch.compile` sees calls of PyTorch
alone, so it may merge and order them as it likes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 128
"""Positions of a chunk of `ssd`: products within a chunk grow with it, the states between chunks are fewer."""


class AttentionOutputs(NamedTuple):
    o: Tensor


class SsdOutputs(NamedTuple):
    y: Tensor


def gemm(a: Tensor, b: Tensor, *, trans_b: bool = False) -> Tensor:
    return a @ (b.mT if trans_b else b)


def rms_norm(x: Tensor, w: Tensor, *, eps: float = 1e-6) -> Tensor:
    return functional.rms_norm(x, w.shape, w, eps)


def residual_rms_norm(x: Tensor, residual: Tensor, w: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    s = x + residual
    return rms_norm(s, w, eps=eps), s


def rotary(x: Tensor, cos: Tensor, sin: Tensor, *, layout: str = "bhsd") -> Tensor:
    if layout == "bshd":
        cos, sin = cos[:, None], sin[:, None]
    u, v = x.chunk(2, -1)
    return torch.cat((u * cos - v * sin, u * sin + v * cos), -1)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, layout: str = "bhsd") -> AttentionOutputs:
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return AttentionOutputs(o.transpose(1, 2) if layout == "bshd" else o)


def ssd(x: Tensor, log_a: Tensor, b: Tensor, c: Tensor) -> SsdOutputs:
    """By chunks, as "Transformers are SSMs" (Dao and Gu, 2024) has it: products of matrices within a chunk, and a state
    from one chunk to the next."""
    length, groups = x.shape[1], b.shape[2]

    def chunked(array: Tensor) -> Tensor:  # (batch, groups, heads of a group, chunks, positions, ...)
        padded = functional.pad(array, (0, 0) * (array.ndim - 2) + (0, -length % CHUNK))
        per_group = padded.unflatten(2, (groups, -1)).unflatten(1, (-1, CHUNK))
        return per_group.movedim((3, 4), (1, 2))

    x, log_a, b, c = chunked(x), chunked(log_a), chunked(b), chunked(c)
    sums = log_a.cumsum(-1)
    within = (c @ b.mT) * _decays(sums).to(x.dtype) @ x

    to_the_end = (sums[..., -1:] - sums).exp()[..., None].to(x.dtype)
    states = b.mT @ (x * to_the_end)  # what each chunk adds
    ends = functional.pad(sums[..., -1].cumsum(-1), (1, 0))
    between = _decays(ends)[..., 1:].to(x.dtype)  # from the end of a chunk to the end of another
    before = (between @ states.flatten(-2)).view(*between.shape[:-1], *states.shape[-2:])[..., :-1, :, :]
    from_before = (c @ before) * sums.exp()[..., None].to(x.dtype)

    y = (within + from_before).movedim((1, 2), (3, 4)).flatten(3, 4).flatten(1, 2)
    return SsdOutputs(y[:, :length])


def _decays(sums: Tensor) -> Tensor:
    """How much of one position is left at another, from sums of logarithms up to and with each: (..., to, from)."""
    apart = sums[..., :, None] - sums[..., None, :]
    return apart.masked_fill(torch.ones_like(apart, dtype=torch.bool).triu(1), float("-inf")).exp()
