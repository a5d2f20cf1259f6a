"""Solves problems with our Triton kernels or Liger's, as Triton's interpreter executes them, or with PyTorch's calls.

    TRITON_INTERPRET=1 python tests/baselines_on_cpu.py triton|liger|pytorch

A process of its own, since PyTorch and that interpreter would change others' modules. Fails at the first wrong result.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import ml_dtypes
import numpy as np
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))


from workbench import baseline_error
from workbench.catalogue import registry
from workbench.harness import Case
from workbench.measure.baselines import pytorch
from workbench.model.arrays import Array
from workbench.model.problem import Problem, Size

Solve = Callable[[Problem, Mapping[str, Array], Mapping[str, Any]], None]


def judge(problem: Problem, solve: Solve) -> None:
    """Solve a problem in host memory and compare the answer as a stage's."""
    case = Case.of(problem)
    storage = case.storage()
    solve(problem, case.arrays, {name: values.view(np.uint8) for name, values in storage.items()})
    failure, _ = case.judge(storage.__getitem__)
    assert failure is None, f"{problem}: {failure.message}: {failure.wrong[:3]}"
    assert not case.changed_inputs(storage), problem


def judge_many(operation: str, size: Size, solve_for: Callable[[int], Solve], refuses: Any = None) -> None:
    """Judge random problems in every tier; `solve_for` gets a number of multiprocessors."""

    @hypothesis.settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @hypothesis.given(registry.operations()[operation].problems(size, (64, 128)), st.sampled_from([1, 4, 132]))
    def run(problem: Problem, multiprocessors: int) -> None:
        hypothesis.assume(refuses is None or refuses(problem) is None)
        for tier in problem.tiers:
            judge(problem.with_tier(tier), solve_for(multiprocessors))

    run()


def interpret_bf16() -> None:
    """Have Triton's interpreter round to bf16 as the device does: it cuts off, and computes with bits as integers."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    truncate, dot = builder.create_fp_trunc, builder.create_dot

    def rounded(self: Any, source: Any, kind: Any) -> Any:
        if (source.dtype.scalar, kind.scalar) != (tl.float32, tl.bfloat16):
            return truncate(self, source, kind)
        return handle(source.data.astype(ml_dtypes.bfloat16).view(np.uint16), kind.scalar)

    def widened(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return handle(x.data.view(ml_dtypes.bfloat16).astype(np.float32), tl.float32)

    def in_fp32(compute: Any) -> Any:
        def computed(self: Any, a: Any, b: Any) -> Any:
            found = compute(self, widened(a), widened(b))
            return rounded(self, found, tl.bfloat16) if a.dtype.scalar == tl.bfloat16 else found

        return computed

    builder.create_fp_trunc = rounded
    builder.create_dot = lambda self, a, b, *more: dot(self, widened(a), widened(b), *more)
    for name in ("create_fadd", "create_fsub", "create_fmul"):
        setattr(builder, name, in_fp32(getattr(builder, name)))


def triton() -> None:
    """Every Triton kernel."""
    interpret_bf16()

    def solve_for(operation: str) -> Callable[[int], Solve]:
        (declared,) = (b for b in registry.operations()[operation].baselines if b.name == "Triton")

        def on(multiprocessors: int) -> Solve:
            def solve(problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> None:
                held = declared.arguments(pytorch.tensors(arrays, buffers, "cpu"))
                with patch.object(
                    sys.modules[declared.call.__module__], "multiprocessors", lambda: multiprocessors, create=True
                ):
                    declared.call(problem, **held)()

            return solve

        return on

    for operation, size in {
        "vector_add": Size(5000, 5000),
        "matvec": Size(3000, 200_000),
        "gemm": Size(300, 150**3),
        "attention": Size(200, 200_000),
        "ssd": Size(200, 200_000),
        "conv2d": Size(200, 200_000),
    }.items():
        refuses = next(b.refuses for b in registry.operations()[operation].baselines if b.name == "Triton")
        judge_many(operation, size, solve_for(operation), refuses)
    for operation, text in INTERPRETED.items():
        judge(_problem(operation, text), solve_for(operation)(1))


def liger() -> None:
    """Liger's kernels, some problems of each operation."""
    import liger_kernel.transformers.functional  # noqa: F401
    import triton.language as tl
    from triton.runtime import interpreter

    def scalar(value: Any) -> Any:
        """The interpreter leaves numbers of Python as they are, which have no `to`."""
        if not isinstance(value, float):
            return converted(value)
        return tl.tensor(interpreter.TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)

    def rsqrt(x: Any) -> Any:
        """It cannot call the device's library."""
        found = (1 / np.sqrt(x.handle.data)).astype(np.float32)
        return tl.tensor(interpreter.TensorHandle(found, tl.float32), x.type)

    interpret_bf16()
    converted, interpreter._implicit_cvt = interpreter._implicit_cvt, scalar
    for name in ("rms_norm", "layer_norm", "fused_add_rms_norm"):
        vars(sys.modules[f"liger_kernel.ops.{name}"])["rsqrt"] = rsqrt
    for operation in LIGER:
        (declared,) = (b for b in registry.operations()[operation].baselines if b.name == "Liger")
        for sizes in LIGER[operation]:
            problem = _problem(operation, sizes)
            assert declared.refuses(problem) is None
            error = baseline_error(declared, problem)
            assert not error, f"{problem}: {error}"


