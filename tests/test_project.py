"""Kernels in somebody's own project: found from its pyproject.toml, used like ours, and what is wrong there said."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import Result
from command_line import git, said
from command_line import invoke as workbench

from workbench import kernels
from workbench.catalogue import registry
from workbench.records import environment, tuned

pytest_plugins = ["pytester"]

DECLARATION = """
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench.model.dtypes import FP32
from workbench.model.arrays import Array
from workbench.model.launch import Launch, ceil_div
from workbench.model.arrays import Arrays
from workbench.model.operation import Operation
from workbench.model.problem import Cost, Problem, Size, extents


@dataclass(frozen=True)
class NegationProblem(Problem):
    n: int = 1
    extents: ClassVar[tuple[str, ...]] = ("n",)

    @property
    def label(self) -> str:
        return str(self.n)

    def arrays(self):
        return {"x": Array((self.n,), FP32), "y": Array((self.n,), FP32, output=True)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": -inputs["x"].astype(np.float64)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": np.zeros(self.n)}

    def negative_controls(self, inputs: Arrays, expected: Arrays):
        return {"not negated": {"y": -expected["y"]}}

    @property
    def cost(self) -> Cost:
        return Cost(self.n, 8 * self.n)


NEGATION = Operation(
    name="negation",
    summary="y = -x",
    problem=NegationProblem,
    problems=lambda size, edges: st.builds(NegationProblem, n=extents(size, edges), seed=st.integers(0, 99)),
    suite=(NegationProblem(n=4096),),
    defines=lambda p: {},
    emulator_size=Size(2000, 2000),
    cuda_size=Size(2000, 2000),
)


