"""Tasks of KernelBench and gpu-mode become operations. What needs PyTorch is skipped where it is not installed."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import document, invoke, one_message, said
from hypothesis import given, settings
from test_project import _forgotten

import workbench
from workbench.catalogue import registry
from workbench.cli import imports, tasks
from workbench.model import torch_task
from workbench.model.dtypes import FP16, FP32, INT32
from workbench.model.problem import Size
from workbench.model.torch_task import Seen, TorchTask
from workbench.toolchain.compiler import compile_stage

__all__ = ["_forgotten"]

KERNELBENCH = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """
    A "linear" layer \\\\ and {ReLU}.
    """
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))

batch_size = 128
in_features, out_features = 1024, 512
dim = 1
eps = 1e-5

def get_inputs():
    return [torch.rand(batch_size, in_features)]

def get_init_inputs():
    return [in_features, out_features]
'''

LOOKED = tasks.Looked(
    sizes={"batch_size": 128, "in_features": 1024, "out_features": 512},
    arrays={
        "x": Seen((128, 1024), "fp32", "input"),
        "linear_weight": Seen((512, 1024), "fp32", "parameter"),
        "linear_bias": Seen((512,), "fp32", "parameter"),
        "out": Seen((128, 512), "fp32", "output"),
    },
    shapes={
        "x": ["self.batch_size", "self.in_features"],
        "linear_weight": ["self.out_features", "self.in_features"],
        "linear_bias": ["self.out_features"],
        "out": ["self.batch_size", "self.out_features"],
    },
    flops="2 * self.batch_size * self.in_features * self.out_features",
    signs=True,
)
"""What PyTorch says of this task."""

CONVOLUTION = """import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=2, padding=1)

    def forward(self, x):
        return torch.tanh(self.conv(x))

batch_size = 16
in_channels = 3
out_channels = 64
shape = (30, 40)
kernel_size = 4

def get_inputs():
    return [torch.randn(batch_size, in_channels, *shape)]

def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
"""

REFERENCE = '''from utils import make_match_reference, DeterministicContext
from task import input_t, output_t
import torch

def ref_kernel(data: input_t) -> output_t:
    """Adds two matrices."""
    with DeterministicContext():
        A, B, output = data
        output[...] = A + B
        return output

def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    A = torch.randn(size, size, device="cuda", dtype=torch.float16, generator=gen).contiguous()
    B = torch.randn(size, size, device="cuda", dtype=torch.float16, generator=gen).contiguous()
    return A, B, torch.empty(size, size, device="cuda", dtype=torch.float16)

check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=2e-3)
'''

TASK = """lang: "py"
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
tests:
  - {"size": 127, "seed": 4242}
  - {"size": 7, "seed": 5236}
  - {"size": 7, "seed": 5237}
benchmarks:
  - {"size": 1024, "seed": 31232}
  - {"size": 2048, "seed": 4052}
