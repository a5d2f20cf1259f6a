"""The operations as functions on CuPy arrays, each solved by the fastest stage that supports the problem.

Stage and parameters come from what `workbench tune` has found on this device, else from the table that ships, else from
the ladder.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from .catalogue import registry
from .devices.cuda import CudaDevice
from .kernels.attention.ops import attention
from .kernels.conv2d.ops import conv2d
from .kernels.cross_entropy.ops import cross_entropy
from .kernels.fft_conv.ops import fft_conv, fft_conv_filter
from .kernels.gemm.ops import gemm
from .kernels.gemm_fp8.ops import gemm_fp8
from .kernels.layer_norm.ops import layer_norm
from .kernels.layer_norm_backward.ops import layer_norm_backward
from .kernels.matvec.ops import matvec
from .kernels.reduce.ops import reduce
from .kernels.residual_rms_norm.ops import residual_rms_norm
from .kernels.rms_norm.ops import rms_norm
from .kernels.rms_norm_backward.ops import rms_norm_backward
from .kernels.rotary.ops import rotary
from .kernels.scan.ops import scan
from .kernels.softmax.ops import softmax
from .kernels.softmax_backward.ops import softmax_backward
from .kernels.ssd.ops import ssd
from .kernels.transpose.ops import transpose
from .kernels.vector_add.ops import vector_add
from .model import calls
from .model.arrays import Array
from .model.problem import Problem
from .model.stage import Stage
from .records import tuned
from .toolchain.compiler import compile_stage

__all__ = [
    "attention",
    "conv2d",
    "cross_entropy",
    "fft_conv",
    "fft_conv_filter",
    "gemm",
    "gemm_fp8",
    "layer_norm",
    "layer_norm_backward",
    "matvec",
    "reduce",
    "residual_rms_norm",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "scan",
    "softmax",
    "softmax_backward",
    "ssd",
    "transpose",
    "vector_add",
]


@cache
def _device(number: int) -> CudaDevice:
    return CudaDevice()


def choose(operation: str, problem: Problem, architecture: int, alignment: int = 256, device: str = "") -> Stage[Any]:
    """The fastest stage that supports `problem`, with the parameters for its class of problems on the device named.

    Usually that is the stage of the table that ships, else one that the operation prefers, else the last one of the
    ladder. Where it has been tuned on this device, it gets the parameters found, or makes room for another stage that
    was tuned as well and is faster. `alignment` in bytes divides the address of every array. Raises ValueError where no
    stage supports the problem, or those that do cannot be launched for it; the message has the limits.
    """
    found = registry.operations()[operation]
    beyond: dict[str, str] = {}  # what could not be launched, and why

    def takes(stage: Stage[Any]) -> bool:
        if stage.supports(problem, architecture) is not None or alignment % stage.alignment:
            return False
        if reason := stage.beyond_limits(problem):
            beyond[stage.name] = reason
        return reason is None

    picked = tuned.hand_picked(device, operation, problem)
    names = found.fastest(problem) if callable(found.fastest) else found.fastest
    preferred = [stage for name in names for stage in found.stages if stage.name == name]
    usual = next(filter(takes, [*([picked] if picked else []), *preferred, *reversed(found.stages)]), None)
    if usual is None:
        limits = "".join(f"; {name}: {reason}" for name, reason in beyond.items())
        raise ValueError(f"no stage of {operation} supports {problem.label} on this device{limits}")
    measured = [stage for _, stage in tuned.found(device, operation, tuned.problem_class(problem)) if takes(stage)]
    # a time of some other stage alone does not say that it is faster than the usual one
    return measured[0] if usual.name in {stage.name for stage in measured} else usual


_zero: dict[tuple[int, int, str], tuple[Any, Any]] = {}
"""By device, stream and name: scratch that plans find zero and leave zero, and the stream, which must live as long."""


def _scratch(name: str, array: Array) -> Any:
    """Memory for a scratch array of a plan on the current stream: fresh, or, where it has to be zero, kept.

    What is captured into a graph may run beside the stream it was captured from: it has its own, cleared there.
    """
    import cupy

    if not array.zero:
        return cupy.empty(array.nbytes, cupy.uint8)
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        return cupy.zeros(array.nbytes, cupy.uint8)
    key = (cupy.cuda.Device().id, stream.ptr, name)
    if key not in _zero or _zero[key][0].nbytes < array.nbytes:
        _zero[key] = cupy.zeros(array.nbytes, cupy.uint8), stream
    return _zero[key][0]


def _empty(array: Array) -> tuple[Any, Any]:
    """Memory for an array, and the array in it. Types that CuPy does not know are their bits."""
    import cupy

    dtype = np.dtype(np.uint8) if array.dtype.is_float and array.dtype.itemsize == 1 else array.dtype.numpy
    if not array.padded and array.strides is None:
        memory = cupy.empty(array.shape, dtype)
        return memory, memory
    memory = cupy.empty(array.storage_elements, dtype)
    steps = tuple(step * dtype.itemsize for step in array.element_strides)
    return memory, cupy.ndarray(array.shape, dtype, memory.data, steps)


def _prepared(problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What the operation prepares on the host, on the device; not what the caller has prepared."""
    import cupy

    wanted = {name: array for name, array in problem.arrays().items() if array.prepared and name not in inputs}
    if not wanted:
        return {}
    values = problem.prepare({name: cupy.asnumpy(array) for name, array in inputs.items()})
    return {name: cupy.asarray(array.pack(values[name]).view(np.uint8)) for name, array in wanted.items()}


def solve(operation: str, call: calls.Call) -> dict[str, Any]:
    """Solve a call: returns the outputs by name, in the order of their declaration.

    An array that is input and output is not changed: the output is another one.
    """
    import cupy

    problem, inputs = call.problem, dict(call.inputs)
    device = _device(cupy.cuda.Device().id)
    outputs: dict[str, Any] = {}
    for name, array in problem.arrays().items():
        if array.output:
            memory, outputs[name] = _empty(array)
            if array.inout:
                outputs[name][...] = inputs[name]
            inputs[name] = memory
    inputs |= _prepared(problem, call.inputs)
    # the lowest set bit of all addresses together is what every one of them is a multiple of
    addresses = functools.reduce(operator.or_, (array.data.ptr for array in inputs.values()))
    stage = choose(operation, problem, device.architecture, addresses & -addresses, device.properties["name"].decode())
    compiled = compile_stage(stage, problem)
    plan = stage.plan(problem)
    arrays = {**problem.arrays(), **plan.scratch}
    scratch = {name: _scratch(name, array) for name, array in plan.scratch.items()}
    pointers = {name: array.data.ptr for name, array in {**inputs, **scratch}.items()}
    for launch in plan.launches:
        device.prepare(compiled, launch, arrays, pointers)()
    return outputs


calls.solve_with(solve)