@NEGATION.stage(
    "naive",
    source="negation/1_naive.cu",
    idea="a thread an element",
    parameters={"THREADS": 128},
    space={"THREADS": (64, 128)},
)
def naive(p: NegationProblem, size: Mapping[str, int]) -> Launch:
    return Launch("negate", (ceil_div(p.n, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), ("x", "y", np.int32(p.n)))
"""

STAGE_OF_OURS = """
import numpy as np

from workbench import Launch, ceil_div
from workbench.kernels import VECTOR_ADD


@VECTOR_ADD.stage("beside", source="k.cu", idea="its source lies beside the module", track="beside")
def beside(p, size) -> Launch:
    return Launch("add", (ceil_div(p.n, 64), 1, 1), (64, 1, 1), ("a", "b", "c", np.int32(p.n)))
"""

ADDS = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void add(const IN* a, const IN* b, IN* c, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) c[i] = (IN)((float)a[i] + (float)b[i]);
}
"""

HEADER = "#pragma once\n__device__ float negated(float x) { return 0 - x; }\n"

SOURCE = """#include "negated.cuh"
#include "tile/warp.cuh"  // the workbench's

extern "C" __global__ void negate(const float* x, float* y, int n) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) y[i] = negated(x[i]);
}
"""

PROJECT = '[project]\nname = "signs"\n\n[tool.workbench]\nkernels = ["signs"]\ncuda = "device"\n'

Workbench = Callable[..., Result]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing of a test's project is left for another one."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = Path(getattr(sys.modules[name], "__file__", None) or "/")
        # an environment may be below /tmp, too, and SciPy cannot be loaded twice
        if file.is_relative_to("/tmp") and "site-packages" not in file.parts:
            del sys.modules[name]
    registry.reload()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one operation of one stage; the working directory."""
    root = tmp_path / "project"
    (root / "device/negation").mkdir(parents=True)
    (root / "device/include").mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "signs.py").write_text(DECLARATION)
    (root / "device/negation/1_naive.cu").write_text(SOURCE)
    (root / "device/include/negated.cuh").write_text(HEADER)
    monkeypatch.chdir(root)
    return root


def listed(*arguments: str) -> dict[str, str]:
    return {entry["spec"]: entry["origin"] for entry in said(workbench("list", "--json", *arguments))["stages"]}


def test_list_shows_the_projects_kernels_beside_ours_and_whose_they_are(project: Path) -> None:
    ours = {s.spec: "workbench" for s in registry.stages() if s.name == "naive" and s.operation != "negation"}
    assert {"gemm:naive", "vector_add:naive"} <= set(ours)
    assert listed("naive") == ours | {"negation:naive": "signs"}
    assert "negation: y = -x (signs)" in workbench("list").stdout


@pytest.mark.parametrize("module", ["stages", "more"])
def test_a_stage_of_our_own_operation_has_its_source_beside_its_module(
    project: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(kernels.VECTOR_ADD, "stages", [*kernels.VECTOR_ADD.stages])
    (project / "sums").mkdir()
    (project / "sums/__init__.py").write_text("")
    (project / f"sums/{module}.py").write_text(STAGE_OF_OURS)
    (project / "sums/k.cu").write_text(ADDS)
    (project / "pyproject.toml").write_text(PROJECT.replace('["signs"]', '["sums"]').replace('cuda = "device"', ""))
    registry.reload()
    (stage,) = registry.select(["vector_add:beside"])
    assert stage.path == project / "sums/k.cu"
    assert "pass" in workbench("verify", "vector_add:beside", "--device", "emulator", "--examples", "4").stdout


def test_our_operations_are_in_the_package_of_kernels() -> None:
    from workbench.kernels import GEMM, MATVEC, VECTOR_ADD

    assert [operation.name for operation in (GEMM, MATVEC, VECTOR_ADD)] == ["gemm", "matvec", "vector_add"]
    assert not hasattr(kernels, "NOTHING") and not hasattr(kernels, "gemm_of_nobody")


def test_a_module_that_hides_the_projects_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hiding = tmp_path / "tests/signs.py"
    hiding.parent.mkdir()
    hiding.write_text("")
    monkeypatch.syspath_prepend(str(hiding.parent))
    said = f"signs: signs is {hiding} here, not {project / 'signs.py'}: rename one of them"
    assert registry.troubles() == (said,)
    with pytest.raises(registry.UnknownSpec, match="signs is"):
        registry.select(["negation:naive"])


def test_without_a_spec_it_is_the_projects_own_stages(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [s.spec for s in registry.select(())] == ["negation:naive"]
    monkeypatch.chdir(project / "device" / "negation")
    assert [s.spec for s in registry.select(())] == ["negation:naive"]
    monkeypatch.chdir(project.parent)
    assert "negation:naive" not in [s.spec for s in registry.select(())]


def test_a_run_verifies_them_with_their_headers_and_ours_and_reports_in_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "device")
    result = workbench("run", "--device", "emulator", "--examples", "5")
    assert result.exit_code == 0, result.output
    page = (project / "reports/emulator/negation.md").read_text()
    assert "| `device/negation/1_naive.cu` |" in page
    assert (project / "device/negation/1_naive.cu").is_file()
    record = (project / "reports/emulator/results/negation.json").read_text()
    assert '"source": "negation/1_naive.cu"' in record
    assert workbench("report").exit_code == 0


def test_a_project_without_kernels_has_those_of_the_workbench_and_a_place_for_reports(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text('[tool.workbench]\nkernels = []\nreports = "build/pages"\n')
    monkeypatch.chdir(project / "device")
    assert "vector_add:naive" in [s.spec for s in registry.select(())]
    assert workbench("run", "vector_add:naive", "--device", "emulator", "--examples", "1").exit_code == 0
    assert (project / "build/pages/README.md").is_file()


@pytest.mark.parametrize(
    ("change", "line"), [(("i < n", "i <= n"), "1_naive.cu:6"), (("int i", "integer i"), "1_naive.cu(5)")]
)
def test_a_failure_names_the_line_in_the_project_and_no_machine(
    project: Path, change: tuple[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "device/negation/1_naive.cu").write_text(SOURCE.replace(*change))
    monkeypatch.chdir(project / "device/include")
    result = workbench("run", "--device", "emulator", "--examples", "5")
    assert result.exit_code == 1
    assert f"device/negation/{line}" in result.stdout
    assert str(project) not in (project / "reports/emulator/results/negation.json").read_text()


def test_the_commands_for_one_stage_work_there(project: Path) -> None:
    assert "registers" in workbench("inspect", "negation").stdout
    assert "y[i] = negated(x[i]);" in workbench("profile", "negation:naive").stdout
    assert workbench("trace", "negation:naive", "-o", "t.json").exit_code == 0
    assert json.loads(Path("t.json").read_text())["traceEvents"]


def test_a_declaration_that_is_refused_is_named_at_its_own_line(project: Path) -> None:
    wrong = ["import workbench", "", "@workbench.simple_operation('copy', 'x: n float33 -> y: n fp32')"]
    (project / "signs.py").write_text("\n".join([*wrong, "def copy(x):", "    return x", ""]))
    registry.reload()
    stderr = workbench("verify", "copy").stderr
    assert "signs cannot be imported: " in stderr
    assert "signs.py:3: ValueError: float33 is no type; did you mean fp32?" in stderr


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "np.int32(p.n)",
            "p.n",
            "TypeError: parameter 2 of negate: an argument is the name of an array, a NumPy scalar",
        ),
        ('ceil_div(p.n, size["THREADS"])', "p.n / 128", "TypeError: grid of negate: 0.0078125 is no whole number"),
        ("return Launch", "Launch", "TypeError: it has to return a Launch or a Plan, not NoneType"),
    ],
)
def test_a_launch_that_cannot_be_used_is_named_at_its_function(project: Path, old: str, new: str, says: str) -> None:
    (project / "signs.py").write_text(DECLARATION.replace(old, new))
    result = workbench("verify", "--device", "emulator", "--problem", "1")
    line = DECLARATION.splitlines().index("@NEGATION.stage(") + 1
    assert f"\n  signs.py:{line}: {says}" in result.stdout
    assert "plain.py" not in result.stdout


@pytest.mark.long
def test_mutants_are_of_the_projects_sources_and_explained_beside_them(project: Path) -> None:
    arguments = ("mutate", "--examples", "6", "--json")
    found = said(workbench(*arguments))
    assert {m["file"] for m in found["mutants"]} == {"negation/1_naive.cu", "include/negated.cuh"}
    assert found["killed"] >= 5
    # one that changes nothing that matters, for example a condition that never differs
    (project / "device/negation/1_naive.cu").write_text(SOURCE.replace("i < n", "i < n && n < 100000"))
    survivors = [m for m in said(workbench(*arguments))["mutants"] if m["outcome"] == "survived"]
    assert survivors
    entries = []
    for mutant in survivors:
        old, new = (next(line[1:] for line in mutant["diff"].splitlines()[3:] if line[0] == sign) for sign in "-+")
        entries.append(f"[[mutant]]\nold = '{old}'\nnew = '{new}'\nreason = 'n is small'\n")
    (project / "device/negation/equivalent").mkdir()
    (project / "device/negation/equivalent/1_naive.cu.toml").write_text("\n".join(entries))
    assert workbench(*arguments).exit_code == 0


@pytest.mark.long
def test_tuning_verifies_every_configuration_and_keeps_it_in_the_project(project: Path) -> None:
    result = workbench("tune", "negation:naive", "--device", "emulator", "--json")
    assert result.exit_code == 0, result.output
    (found,) = said(result)["searches"]
    assert [t["parameters"] for t in found["trials"]] == [{"THREADS": 128}, {"THREADS": 64}]
    trials = tuned.Table(project / "reports" / tuned.FILE).trials(
        tuned.Key.of(
            "emulated NVIDIA H200", *registry.select(["negation:naive"]), registry.operations()["negation"].suite[0]
        )
    )
    assert len(trials) == 2
    assert tuned.table_for(registry.select(["vector_add"])).path == tuned.Table().path


@pytest.mark.long
def test_pytest_makes_an_item_of_every_stage_of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "test_signs.py").write_text(
        "import pytest\n\n"
        "def test_stage(workbench_stage):\n    workbench_stage.verify()\n\n"
        "@pytest.mark.workbench('vector_add:naive')\n"
        "def test_chosen(workbench_stage):\n    workbench_stage.verify()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--workbench-examples=3", "-v", "-rA"]
    if not any(e.value == "workbench.pytest_plugin" for e in metadata.entry_points(group="pytest11")):
        command += ["-p", "workbench.pytest_plugin"]
    found = subprocess.run([*command, "--workbench-device=emulator"], capture_output=True, text=True)
    assert "test_stage[negation-naive-emulator] PASSED" in found.stdout, found.stdout
    assert "test_chosen[vector_add-naive-emulator] PASSED" in found.stdout
    assert "2 passed" in found.stdout
    found = subprocess.run([*command, str(project)], cwd=project.parent, capture_output=True, text=True)
    assert "2 passed" in found.stdout, found.stdout
    Path("signs.py").write_text("1 / 0\n")
    found = subprocess.run([*command, "--workbench-device=emulator"], capture_output=True, text=True)
    assert "signs cannot be imported" in found.stdout
    assert "ZeroDivisionError" in found.stdout


def test_a_report_that_git_has_is_not_made_again_of_uncommitted_changes(project: Path) -> None:
    Path("reports/emulator/results").mkdir(parents=True)
    Path("reports/emulator/README.md").write_text("kept")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "start")
    assert not environment.unpublishable(Path("reports/emulator"))
    with (project / "signs.py").open("a") as file:
        file.write("# changed\n")
    refused = workbench("run", "negation", "--device", "emulator", "--output", "reports")
    assert refused.exit_code == 1 and "has uncommitted changes" in refused.stderr
    assert "commit the changes first, or choose another folder with --output" in " ".join(refused.stderr.split())
    assert list(Path("reports/emulator/results").iterdir()) == []
    assert not environment.unpublishable(Path("build/reports"))  # is not there yet
    Path("build/reports").mkdir(parents=True)
    assert not environment.unpublishable(Path("build/reports"))  # is not in git
    git("commit", "-q", "-a", "-m", "changed")
    assert not environment.unpublishable(Path("reports/emulator"))


def test_the_record_has_the_commit_of_the_project_and_its_code(project: Path) -> None:
    before = environment.code_digest()
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "start")
    assert (environment.describe().commit, environment.describe().dirty) == (git("rev-parse", "HEAD"), False)
    (project / "reports").mkdir()
    (project / "reports/x").touch()
    assert not environment.describe().dirty
    with (project / "signs.py").open("a") as file:
        file.write("# changed\n")
    assert environment.describe().dirty
    assert environment.code_digest() != before


def test_a_pass_depends_on_every_module_of_the_project_that_is_loaded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / "deep" / "inner" / "helper.py"
    path.parent.mkdir(parents=True)
    path.write_text("BOUND = 1\n")
    loaded = types.ModuleType("helper")
    loaded.__file__ = str(path)
    before = environment.code_digest()
    monkeypatch.setitem(sys.modules, "a_helper_of_the_test", loaded)
    with_it = environment.code_digest()
    assert with_it != before
    path.write_text("BOUND = 2\n")
    assert environment.code_digest() not in (before, with_it)


def test_an_installed_package_names_its_kernels_as_an_entry_point(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "cuda_src/negation").mkdir(parents=True)
    (site / "cuda_src/negation/1_naive.cu").write_text(SOURCE.replace("negated(x[i])", "-x[i]").split("\n", 1)[1])
    (site / "other_signs.py").write_text(DECLARATION)
    (site / "other-1.dist-info").mkdir()
    (site / "other-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (site / "other-1.dist-info/entry_points.txt").write_text("[workbench.kernels]\nany = other_signs\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    registry.reload()
    assert listed("negation") == {"negation:naive": "other"}
    assert workbench("verify", "negation", "--device", "emulator", "--examples", "3").exit_code == 0
    monkeypatch.chdir(project)  # where the name exists twice
    assert listed("negation") == {"negation:naive": "signs"}
    result = workbench("list")
    assert result.exit_code == 2
    assert "'negation' of other_signs has the name of one in signs" in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pyproject.toml": "[tool.workbench]\nkernels = ["}, ["pyproject.toml is not TOML"]),
        ({"pyproject.toml": "[tool.workbench]\n"}, ["lacks the modules", 'kernels = ["kernels"]']),
        ({"pyproject.toml": "[tool.workbench]\nkernels = 'signs'\n"}, ["kernels is 'signs'", "a list of modules"]),
        (
            {"pyproject.toml": PROJECT.replace('"signs"]', '"../signs"]')},
            ["kernels is ['../signs']", "a list of modules"],
        ),
        ({"pyproject.toml": PROJECT + "report = 'x'\n"}, ["'report'", "did you mean reports?"]),
        ({"pyproject.toml": PROJECT.replace("device", "devices")}, ["there is no folder", "devices", "cuda names"]),
        ({"pyproject.toml": PROJECT.replace('"signs"]', '"sings"]')}, ["there is no module sings"]),
        ({"signs.py": "import nothing_like_it\n"}, ["signs.py:1: ModuleNotFoundError", "nothing_like_it"]),
        ({"signs.py": "x = 1\ndef f(:\n"}, ["/project/signs.py:2: SyntaxError: invalid syntax"]),
        ({"signs.py": "raise SystemExit(3)\n"}, ["signs.py:1: SystemExit"]),
        ({"signs.py": DECLARATION + "\nNEGATION.stage('naive', source='x', idea='')(naive)"}, ["already has a stage"]),
        (
            {"signs.py": DECLARATION.replace('name="negation"', 'name="gemm"')},
            ["'gemm' of signs has the name of one in workbench.kernels.gemm"],
        ),
    ],
)
def test_what_is_wrong_is_one_message_and_the_rest_can_be_used(
    change: dict[str, str], said: list[str], project: Path
) -> None:
    for name, text in change.items():
        (project / name).write_text(text)
    for command in (["list"], ["verify", "--device", "emulator"], ["verify", "negation"]):
        result = workbench(*command)
        assert result.exit_code == 2, result.output
        assert [line.startswith("Error: ") for line in result.stderr.splitlines()].count(True) == 1
        for part in said:
            assert result.stderr.count(part) == 1, result.stderr
    assert "vector_add:naive" in listed("vector_add")
    result = workbench("verify", "vector_add:naive", "--device", "emulator", "--examples", "2")
    assert result.exit_code == 0
    assert said[0] in result.stderr


def test_a_name_beside_a_broken_project_gets_the_reason_and_no_guess(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.workbench]\nkernels = 'signs'\n")
    stderr = workbench("verify", "row_sum").stderr  # not "did you mean promoted_sums?"
    assert "'row_sum'; this may be the reason:\n[tool.workbench] of " in stderr and "did you mean" not in stderr
    assert "did you mean vector_add" in workbench("verify", "vector_ad").stderr


def test_what_a_module_prints_is_beside_the_document(project: Path) -> None:
    (project / "signs.py").write_text(f"{DECLARATION}\nprint('loaded')\n")
    result = workbench("list", "--json")
    assert said(result) and "loaded" in result.stderr
    assert workbench("list", "--json", "--help").stdout.startswith("Usage: ")


def test_a_problem_may_have_any_seed(project: Path) -> None:
    result = workbench("verify", "negation", "--device", "emulator", "--problem", f"n=4,seed={10**30}")
    assert result.exit_code == 0, result.output


def test_a_file_whose_tool_is_no_table_is_no_project(project: Path) -> None:
    (project / "pyproject.toml").write_text("tool = 3\n")
    assert "vector_add:naive" in listed("vector_add") and "negation:naive" not in listed("vector_add")


def test_ours_are_there_where_the_working_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "gemm" in registry.operations()


def test_doctor_says_which_project_it_is(project: Path) -> None:
    def row() -> tuple[str, str]:
        checks = said(workbench("doctor", "--json"))["checks"]
        (found,) = [c for c in checks if c["name"] == "project"]
        return found["state"], found["found"]

    assert row() == ("ok", "signs, with negation")
    (project / "signs.py").write_text("1 / 0\n")
    registry.reload()
    del sys.modules["signs"]
    assert row()[0] == "missing"
    assert "ZeroDivisionError" in row()[1]


def test_a_project_without_stages_says_how_to_make_some(project: Path) -> None:
    (project / "signs.py").write_text("")
    result = workbench("verify")
    assert result.exit_code == 2
    assert "workbench new" in result.stderr


def test_a_pyproject_without_our_section_is_no_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    monkeypatch.chdir(inner)
    found = registry.loaded().project
    assert found is not None and found.name == "signs"
    (inner / "pyproject.toml").write_text("this is no TOML")
    registry.reload()
    assert registry.loaded().project == found
