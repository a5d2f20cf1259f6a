"""A block of a transformer and a block of Mamba-2 in PyTorch, whose operations are those of `workbench.ops`.

What has no operation there, as activations and a convolution of four positions, is plain PyTorch. `operators` may be
any other module with these operations: `plain.py` has them in PyTorch. The blocks are for inference: their weights
need no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import pad, silu, softplus

from workbench import ops

THETA = 10_000.0
"""Base of the wavelengths of rotary embeddings."""


class Block(Module):
    """What both blocks share. `width` is the number of elements of a position."""

    def __init__(self, width: int, operators: Any = ops) -> None:
        super().__init__()
        self.width, self.operators = width, operators

    @staticmethod
    def matrix(outputs: int, inputs: int) -> Parameter:
        """Random weights that keep the size of what they multiply: (outputs, inputs)."""
        return Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)

    @staticmethod
    def row(columns: int, mean: float = 1.0) -> Parameter:
        """Random weights of columns around a mean: (columns,)."""
        return Parameter(mean + 0.1 * torch.randn(columns), requires_grad=False)


class TransformerBlock(Block):
    """Causal attention whose heads share keys, and a gated linear unit: a layer of Llama 3 (Grattafiori et al., 2024).

    `key_heads` divide `heads`, which divide `width`. `longest` is the largest number of positions."""

    def __init__(
        self, width: int, heads: int, key_heads: int, hidden: int, longest: int = 4096, operators: Any = ops
    ) -> None:
        super().__init__(width, operators)
        self.heads, self.key_heads, self.dim = heads, key_heads, width // heads
        self.norm_before, self.norm_between = self.row(width), self.row(width)
        self.qkv = self.matrix((heads + 2 * key_heads) * self.dim, width)
        self.out = self.matrix(width, width)
        self.gate_up = self.matrix(2 * hidden, width)
        self.down = self.matrix(width, hidden)
        turns = torch.arange(longest)[:, None] / THETA ** (torch.arange(0, self.dim, 2) / self.dim)
        self.register_buffer("cos", turns.cos())
        self.register_buffer("sin", turns.sin())

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, positions, width)."""
        o, (batch, positions, _) = self.operators, x.shape
        cos, sin = self.cos[:positions], self.sin[:positions]
        rows = x.reshape(-1, self.width)
        qkv = o.gemm(o.rms_norm(rows, self.norm_before), self.qkv, trans_b=True)
        heads = qkv.view(batch, positions, -1, self.dim)
        q, k, v = heads.split((self.heads, self.key_heads, self.key_heads), dim=2)
        q, k = (o.rotary(part, cos, sin, layout="bshd") for part in (q, k))
        # rows of k and v have to be as far apart, and those of v still lie between others
        found = o.attention(q, k, v.contiguous(), causal=True, layout="bshd").o
        mixed = o.gemm(found.reshape(-1, self.width), self.out, trans_b=True)
        y, rows = o.residual_rms_norm(mixed, rows, self.norm_between)
        gate, up = o.gemm(y, self.gate_up, trans_b=True).chunk(2, -1)
        return (rows + o.gemm(silu(gate) * up, self.down, trans_b=True)).view_as(x)


class MambaBlock(Block):
    """A layer of Mamba-2 (Dao and Gu, 2024): a short convolution, a state-space model with a decay for each head and
    position, and a gate.

    `inner` elements of a position are heads of `headdim`, each with a state of `dstate` rows. All share b and c."""

    def __init__(self, width: int, inner: int, headdim: int, dstate: int, taps: int = 4, operators: Any = ops) -> None:
        super().__init__(width, operators)
        self.inner, self.headdim, self.dstate, self.heads = inner, headdim, dstate, inner // headdim
        self.convolved = inner + 2 * dstate
        self.norm, self.norm_gated = self.row(width), self.row(inner)
        self.entry = self.matrix(inner + self.convolved + self.heads, width)
        self.taps = Parameter(self.matrix(self.convolved, taps).T.contiguous(), requires_grad=False)
        self.bias = self.row(self.convolved, 0.0)
        self.step_bias, self.skip = self.row(self.heads, -2.0), self.row(self.heads)
        self.log_rates = self.row(self.heads, 0.0)
        self.exit = self.matrix(width, inner)

    def convolve(self, x: Tensor) -> Tensor:
        """Each column of (batch, positions, columns) with taps of its own, over a position and those before it."""
        before = pad(x, (0, 0, len(self.taps) - 1, 0))
        return sum((before[:, i : i + x.shape[1]] * tap for i, tap in enumerate(self.taps)), self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, positions, width)."""
        o, (batch, positions, _) = self.operators, x.shape
        exact = torch.promote_types(x.dtype, torch.float32)
        rows = x.reshape(-1, self.width)
        entered = o.gemm(o.rms_norm(rows, self.norm), self.entry, trans_b=True).view(batch, positions, -1)
        gate, mixed, step = entered.split((self.inner, self.convolved, self.heads), -1)
        u, b, c = silu(self.convolve(mixed)).split((self.inner, self.dstate, self.dstate), -1)
        u, b, c = u.unflatten(-1, (self.heads, self.headdim)), b[:, :, None], c[:, :, None]
        step = softplus(step.to(exact) + self.step_bias)
        y = o.ssd((u * step[..., None]).to(x.dtype), -step * self.log_rates.to(exact).exp(), b, c).y
        y = (y + self.skip[:, None] * u).flatten(2) * silu(gate)
        y = o.rms_norm(y.reshape(-1, self.inner), self.norm_gated)
        return (rows + o.gemm(y, self.exit, trans_b=True)).view_as(x)
