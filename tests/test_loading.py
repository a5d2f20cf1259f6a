"""Operations of a project as functions: which stages solve them, and what their problem is."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated_gpu import EmulatedGpu

import workbench
from workbench import ops
from workbench.catalogue import registry
from workbench.model.results import Measurement, Timing
from workbench.ops import loading
from workbench.records import versions

DECLARATION = '''
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench import Launch, ceil_div, simple_operation


@simple_operation(
    "scaled_sum",
    "x: rows columns dtype, w: columns dtype -> y: rows columns dtype",
    fields={"factor": 2, "negative": False},
    not_exact="not tried here",
    suite=("64x64,dtype=fp32",),
)
def scaled_sum(x: Any, w: Any, *, factor: int, negative: bool) -> Any:
    """x times a factor, plus w."""
    return x * factor * (-1 if negative else 1) + w


def launch(p: Any, size: Mapping[str, int]) -> Launch:
    factor = np.float32(-p.factor if p.negative else p.factor)
    arguments = ("x", "w", "y", np.int32(p.rows * p.columns), np.int32(p.columns), factor)
    blocks = ceil_div(p.rows * p.columns, size["THREADS"])
    return Launch("scaled_sum", (blocks, 1, 1), (size["THREADS"], 1, 1), arguments)


scaled_sum.stage("first", source="first.cu", idea="an element a thread", parameters={"THREADS": 64})(launch)
scaled_sum.stage("second", source="second.cu", idea="more threads", parameters={"THREADS": 128})(launch)
'''

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void scaled_sum(const DTYPE* x, const DTYPE* w, DTYPE* y, int n, int columns, float factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = DTYPE(float(x[i]) * factor + float(w[i % columns]));
}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of one operation with two stages."""
    (tmp_path / "pyproject.toml").write_text('[tool.workbench]\nkernels = ["loaded_kernels"]\n')
    package = tmp_path / "loaded_kernels"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(DECLARATION))
    for name in ("first.cu", "second.cu"):
        (package / name).write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    yield package
    sys.modules.pop("loaded_kernels", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def verified(*what: str) -> None:
    assert workbench.verify(*what, device="emulator", examples=3, seed=0).ok


def solved_by(function: Any, gpu: EmulatedGpu) -> str:
    x, w = np.ones((3, 5), np.float32), np.arange(5, dtype=np.float32)
    prepared = function.prepare(gpu.upload(x), gpu.upload(w))
    assert np.array_equal(gpu.download(function(gpu.upload(x), gpu.upload(w))), 2 * x + w)
    return str(prepared.stage.name)


def test_only_stages_that_have_passed_as_they_are_now_solve_calls(project: Path, gpu: EmulatedGpu) -> None:
    with pytest.raises(ops.Unverified, match=r"no stage of scaled_sum has passed .* run `workbench verify scaled_sum`"):
        ops.load("scaled_sum")
    assert solved_by(ops.load("scaled_sum", unverified=True), gpu) == "second"
    verified("scaled_sum:first")
    assert solved_by(ops.load("scaled_sum"), gpu) == "first"
    with pytest.raises(ops.Unverified, match="verify scaled_sum:second"):
        ops.load("scaled_sum", stage="second")
    verified("scaled_sum:second")
    assert solved_by(ops.load("scaled_sum"), gpu) == "second"
    assert solved_by(ops.load("scaled_sum", stage="first"), gpu) == "first"
    (project / "second.cu").write_text(SOURCE.replace("int i =", "const int i ="))
    assert solved_by(ops.load("scaled_sum"), gpu) == "first"


@pytest.mark.parametrize("changed", ["helper", "data", "environment"])
def test_a_change_of_what_launches_depend_on_voids_a_pass(changed: str, project: Path) -> None:
    verified("scaled_sum")
    ops.load("scaled_sum")
    if changed == "environment":
        for stage in registry.select(["scaled_sum"]):
            object.__setattr__(stage, "defines_for", lambda p, f=stage.defines_for: f(p) | {"FACTOR": 2})
    elif changed == "data":
        (project / "table.json").write_text("{}")
    else:
        (project / "helper.py").write_text("TILE = 3\n")
    with pytest.raises(ops.Unverified, match="run `workbench verify scaled_sum`"):
        ops.load("scaled_sum")


def test_a_stage_that_has_failed_since_it_passed_is_not_verified(project: Path, gpu: EmulatedGpu) -> None:
    verified("scaled_sum")
    (stage,) = registry.select(["scaled_sum:second"])
    (project / "second.cu").write_text(SOURCE.replace("+ float", "- float"))
    failed = workbench.verify("scaled_sum:second", device="emulator", examples=3, seed=0)
    assert not failed.ok
    (project / "second.cu").write_text(SOURCE)
    assert any(version.passed for version in versions.of(stage).of("scaled_sum", "second"))
    assert solved_by(ops.load("scaled_sum"), gpu) == "first"


def test_the_fastest_that_was_timed_is_the_best(project: Path, gpu: EmulatedGpu) -> None:
    verified("scaled_sum")
    for name, us in (("first", 10.0), ("second", 11.0)):
        (stage,) = registry.select([f"scaled_sum:{name}"])
        (run, *_) = versions.of(stage).passed(versions.Snapshot.of(stage))
        timing = Timing(stage.spec, [us])
        run.stages[0].measurements.append(Measurement("rows=64", "64", 1, 1, 1.0, "memory", timing))
        versions.of(stage).keep(versions.Snapshot.of(stage), run)
    assert solved_by(ops.load("scaled_sum"), gpu) == "first"


def test_slowness_is_by_the_fastest_on_problems_and_devices_that_are_shared() -> None:
    class Fake:
        def __init__(self, device: str, **times: float) -> None:
            self.device = type("Device", (), {"name": device})
            made = [Measurement(p, p, 1, 1, 1.0, "", Timing("", [us])) for p, us in times.items()]
            self.stages = [type("Result", (), {"measurements": made})]

    runs: Any = {
        "a": [Fake("H", p=10.0, q=40.0), Fake("H", p=99.0)],
        "b": [Fake("H", p=20.0, q=20.0), Fake("I", p=1.0)],
        "c": [],
    }
    found = loading._slowness(runs)
    assert found == pytest.approx({"a": 2**0.5, "b": 2 ** (1 / 3)})


def test_the_problem_follows_from_the_arrays_and_other_fields_are_options(project: Path, gpu: EmulatedGpu) -> None:
    function = ops.load("scaled_sum", unverified=True)
    assert (function.arrays, function.options) == (("x", "w"), ("factor", "negative"))
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        x, w = np.full((3, 8), 2, dtype), np.arange(8).astype(dtype)
        found = function(gpu.upload(x), gpu.upload(w), factor=3, negative=True)
        assert found.dtype == x.dtype and np.array_equal(gpu.download(found), x * -3 + w)


def test_the_project_is_a_namespace_of_its_operations(project: Path, gpu: EmulatedGpu) -> None:
    verified("scaled_sum")
    assert "scaled_sum" in dir(ops.project)
    assert solved_by(ops.project.scaled_sum, gpu) == "second"
    with pytest.raises(AttributeError, match="no stage or operation is called 'scaled'"):
        _ = ops.project.scaled


@pytest.mark.parametrize(
    ("shapes", "dtypes", "error", "says"),
    [
        (((3, 5), (4,)), "ff", ValueError, r"scaled_sum: w has shape \(4,\); with the others it has to be \(5,\)"),
        (((3, 5), (1, 5)), "ff", ValueError, r"w has shape \(1, 5\), not 1 dimensions"),
        (((3, 5), (5,)), "fe", TypeError, r"dtypes x float32, w float16; they have to be like .* dtype is one of"),
        (((3, 5), (5,)), "dd", TypeError, r"dtypes x float64"),
    ],
)
def test_arrays_of_no_problem_are_answered_with_what_is_right(
    project: Path, gpu: EmulatedGpu, shapes: Any, dtypes: str, error: type[Exception], says: str
) -> None:
    function = ops.load("scaled_sum", unverified=True)
    given = [gpu.upload(np.zeros(shape, dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
    with pytest.raises(error, match=says):
        function(*given)
    wide = gpu.upload(np.zeros((3, 9), np.float32))
    with pytest.raises(ValueError, match=r"x has strides \(36, 4\) bytes; they have to be \(20, 4\): copy it"):
        function(wide[:, :5], gpu.upload(np.zeros(5, np.float32)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'rows'"):
        function(*given, rows=3)


def test_paddings_types_and_sizes_of_our_own_operations_are_found() -> None:
    from workbench.model.calls import ArraySpec
    from workbench.ops.inferred import function_of

    half = np.dtype(np.float16)
    gemm = function_of(registry.operations()["gemm"])
    assert {"out_type", "layout", "pad_c", "batch", "alpha"} <= set(gemm.options)
    assert not {"pad_a", "pad_b"} & set(gemm.options)
    a, b = ArraySpec((6, 8), (32, 2), half), ArraySpec((5, 8), (18, 2), half)
    problem = gemm.build(a, b, out_type="fp16").problem
    assert str(problem).startswith("m=6,n=5,k=8,dtype=fp16,out=fp16,layout=nt,pad_a=8,pad_b=1,")
    attention = function_of(registry.operations()["attention"])
    q, k = (ArraySpec.whole((2, heads, n, 16), half) for heads, n in ((6, 40), (2, 70)))
    problem = attention.build(q, k, k, group=3, causal=True).problem
    assert (problem.heads, problem.rows, problem.keys, problem.dim, problem.causal) == (6, 40, 70, 16, True)
    with pytest.raises(
        ValueError, match=r"k has shape \(2, 2, 70, 16\); with the others it has to be \(2, 6, 70, 16\)"
    ):
        attention.build(q, k, k)
    with pytest.raises(ValueError, match=r"attention: .*group"):
        attention.build(q, k, k, group=4)


def test_our_own_operations_are_verified_and_have_their_function() -> None:
    assert ops.load("gemm") is ops.gemm
    naive = ops.load("softmax", stage="naive")
    assert naive.operation.name == "softmax" and naive is not ops.softmax
    with pytest.raises(registry.UnknownSpec, match="'naive' is no operation"):
        ops.load("naive")


def test_one_stage_of_ours_solves_calls(gpu: EmulatedGpu) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    naive = ops.load("softmax", stage="naive")
    assert naive.prepare(gpu.upload(x)).stage.name == "naive"
    assert np.allclose(gpu.download(naive(gpu.upload(x))).sum(axis=1), 1)
