"""What the stages of `ssd` are measured against. All of them give the final state, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import reference
from .operation import SSD
from .problem import SsdProblem

CHUNK = 64
"""Places of a chunk of the calls of PyTorch."""


def _of_heads(p: SsdProblem, b: Any) -> Any:
    """b or c with one for every head."""
    return b.repeat_interleave(p.group, dim=2) if p.group > 1 else b


def _shares(p: SsdProblem) -> str | None:
    return "its call takes as many heads of b and c as of x" if p.group > 1 else None


@SSD.baseline("flash-linear-attention", requires=("torch", "fla"), vendor=True, refuses=_shares)
def fla(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    """`chunk_simple_gla`, linear attention with a decay: c are its queries, b its keys, x its values."""
    from fla.ops.simple_gla import chunk_simple_gla

    return chunk_simple_gla(c, b, x, g=log_a, scale=1.0, initial_state=h0, output_final_state=True)


def _torch(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    """Products of chunks: of all chunks at once within them, then from one state to the next."""
    import torch

    behind = -p.length % CHUNK
    pad = torch.nn.functional.pad
    xs, bs, cs = (
        pad(v, (0, 0, 0, 0, 0, behind)).unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2, 4)
        for v in (x, _of_heads(p, b), _of_heads(p, c))
    )  # (batch, heads, chunks, places, elements)
    sums = pad(log_a.clamp(min=-104.0), (0, 0, 0, behind)).unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2).cumsum(-1)
    earlier = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
    apart = (sums[..., :, None] - sums[..., None, :]).masked_fill(~earlier, float("-inf"))
    weights = (cs @ bs.mT).float() * apart.exp()
    kept = (bs.float() * (sums[..., -1:] - sums).exp()[..., None]).to(x.dtype)
    states = kept.float().mT @ xs.float()  # a product of bf16 would be rounded to it
    decays, h, before = sums[..., -1].exp()[..., None, None], h0, []
    for chunk in range(states.shape[2]):
        before.append(h)
        h = h * decays[:, :, chunk] + states[:, :, chunk]
    from_before = (cs @ torch.stack(before, 2).to(x.dtype)).float() * sums.exp()[..., None]
    y = (weights.to(x.dtype) @ xs).float() + from_before
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, : p.length].to(x.dtype), h


SSD.baseline("PyTorch", requires="torch")(_torch)
SSD.baseline("torch.compile", requires="torch", compiled=True)(_torch)


@SSD.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any, y: Any, h: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, x, log_a, b, c, h0, y, h)


@SSD.baseline("NumPy", requires="numpy")
def numpy(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    solved = p.solved({"x": x, "log_a": log_a, "b": b, "c": c, "h0": h0}, reference.ssd, np.float32)
    return solved["y"], solved["h"]
