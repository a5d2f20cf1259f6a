"""The operations as functions on arrays of a GPU. The fastest stage that supports the problem solves a call.

The first call of a class of problems (shapes, strides, dtypes, options, device) chooses the stage, compiles it and
packs the parameters of its launches. Later calls find all of that ready, and call the driver. `f.prepare(...)` does the
work of the first call and returns the prepared call, a `Prepared`. `out=` takes the array for the result, or a tuple if
there are several. The array must have the shape, dtype and strides of the result, and must not overlap an input. Calls
run on the current stream, may come from any thread, and can be captured into a CUDA graph.

Stage and parameters come from the first of these that knows the problem: what `workbench tune` has found on this
device, the table that ships, the prediction of the cost model or the preference of the operation, the ladder. `explain`
says which, and why."""

from __future__ import annotations

import sys
from typing import Any

from ..kernels.attention.operation import attention
from ..kernels.attention_backward.operation import attention_backward
from ..kernels.attention_varlen.operation import attention_varlen
from ..kernels.conv2d.operation import conv2d
from ..kernels.cross_entropy import cross_entropy
from ..kernels.fft_conv.operation import fft_conv
from ..kernels.gemm.operation import gemm
from ..kernels.gemm_block_scaled import gemm_block_scaled
from ..kernels.gemm_fp8 import gemm_fp8
from ..kernels.layer_norm import layer_norm
from ..kernels.layer_norm_backward import layer_norm_backward
from ..kernels.matvec import matvec
from ..kernels.reduce import reduce
from ..kernels.residual_rms_norm import residual_rms_norm
from ..kernels.rms_norm import rms_norm
from ..kernels.rms_norm_backward import rms_norm_backward
from ..kernels.rotary import rotary
from ..kernels.scan import scan
from ..kernels.softmax import softmax
from ..kernels.softmax_backward import softmax_backward
from ..kernels.ssd.operation import ssd
from ..kernels.transpose import transpose
from ..kernels.vector_add import vector_add
from ..model import calls
from .choice import Explanation, explain
from .choice import choose as choose
from .dispatch import Operators, register_tensors
from .filters import PreparedFilter, fft_conv_filter
from .loading import Project, Unverified, load
from .prepared import Prepared as Prepared
from .torch_arrays import torch
from .torch_library import NAMESPACE, operator

__all__ = [
    "Explanation",
    "PreparedFilter",
    "Unverified",
    "attention",
    "attention_backward",
    "attention_varlen",
    "conv2d",
    "cross_entropy",
    "explain",
    "fft_conv",
    "fft_conv_filter",
    "gemm",
    "gemm_block_scaled",
    "gemm_fp8",
    "layer_norm",
    "layer_norm_backward",
    "load",
    "matvec",
    "project",
    "reduce",
    "residual_rms_norm",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "scan",
    "softmax",
    "softmax_backward",
    "ssd",
    "torch_operators",
    "transpose",
    "vector_add",
]

calls.solve_with(Operators())

project = Project()
"""The operations of the project around the working directory: `project.rms_norm` is `load("rms_norm")`."""


def torch_operators() -> Any:
    """Registers every operation with PyTorch and returns the namespace of the operators, `torch.ops.workbench`.

    If PyTorch is imported before `workbench.ops`, this happens by itself. Call it if PyTorch is imported later and the
    first call of an operation is in a function for `torch.compile`. Raises ImportError without PyTorch."""
    register_tensors()
    for function in (value for value in globals().copy().values() if isinstance(value, calls.Function)):
        operator(function)
    return getattr(torch().ops, NAMESPACE)


if "torch" in sys.modules:
    torch_operators()
