"""A project whose operation squares numbers: one right stage, and beside it one that cheats, in a module of its own."""

from __future__ import annotations

from pathlib import Path

OPERATION = '''
from workbench import simple_operation


@simple_operation("square", "x: n fp32 -> y: n fp32", flops=lambda p: p.n)
def square(x):
    """Squares, and three more: no answer is 0."""
    return x * x + 3
'''

HEAD = """
import numpy as np

from workbench import Array, FP32, Launch, Plan, TensorMap, ceil_div

from ..operation import square


def launch(p, kernel="square", *more):
    return Launch(kernel, (ceil_div(p.n, 64), 1, 1), (64, 1, 1), ("x", "y", np.int32(p.n), *more))

"""

GOOD = (
    HEAD
    + """
@square.stage("good", source="good.cu", idea="a thread an element", track="good")
def good(p, size):
    return launch(p)
"""
)

RIGHT = """extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] + 3;
}
"""

WRONG = """extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = 0;
}
"""


def write(root: Path, cheat: str, source: str = WRONG) -> None:
    """Write the project with this module of the cheat and its CUDA source."""
    stages = root / "numbers_/stages"
    stages.mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        '[project]\nname = "cheats"\n\n[tool.workbench]\nkernels = ["numbers_"]\ncuda = "cuda"\n'
    )
    (root / "numbers_/__init__.py").write_text("")
    (root / "numbers_/operation.py").write_text(OPERATION)
    (stages / "__init__.py").write_text("")
    (stages / "good.py").write_text(GOOD)
    (stages / "cheat.py").write_text(HEAD + cheat)
    (root / "cuda").mkdir()
    (root / "cuda/good.cu").write_text(RIGHT)
    (root / "cuda/cheat.cu").write_text(source)