ranked_by: "geom"
"""


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    Path("3_Linear_ReLU.py").write_text(KERNELBENCH)
    Path("conv.py").write_text(CONVOLUTION)
    Path("add_py").mkdir()
    Path("add_py/reference.py").write_text(REFERENCE)
    Path("add_py/task.yml").write_text(TASK)
    return here


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> str:
    """The operation of the first task, as it is made where PyTorch is."""
    monkeypatch.setattr(imports, "torch", lambda: None)
    monkeypatch.setattr(imports, "looked", lambda task: LOOKED)
    found = said(invoke("import", "kernelbench", "3_Linear_ReLU.py", "--json"))
    files = ("1_naive.cu", "__init__.py", "_definition.py", "stages.py", "test_linear_re_lu.py")
    assert found["written"] == ["kernels/__init__.py", *(f"kernels/linear_re_lu/{f}" for f in files), "pyproject.toml"]
    return "linear_re_lu"


def test_the_text_of_a_task_has_its_sizes_and_what_it_is_about() -> None:
    task = tasks.parsed("kernelbench", Path("3_Linear_ReLU.py"))
    assert task.sizes == {"batch_size": 128, "in_features": 1024, "out_features": 512, "dim": 1}
    assert (task.suite, task.tolerances) == ([task.sizes], None)
    assert task.about == "A  linear  layer   and  ReLU"  # it becomes Python, and CUDA C++
    assert tasks.parsed("kernelbench", Path("conv.py")).sizes["shape_1"] == 40


def test_the_settings_of_a_gpu_mode_task_are_its_suite_and_tests() -> None:
    pytest.importorskip("yaml")
    task = tasks.parsed("gpumode", Path("add_py"))
    assert (task.sizes, task.suite) == ({"size": 1024}, [{"size": 1024}, {"size": 2048}])
    assert (task.tried, task.tolerances, task.fixed) == ([{"size": 127}, {"size": 7}], (1e-3, 2e-3), {})
    assert task.about == "Adds two matrices"
    Path("add_py/reference.py").write_text(REFERENCE.replace('    """Adds two matrices."""\n', ""))
    Path("add_py/task.yml").write_text(TASK + 'description: |\n  Add "two" matrices.\n  More.\n')
    assert tasks.parsed("gpumode", Path("add_py")).about == "Add  two  matrices"
    Path("add_py/task.yml").write_text(TASK.replace('"size": 127', '"size": 127, "kind": "x"').replace("size", "seed_"))
    assert tasks.parsed("gpumode", Path("add_py")).fixed == {}


def test_what_is_imported_is_declared_and_compiles_without_pytorch(made: str) -> None:
    operation = registry.operations()[made]
    problem = operation.problem.parse("4x6x5")
    shapes = {name: array.shape for name, array in problem.arrays().items()}
    assert shapes == {"x": (4, 6), "linear_weight": (5, 6), "linear_bias": (5,), "out": (4, 5)}
    assert problem.cost.flops == 2 * 4 * 6 * 5 and operation.suite[0].label == "128x1024x512 fp32"
    (stage,) = registry.select((f"{made}:naive",))
    (launch,) = stage.plan(problem).launches
    assert launch.args[:4] == ("x", "linear_weight", "linear_bias", "out") and launch.args[-1] == 20
    assert ".entry linear_re_lu_naive" in compile_stage(stage, problem).ptx
    assert "torch" not in sys.modules or importlib.util.find_spec("torch")
    bound = problem.bound({}, {"out": np.full((4, 5), 2.0)})["out"]
    assert np.allclose(bound, 3e-4, rtol=1e-2)  # rtol 1e-4 of 2, atol 1e-4
    text = Path(f"kernels/{made}/__init__.py").read_text()
    assert "rtol and atol: what KernelBench takes for right of fp32." in text
    assert Path(f"kernels/{made}/_definition.py").read_text() == KERNELBENCH


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_remedy_is_said(made: str) -> None:
    with pytest.raises(torch_task.TaskError, match="pip install torch"):
        torch_task.torch()
    done = invoke("verify", made, "--device", "emulator", "--examples", "1", "--json")
    assert done.exit_code == 1 and "pip install torch" in done.stdout


def test_import_without_pytorch_writes_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = invoke("import", "kernelbench", "3_Linear_ReLU.py", "--json")
    error = document(done)["error"]
    assert (error["code"], done.exit_code) == ("task_error", 1)
    assert error["remedy"].startswith("install it with: pip install torch") and not Path("kernels").exists()


@pytest.mark.parametrize(
    ("kind", "path", "change", "parts"),
    [
        ("kernelbench", "nowhere.py", None, ["there is no file nowhere.py"]),
        ("kernelbench", "conv.py", ("class Model", "class Modell"), ["conv.py defines no Model"]),
        ("kernelbench", "conv.py", ("def get_inputs():", "def get_inputs(:"), ["is not Python"]),
        ("kernelbench", "add_py/reference.py", ("x", "x"), ["it is a task of gpumode: workbench import gpumode"]),
        ("gpumode", "conv.py", None, ["conv.py is no folder"]),
        ("gpumode", "add_py", ("tests:", "trials:"), ["task.yml has no list of tests"]),
        ("gpumode", "add_py", ("tests:", "tests: ["), ["task.yml is not YAML"]),
        ("gpumode", "add_py", ("- {", "- {{"), ["task.yml"]),
    ],
)
def test_what_is_no_task_is_one_message(kind: str, path: str, change: tuple[str, str] | None, parts: list[str]) -> None:
    file = Path(path) / "task.yml" if Path(path).is_dir() else Path(path)
    if file.suffix == ".yml":
        pytest.importorskip("yaml")
    if change:
        file.write_text(file.read_text().replace(*change))
    one_message(invoke("import", kind, path), 2, *parts)
    assert not Path("kernels").exists()


def test_a_name_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    one_message(invoke("import", "kernelbench", "conv.py", "--name", "gemm"), 2, "'gemm' already", "--name")
    one_message(invoke("import", "kernelbench", "conv.py", "--name", "9lives"), 2, "cannot be the name")


@pytest.mark.parametrize(
    ("name", "line"),
    [("n", "n = 7"), ("b", "a, b = (64, 7)"), ("shape_1", "shape = (3, 7)"), ("absent", "n = 5")],
)
def test_a_size_is_replaced_where_it_is_assigned(name: str, line: str) -> None:
    tree = ast.parse("n = 5\na, b = 64, 32\nshape = (3, 4)\ndef f():\n    n = 5\n")
    torch_task.replace_size(tree, name, 7)
    assert line in ast.unparse(tree) and ast.unparse(tree).count("7") == (name != "absent")


def test_modules_of_gpu_mode_are_stand_ins_unless_they_are_there(here: Path) -> None:
    text = "from task import input_t\nfrom utils import Context, helped, made\nwith Context():\n    x = helped(1)\n"
    Path("a.py").write_text(text + "check = made(input_t[int], y=2)\n")
    assert "x" in torch_task.load(Path("a.py")) and "utils" not in sys.modules
    Path("_utils.py").write_text("from contextlib import nullcontext as Context\nhelped = made = lambda *a, **b: 41\n")
    assert torch_task.load(Path("a.py"))["x"] == 41


def test_what_is_tolerated_rejects_zeros_of_small_outputs_and_takes_the_rounding() -> None:
    small = np.full(1000, 1e-3)
    bound = torch_task.tolerated(small, FP32, rtol=1e-4, atol=1e-2)
    assert (bound < small).all()  # the task's own atol would take zeros for right
    assert (torch_task.tolerated(np.ones(3), FP16, rtol=0, atol=0) >= 2.0**-11).all()
    assert torch_task.tolerated(np.array([np.inf, 1.0]), FP32, rtol=0.1, atol=0).max() < 1
    assert not torch_task.tolerated(np.ones(3), INT32, rtol=1, atol=1).any()


def test_controls_that_happen_to_be_right_are_left_out() -> None:
    right = {"out": np.array([1.0, np.nan])}
    wrong = {"out": np.array([1.0, 2.0])}
    assert torch_task.differing({"same": dict(right), "other": wrong}, right) == {"other": wrong}


def test_sizes_are_drawn_around_the_own_ones_and_within_the_device() -> None:
    seen: set[int] = set()

    @settings(max_examples=200, database=None, derandomize=True)
    @given(torch_task.around(40, Size(100, 10_000), (32,), 2))
    def draw(value: int) -> None:
        assert 1 <= value <= 80
        seen.add(value)

    draw()
    assert {39, 40, 41, 31, 33, 1} <= seen


# ------------------------------------------------------------------------------------------- with PyTorch on the CPU

RIGHT = {
    "linear_re_lu": """  int r = i / out_features, c = i % out_features;
  float sum = linear_bias[c];
  for (int k = 0; k < in_features; ++k) sum += x[r * in_features + k] * linear_weight[c * in_features + k];
  out[i] = fmaxf(sum, 0.f);""",
    "conv": """  int oh = (shape_0 - 2) / 2 + 1, ow = (shape_1 - 2) / 2 + 1;
  int w = i % ow, h = i / ow % oh, c = i / ow / oh % out_channels, b = i / ow / oh / out_channels;
  float sum = conv_bias[c];
  for (int k = 0; k < in_channels * 16; ++k) {
    int ih = 2 * h + k / 4 % 4 - 1, iw = 2 * w + k % 4 - 1;
    if (ih >= 0 && ih < shape_0 && iw >= 0 && iw < shape_1)
      sum += x[((b * in_channels + k / 16) * shape_0 + ih) * shape_1 + iw] * conv_weight[c * in_channels * 16 + k];
  }
  out[i] = tanhf(sum);""",
    "add_py": "  out[i] = A[i] + B[i];",
}


def imported(kind: str, path: str) -> str:
    pytest.importorskip("torch")
    done = invoke("import", kind, path)
    assert done.exit_code == 0, done.output
    return Path(next(line for line in done.stdout.splitlines() if "1_naive.cu" in line)).parent.name


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "path", "mistake"),
    [
        ("kernelbench", "3_Linear_ReLU.py", ("fmaxf(sum, 0.f)", "sum")),
        ("kernelbench", "conv.py", ("- 1, iw", ", iw")),
        ("gpumode", "add_py", ("+ B[i]", "- B[i]")),
    ],
)
def test_an_imported_operation_judges_kernels(kind: str, path: str, mistake: tuple[str, str]) -> None:
    name = imported(kind, path)
    source = Path("kernels") / name / "1_naive.cu"
    empty = source.read_text()
    verify = ("verify", name, "--device", "emulator", "--examples", "8", "--json")
    assert document(invoke(*verify))["verdicts"][0]["code"] == "mismatch"  # the kernel is to be written
    source.write_text(empty.replace("  // FILL IN: compute out[i]", RIGHT[name]))
    (verdict,) = document(invoke(*verify))["verdicts"]
    assert (verdict["code"], verdict["reward"]) == ("pass", 1), verdict["message"]
    operation = registry.operations()[name]
    (baseline,) = operation.baselines
    sizes = dict.fromkeys(operation.problem.extents, 8)
    assert workbench.baseline_error(baseline, operation.problem(**sizes)) == ""
    source.write_text(source.read_text().replace(*mistake))
    assert document(invoke(*verify))["verdicts"][0]["code"] == "mismatch"


def test_shapes_are_found_by_trying_other_sizes() -> None:
    pytest.importorskip("torch")
    found = tasks.looked(tasks.parsed("kernelbench", Path("conv.py")))
    assert found.shapes["out"][2:] == ["(self.shape_0) // 2", "(self.shape_1) // 2"]
    assert "kernel_size" not in found.sizes and not found.signs  # randn has both signs already
    found = tasks.looked(tasks.parsed("kernelbench", Path("3_Linear_ReLU.py")))
    assert found == LOOKED
    found = tasks.looked(tasks.parsed("gpumode", Path("add_py")))
    assert list(found.arrays) == ["A", "B", "out"]  # the buffer is the output


def test_sizes_with_which_the_answer_has_no_elements_are_no_problem() -> None:
    pytest.importorskip("torch")
    task = TorchTask(Path("conv.py"), "kernelbench", {"shape_0": 30})
    found = [task.possible(type("P", (), {"shape_0": rows})()) for rows in (1, 2, 3)]
    assert found == [False, True, True]
    with pytest.raises(torch_task.TaskError, match=r"no shapes with shape_0=1: out has shape \(16, 64, 0, 20\)"):
        task.seen([1])


def test_inputs_are_those_of_the_task_and_every_other_seed_has_signs() -> None:
    torch = pytest.importorskip("torch")
    task = TorchTask(Path("3_Linear_ReLU.py"), "kernelbench", {"batch_size": 4})
    problem = type("P", (), {"batch_size": 4, "seed": 2})()
    given = task.inputs(problem, signs=True)
    assert (given["x"] >= 0).all() and given["x"].shape == (4, 1024)
    problem.seed = 3
    assert 0.3 < (task.inputs(problem, signs=True)["x"] < 0).mean() < 0.7
    out = task.run(problem, given)["out"]
    right = np.maximum(given["x"].astype(float) @ given["linear_weight"].T.astype(float) + given["linear_bias"], 0)
    assert out.dtype == np.float64 and np.allclose(out, right, rtol=1e-12)
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    (answer,) = task.solved(problem, tensors)
    assert answer.dtype == torch.float32 and np.allclose(answer.numpy(), right, rtol=1e-4, atol=1e-5)