def calls() -> None:
    """PyTorch's calls, and what its compiler makes of them. cuBLASLt is what PyTorch has on a CPU."""
    torch: Any = pytorch.load()
    for operation, found in ((name, registry.operations()[name].baselines) for name in COMPILED):
        for declared in (b for b in found if b.kind == "torch" and b.name != "Triton"):
            baseline = pytorch.Torch(declared)
            module = sys.modules[declared.call.__module__]
            if hasattr(module, "preferred_blas"):
                module.preferred_blas = lambda library: contextlib.nullcontext()  # type: ignore[attr-defined]
            few = {"gemm": Size(100, 64**3), "matvec": Size(300, 20_000), "vector_add": Size(2000, 2000)}[operation]

            def solve(problem: Any, arrays: Any, buffers: Any, baseline: Any = baseline) -> None:
                prepared = baseline.prepare(problem, arrays, buffers)
                prepared.enqueue()
                prepared.enqueue()
                prepared.deliver()

            def refuses(problem: Any, baseline: Any = baseline) -> str | None:
                padded = any(array.padded for array in problem.arrays().values())
                if padded and problem.dtype != "fp32":
                    return "a processor's product in bf16 and fp16 reads what lies between the rows"
                return baseline.refuses(problem)

            if baseline.name == "torch.compile":  # a few seconds each
                for problem in COMPILED[operation]:
                    judge(problem, solve)
            elif baseline.name == "cuDNN":
                with patch.object(torch.ops.aten, "cudnn_convolution", Convolution(torch)):
                    for problem in CONVOLVED:
                        judge(problem, solve)
            else:
                judge_many(operation, few, lambda _, solve=solve: solve, refuses)


def _problem(operation: str, text: str) -> Problem:
    return registry.operations()[operation].problem.parse(text)


COMPILED = {
    "gemm": [_problem("gemm", "64x48x40,dtype=fp32,out=fp32,pad_a=8"), _problem("gemm", "33x17x9,out=bf16,layout=nn")],
    "matvec": [_problem("matvec", "33x170,dtype=fp32,out=fp32,pad_b=3")],
    "vector_add": [_problem("vector_add", "1000,dtype=bf16")],
}
TYPES = ("fp32", "bf16")
ROWS = [f"rows={r},columns={c},dtype={t},out={t},pad_x=2" for r, c in ((9, 70), (3, 300)) for t in TYPES]
HEADS = [f"batch=2,heads=3,seq=5,half=8,dtype={t},layout={a}" for t in TYPES for a in ("bhsd", "bshd")]
NORMS = ("rms_norm", "layer_norm", "residual_rms_norm", "rms_norm_backward", "layer_norm_backward")
LIGER = dict.fromkeys(("softmax", *NORMS), ROWS) | {"softmax_backward": ROWS[::2], "rotary": HEADS}
INTERPRETED = {
    "attention_backward": "rows=70,keys=90,dim=33,dtype=fp16,heads=2,layout=bshd,pad_q=1",
    "attention_varlen": "batch=6,rows=60,keys=90,dim=33,lengths=empty,dtype=fp16",
}
"""What is tried once: kernels that share most of their code with others, or take long."""
CONVOLVED = [_problem("gemm", "33x17x9,dtype=fp32,out=fp32"), _problem("gemm", "1x1x1,dtype=fp32,out=fp32")]


class Convolution:
    """cuDNN's convolution, computed by the CPU's; it takes what is laid out as cuDNN is told."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def out(self, image: Any, weights: Any, *, out: Any, **how: Any) -> None:
        for tensor in (image, weights, out):
            assert tensor.is_contiguous(memory_format=self.torch.channels_last)
        del how["benchmark"], how["deterministic"], how["allow_tf32"]
        out.copy_(self.torch.nn.functional.conv2d(image, weights, **how))


def main() -> None:
    import torch

    pytorch.load = lambda: torch  # type: ignore[assignment]
    pytorch.DEVICE = "cpu"
    {"triton": triton, "liger": liger, "pytorch": calls}[sys.argv[1]]()


if __name__ == "__main__":
    main()
