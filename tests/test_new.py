"""`workbench new`: what it writes is found, fails until its kernel is written, and overwrites nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import invoke

import workbench
from workbench.catalogue import registry
from workbench.checks.mutate import mutants_of
from workbench.cli import new
from workbench.model.problem import Tier
from workbench.model.results import Verdict

pytest_plugins = ["pytester"]

KERNELS = {
    "elementwise": "int i = blockIdx.x * THREADS + threadIdx.x;\n"
    "if (i < n) y[i] = from_float<IN>(to_float(x[i]) * to_float(x[i]));",
    "reduction": "int r = blockIdx.x * THREADS + threadIdx.x;\nif (r >= rows) return;\nfloat sum = 0;\n"
    "for (int c = 0; c < columns; ++c) sum += to_float(x[(long long)r * columns + c]);\ny[r] = sum;",
    "matmul": "int n = blockIdx.x * BLOCK_X + threadIdx.x, m = blockIdx.y * BLOCK_Y + threadIdx.y;\n"
    "if (m >= M || n >= N) return;\nfloat sum = 0;\n"
    "for (int k = 0; k < K; ++k) sum += to_float(A[m * K + k]) * to_float(B[k * N + n]);\n"
    "C[m * N + n] = from_float<IN>(sum);",
}
"""What fills the kernel of each template."""


@pytest.fixture(autouse=True)
def folder(here: Path) -> Iterator[Path]:
    """An empty working directory; nothing of its modules is left for another test."""
    path = list(sys.path)
    yield here
    sys.path[:] = path
    forget()


def forget() -> None:
    for name in [n for n in sys.modules if n.split(".")[0] in ("kernels", "mine")]:
        del sys.modules[name]
    registry.reload()


def run(*arguments: str) -> Result:
    result = invoke("new", *arguments)
    forget()
    return result


def verdict(spec: str) -> Verdict:
    (stage,) = workbench.verify(spec, device="emulator", examples=8).run.stages
    return stage.verification.verdict


def fill(source: Path, body: str) -> None:
    text = source.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("  // FILL IN")]
    source.write_text(text.replace(line, body))


@pytest.mark.parametrize("kind", new.KINDS)
def test_an_operation_in_short_form_passes_as_it_is(kind: str, folder: Path) -> None:
    result = run("my_own", "--like", kind)
    assert result.exit_code == 0, result.output
    written = [line.removeprefix("wrote ") for line in result.stdout.splitlines() if line.startswith("wrote ")]
    assert sorted(written) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    for path in (folder / "kernels").glob("*my_own*"):
        assert kind not in path.read_text() and kind not in path.name
    assert verdict("my_own") is Verdict.PASS


@pytest.mark.parametrize("kind", new.KINDS)
@pytest.mark.parametrize("form", [[], ["--full"]])
def test_the_test_that_is_written_is_collected_and_its_example_passes(
    kind: str, form: list[str], pytester: pytest.Pytester
) -> None:
    assert run("my_own", *form, "--like", kind).exit_code == 0
    result = pytester.runpytest_subprocess("-k", "example", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, deselected=1)


def test_a_new_operation_is_verified_and_a_line_that_is_deleted_is_named(folder: Path) -> None:
    """What README says: `workbench new rowmax && workbench verify rowmax`."""
    assert run("rowmax").exit_code == 0
    arguments = ("verify", "rowmax", "--device", "emulator", "--examples", "5", "--seed", "0")
    shown = invoke(*arguments)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"rowmax:naive +pass +5 +exact [1-5], bounded 5", shown.stdout)
    assert invoke("new", "rowmax:warp", "--from", "naive").stdout.startswith("wrote kernels/rowmax_warp.cu\n")
    for name, stage in (("rowmax.cu", "naive"), ("rowmax_warp.cu", "warp")):
        source = folder / "kernels" / name
        source.write_text("".join(line for line in source.open() if "__syncthreads" not in line))
        forget()
        failed = invoke(*arguments[:1], f"rowmax:{stage}", *arguments[2:])
        number = source.read_text().partition("if (threadIdx.x < half)")[0].count("\n") + 1
        assert failed.exit_code == 1
        assert f"kernels/{name}:{number}: race" in failed.stdout
        assert "__syncthreads() is missing between" in failed.stdout


@pytest.mark.parametrize("kind", new.KINDS)
def test_an_operation_fails_until_its_kernel_is_written_and_then_passes(kind: str, folder: Path) -> None:
    result = run("my_own", "--full", "--like", kind)
    assert result.exit_code == 0, result.output
    written = [line.removeprefix("wrote ") for line in result.stdout.splitlines() if line.startswith("wrote ")]
    assert sorted(written) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert "workbench verify my_own" in result.stdout
    for path in (folder / "kernels").rglob("*.*"):  # nothing of the template's name is left
        assert kind not in path.read_text().lower().replace("element by element", "") and kind not in path.name
    assert verdict("my_own") is Verdict.MISMATCH
    fill(folder / "kernels/my_own/1_naive.cu", KERNELS[kind])
    assert verdict("my_own") is Verdict.PASS
    problem = registry.operations()["my_own"].problem().with_tier(Tier.EXACT)
    assert problem.negative_controls(problem.inputs(), problem.reference(problem.inputs()))


def test_an_operation_from_another_one_has_its_problems_and_an_empty_kernel(folder: Path) -> None:
    assert run("my_gemm", "--from", "gemm").exit_code == 0
    assert verdict("my_gemm") is Verdict.MISMATCH
    source = folder / "kernels/my_gemm/1_naive.cu"
    assert "k < K" not in source.read_text()
    source.write_text((registry.select(["gemm:naive"])[0]).path.read_text())
    assert verdict("my_gemm") is Verdict.PASS
    assert [o.origin for n, o in registry.operations().items() if n.endswith("gemm")] == ["workbench", folder.name]
    # and what becomes of its answer is the reference's business
    reference = folder / "kernels/my_gemm/reference.py"
    reference.write_text(reference.read_text().replace("return outputs", "return {'C': 2 * outputs['C']}"))
    forget()
    assert verdict("my_gemm") is Verdict.MISMATCH


def test_an_operation_from_one_of_the_projects_own(folder: Path) -> None:
    run("square", "--full", "--like", "elementwise")
    assert run("gemm_square", "--from", "square").exit_code == 0
    text = (folder / "kernels/gemm_square/__init__.py").read_text()
    assert "from kernels.square import SQUARE, SquareProblem" in text
    assert "class GemmSquareProblem(SquareProblem)" in text
    assert "gemm" not in text.replace("gemm_square", "")
    assert verdict("gemm_square") is Verdict.MISMATCH
    fill(folder / "kernels/gemm_square/1_naive.cu", KERNELS["elementwise"])
    assert verdict("gemm_square") is Verdict.PASS


@pytest.mark.parametrize("base", ["matvec", "vector_add"])
def test_an_operation_from_any_other_of_ours(base: str) -> None:
    assert run("joined", "--from", base).exit_code == 0
    assert verdict("joined") is Verdict.MISMATCH


def test_a_stage_is_the_one_before_renamed_with_a_head_to_fill_in(folder: Path) -> None:
    run("square", "--full", "--like", "elementwise")
    fill(folder / "kernels/square/1_naive.cu", KERNELS["elementwise"])
    result = run("square:wide", "--from", "naive")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:2] == ["wrote kernels/square/2_wide.cu", "added to kernels/square/stages.py"]
    text = (folder / "kernels/square/2_wide.cu").read_text()
    assert text.startswith("// y[i] = x[i]^2. x, y: (n).\n//\n// stage 2, wide: FILL IN")
    assert "square_wide(const IN* x" in text
    naive, wide = registry.operations()["square"].stages
    assert (wide.name, wide.source, wide.parameters) == ("wide", "square/2_wide.cu", naive.parameters)
    assert "FILL IN" in wide.idea
    assert verdict("square:wide") is Verdict.PASS
    assert verdict("square:naive") is Verdict.PASS
    run("square:wider", "--from", "square:wide")
    assert registry.operations()["square"].stages[2].source == "square/3_wider.cu"


def test_a_stage_has_the_one_it_was_copied_from_as_its_parent(folder: Path) -> None:
    run("square", "--full", "--like", "elementwise")
    fill(folder / "kernels/square/1_naive.cu", KERNELS["elementwise"])
    for name, base in (("wide", "naive"), ("other", "naive"), ("wider", "other")):
        assert run(f"square:{name}", "--from", base).exit_code == 0
    assert {s.name: s.parent for s in registry.operations()["square"].stages} == {
        "naive": None,
        "wide": "naive",
        "other": "naive",
        "wider": "other",
    }
    text = (folder / "kernels/square/stages.py").read_text()
    assert text.count('    after="naive",') == 2 and text.count('    after="other",') == 1


def test_a_copy_of_the_first_of_a_track_is_its_child(folder: Path) -> None:
    run("square", "--full", "--like", "elementwise")
    module = folder / "kernels/square/stages.py"
    module.write_text(module.read_text().replace('    "naive",\n', '    "naive",\n    track="plain",\n'))
    source = folder / "kernels/square/1_naive.cu"
    source.rename(source.with_name("01_naive.cu"))
    module.write_text(module.read_text().replace("1_naive.cu", "01_naive.cu"))
    fill(source.with_name("01_naive.cu"), KERNELS["elementwise"])
    assert run("square:wide", "--from", "naive").exit_code == 0
    naive, wide = registry.operations()["square"].stages
    assert (naive.track, wide.track, wide.parent) == ("plain", "plain", "naive")
    assert wide.source == "square/02_wide.cu"


def test_a_project_with_its_own_layout_gets_the_files_where_it_has_them(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.workbench]\nkernels = ["mine"]\ncuda = "device"\n')
    for name in ("src/mine", "device"):
        (folder / name).mkdir(parents=True)
    (folder / "src/mine/__init__.py").write_text("")
    assert run("square", "--full").exit_code == 0
    assert (folder / "device/square/1_naive.cu").is_file()
    assert (folder / "src/mine/square/reference.py").is_file()
    assert verdict("square") is Verdict.MISMATCH
    assert run("short", "--like", "elementwise").exit_code == 0
    assert (folder / "device/short.cu").is_file() and (folder / "src/mine/short.py").is_file()
    assert verdict("short") is Verdict.PASS


def test_sources_lie_beside_the_module_where_no_folder_is_named(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.workbench]\nkernels = ["kernels"]\n')
    assert run("square", "--full").exit_code == 0
    assert registry.operations()["square"].stages[0].source == "1_naive.cu"
    assert verdict("square") is Verdict.MISMATCH


def test_a_pyproject_that_is_there_is_left_as_it_is_and_what_to_add_is_said(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    result = run("square")
    assert (folder / "pyproject.toml").read_text() == "[project]\nname = 'x'\n"
    assert "1. add to pyproject.toml" in result.stdout
    assert 'kernels = ["kernels"]' in result.stdout
    with (folder / "pyproject.toml").open("a") as file:
        file.write(new.PROJECT)
    registry.reload()
    assert verdict("square") is Verdict.PASS


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "kernels/square").mkdir(parents=True)
    (folder / "kernels/square/1_naive.cu").write_text("mine")
    result = run("square", "--full")
    assert result.exit_code == 2
    assert "1_naive.cu is there already; nothing was written" in result.stderr
    assert [p.name for p in folder.rglob("*") if p.is_file()] == ["1_naive.cu"]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file becomes larger, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def half_of_a_text(patch: pytest.MonkeyPatch) -> None:
    """Of what is written at the end of a file only half finds room."""
    opened = Path.open

    def opening(path: Path, mode: str = "r", **options: Any) -> Any:
        file: Any = opened(path, mode, **options)
        if mode == "a":
            write = file.write

            def half(text: str) -> None:
                write(text[: len(text) // 2])
                file.flush()
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

            file.write = half
        return file

    patch.setattr(Path, "open", opening)


def test_what_cannot_be_written_whole_is_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with largest_file(2000):  # the declaration, and neither the source nor the package, is larger
        result = run("rowmax", "--full", "--like", "reduction")
    path = folder / "kernels/rowmax/__init__.py"
    assert (result.exit_code, result.stderr) == (1, f"Error: {path} cannot be written: File too large\n")
    assert list(folder.iterdir()) == []
    assert run("rowmax", "--full", "--like", "reduction").exit_code == 0
    stages, files = Path("kernels/rowmax/stages.py"), sorted(folder.rglob("*.cu"))
    text = stages.read_text()
    with monkeypatch.context() as patch:
        half_of_a_text(patch)
        result = run("rowmax:next", "--from", "naive")
    assert (result.exit_code, result.stderr) == (1, f"Error: {stages.resolve()} cannot be written: File too large\n")
    assert stages.read_text() == text
    assert sorted(folder.rglob("*.cu")) == files
    assert run("rowmax:next", "--from", "naive").exit_code == 0


def test_a_source_that_is_not_utf8_is_copied_byte_by_byte(folder: Path) -> None:
    run("rowmax", "--full", "--like", "reduction")
    source = Path("kernels/rowmax/1_naive.cu")
    source.write_bytes(source.read_bytes() + b"__device__ bool f(int x) { return x < 3; }  // caf\xe9\n")
    assert run("rowmax:next", "--from", "naive").exit_code == 0
    assert source.with_name("2_next.cu").read_bytes().endswith(b"// caf\xe9\n")
    mutants = mutants_of("1_naive.cu", source.parent)
    assert mutants[0].diff


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gemm"], "there is an operation 'gemm' already"),
        (["My-Op"], "small letters"),
        (["class"], "small letters"),
        (["x", "--from", "gem"], "did you mean gemm?"),
        (["x", "--from", "gemm", "--like", "matmul"], "either --from or --like"),
        (["x", "--like", "stencil"], "'reduction', 'elementwise', 'matmul'"),
        (["gemm:mine"], "workbench new gemm:mine --from STAGE"),
        (["gemm:mine", "--from", "naiv"], "did you mean naive?"),
        (["gemm:naive", "--from", "naive"], "has a stage 'naive' already"),
        (["gemm:mine", "--from", "naive"], "workbench new my_gemm --from gemm"),
        (["gemn:mine", "--from", "naive"], "did you mean gemm?"),
        (["gemm:2nd", "--from", "naive"], "small letters"),
    ],
)
def test_what_cannot_be_made_is_one_message(arguments: list[str], said: str, folder: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(folder.iterdir())
