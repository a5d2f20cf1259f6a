"""Triton kernels solve the problems of every operation in the emulator, as its stages do, and have no hazard.

The PTX is executed that a GPU would be given; `tests/baselines_on_cpu.py` has more problems, in Triton's interpreter.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from workbench.catalogue import registry
from workbench.judge.case import Case
from workbench.triton import emulate

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


from operation_kernels import launch

REDUCTIONS = [("sum", "columns"), ("max", "rows"), ("sum", "all")]
PROBLEMS = {
    "vector_add": ["n=1500,dtype=fp32", "n=1025,dtype=bf16"],
    "matvec": ["n=65,k=1100,dtype=bf16,out=fp32,pad_b=2", "n=3,k=2048,dtype=fp32,out=fp32"],
    "gemm": [
        "m=65,n=130,k=200,dtype=bf16,out=bf16,layout=nt,pad_a=5,pad_b=4",
        "m=64,n=128,k=320,dtype=fp16,out=fp16,layout=nn",
        "m=70,n=33,k=40,dtype=fp32,out=fp32,layout=nn,pad_c=7",
    ],
    "attention": [
        "batch=1,heads=2,rows=130,keys=150,dim=64,group=2,causal=true,dtype=bf16,layout=bhsd,scale=0.5",
        "batch=1,heads=1,rows=40,keys=300,dim=120,causal=false,dtype=fp16,layout=bshd,gap_q=8",
    ],
    "attention_backward": [
        "rows=66,keys=40,dim=40,heads=2,group=2,causal=true,dtype=bf16,layout=bshd,pad_q=3,scale=0.5"
    ],
    "attention_varlen": ["batch=5,rows=140,keys=150,dim=40,heads=2,group=2,causal=true,lengths=one_long,pad_kv=3"],
    "ssd": [
        "batch=1,length=130,heads=4,headdim=70,dstate=40,group=2",
        "batch=1,length=20,heads=1,headdim=64,dstate=64",
    ],
    "conv2d": [
        "images=1,height=9,width=13,channels=8,filters=70,taps_y=3,taps_x=3,bias=true,activation=relu,dtype=bf16",
        "images=2,height=8,width=8,channels=3,filters=5,taps_y=2,taps_x=2,stride_y=2,activation=gelu,dtype=fp32",
    ],
}
"""By operation, with tails in every dimension; several tiles where the emulator takes little time for them."""

OTHERS = {
    "softmax": ["rows=3,columns=70,dtype=bf16,out=bf16,pad_x=3"],
    "softmax_backward": ["rows=3,columns=70,dtype=bf16,out=fp32,pad_x=2"],
    "scan": ["rows=3,columns=70,dtype=fp16,out=fp32,pad_y=5"],
    "cross_entropy": ["rows=5,columns=130,dtype=bf16,out=fp32,pad_x=1"],
    "rms_norm": ["rows=3,columns=70,dtype=bf16,out=bf16,pad_x=3"],
    "residual_rms_norm": ["rows=3,columns=70,dtype=bf16,out=bf16,pad_y=3"],
    "layer_norm": ["rows=3,columns=70,dtype=fp16,out=fp16,pad_x=3"],
    "rms_norm_backward": ["rows=5,columns=70,dtype=bf16,out=fp32,pad_x=3"],
    "layer_norm_backward": ["rows=5,columns=70,dtype=bf16,out=fp32,pad_x=3"],
    "reduce": [f"rows=9,columns=70,dtype=bf16,op={op},over={over},pad_x=3" for op, over in REDUCTIONS],
    "transpose": ["rows=40,columns=70,dtype=bf16,out=bf16,pad_x=3,pad_y=1"],
    "rotary": [f"batch=2,heads=2,seq=3,half=20,dtype=bf16,pairs={pairs}" for pairs in ("half", "interleaved")],
    "gemm_fp8": ["m=65,n=70,k=144,out=bf16"],
    "fft_conv": [f"batch=2,channels=2,length=50,causal={causal},dtype=bf16" for causal in ("true", "false")],
}
"""The operations whose Triton kernels are written for this test, or come from Liger; the same way."""


class Tensor(np.ndarray[Any, Any]):
    """What the launches ask of a PyTorch tensor, which need not be installed."""

    def stride(self, dimension: int | None = None) -> Any:
        steps = tuple(step // self.itemsize for step in self.strides)
        return steps if dimension is None else steps[dimension]

    def numel(self) -> int:
        return self.size


@pytest.mark.parametrize(("operation", "text"), [(name, text) for name, texts in PROBLEMS.items() for text in texts])
def test_triton_kernels_solve_problems(operation: str, text: str) -> None:
    declared = registry.operations()[operation]
    (baseline,) = (b for b in declared.baselines if b.name == "Triton")
    problem = declared.problem.parse(text)
    case = Case.of(problem.with_tier(problem.tiers[-1]))
    storage = case.storage()
    held = {name: array.view(storage[name]).view(Tensor) for name, array in case.arrays.items()}
    module = sys.modules[baseline.call.__module__]
    with patch.object(module, "multiprocessors", lambda: 132, create=True), emulate() as run:
        baseline.call(case.problem, **baseline.arguments(held))()
    assert run.ok
    failure, _ = case.judge(storage.__getitem__)
    assert failure is None, f"{problem}: {failure.message}: {failure.wrong[:3]}"
    assert not case.changed_inputs(storage)


@pytest.mark.parametrize(("operation", "text"), [(name, text) for name, texts in OTHERS.items() for text in texts])
def test_a_triton_kernel_solves_the_problems_of_each_other_operation(operation: str, text: str) -> None:
    problem = registry.operations()[operation].problem.parse(text)
    case = Case.of(problem.with_tier(problem.tiers[-1]))
    storage = case.storage()
    with emulate() as run:
        launch(operation, case.problem, {name: array.view(storage[name]) for name, array in case.arrays.items()})
    assert run.ok
    failure, _ = case.judge(storage.__getitem__)
    assert failure is None, f"{problem}: {failure.message}: {failure.wrong[:3]}"
    assert not case.changed_inputs(storage)


def test_every_operation_is_here() -> None:
    operations = registry.operations()
    declared = {name for name, o in operations.items() if any(b.name == "Triton" for b in o.baselines)}
    assert declared == PROBLEMS.keys()
    scaled = {"gemm_block_scaled"}  # what tl.dot_scaled becomes is tested by itself, for sm_100a
    assert operations.keys() - declared - scaled == OTHERS.keys()
