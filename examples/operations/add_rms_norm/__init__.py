"""The sum of two matrices, and its rows over their root mean square, times weights: the short form of an operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from workbench import Launch, ceil_div, simple_operation


@simple_operation(
    "add_rms_norm",
    "x: rows columns dtype, residual: rows columns dtype, w: columns dtype"
    " -> y: rows columns dtype, total: rows columns dtype",
    fields={"eps": 1e-6},
    ranges={"eps": (0.0, 1.0)},
    strategies={"eps": st.sampled_from([1e-6, 0.25])},
    terms="columns",
    not_exact="a reciprocal root is rounded",
    controls=lambda p, inputs, expected: (
        {"eps forgotten": dataclasses.replace(p, eps=0.0).reference(inputs)} if p.eps > 0.1 else {}
    ),
    suite=("16384x4096,dtype=bf16", "4096x32768,dtype=bf16"),
)
def add_rms_norm(x: Any, residual: Any, w: Any, *, eps: float) -> Any:
    """Sum of two matrices, and the RMS norm of its rows."""
    total = x + residual
    return total / np.sqrt(np.mean(total**2, axis=1, keepdims=True) + eps) * w, total


@add_rms_norm.stage(
    "naive", source="add_rms_norm/1_naive.cu", idea="one thread takes one row", parameters={"THREADS": 64}
)
def naive(p: Any, size: Mapping[str, int]) -> Launch:
    arguments = ("x", "residual", "w", "y", "total", np.int32(p.rows), np.int32(p.columns), np.float32(p.eps))
    return Launch("add_rms_norm_naive", (ceil_div(p.rows, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), arguments)


@add_rms_norm.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: Any, x: Any, residual: Any, w: Any) -> Any:
    import torch

    total = x.float() + residual.float()
    y = torch.nn.functional.rms_norm(total, (p.columns,), w.float(), p.eps)
    return y.to(x.dtype), total.to(x.dtype)
