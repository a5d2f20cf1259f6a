"""The code in docs/ does what the pages say."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from refresh import script

from workbench import emulator, harness, kernels, reference
from workbench.catalogue import registry
from workbench.checks import mutate
from workbench.cli import main as cli
from workbench.devices import open_device
from workbench.kernels import gemm
from workbench.model import compact, origin
from workbench.model.results import Verdict

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def named_file(page: str) -> str:
    return re.search(r"^`cuda_src/(\S+)`$", (DOCS / page).read_text(), re.MULTILINE)[1]


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of cuda_src/ that a test may write to."""
    copy = tmp_path / "cuda_src"
    shutil.copytree(origin.SOURCES, copy)
    monkeypatch.setattr(origin, "SOURCES", copy)
    return copy


def write(sources: Path, page: str) -> None:
    target = sources / named_file(page)
    target.parent.mkdir(exist_ok=True)
    target.write_text(blocks(page, "cuda")[0])


def test_another_gemm_stage_takes_one_source_and_one_declaration(sources, monkeypatch):
    page = "adding-a-stage.md"
    monkeypatch.setattr(gemm.GEMM, "stages", list(gemm.GEMM.stages))
    write(sources, page)
    exec(blocks(page, "python")[0], vars(gemm.simt))
    monkeypatch.delattr(gemm.simt, "thread_row")

    assert registry.operations()["gemm"].stages[-1].name == "thread_row"
    (stage,) = registry.select(["thread_row"])
    result = harness.verify(stage, open_device("emulator"), examples=15, seed=0)
    assert result.verdict is Verdict.PASS, result.failure


def test_an_operation_takes_one_module_one_reference_and_its_source(sources, monkeypatch, tmp_path):
    page = "adding-an-operation.md"
    write(sources, page)
    exec(blocks(page, "python")[1], vars(reference))
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "axpy.py").write_text(blocks(page, "python")[2])
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(folder)])
    monkeypatch.setattr(registry, "OURS", [*registry.OURS, str(folder)])
    registry.reload()
    try:
        (stage,) = map(registry.local, registry.select(["axpy"]))  # no other process knows of this reference
        result = harness.verify(stage, open_device("emulator"), examples=15, seed=0)
        assert result.verdict is Verdict.PASS, result.failure
    finally:
        monkeypatch.undo()
        registry.reload()
        del reference.axpy


def test_the_readme_is_short_and_has_figures_only_in_what_a_script_writes_from_reports():
    page = script("tools/readme.py")
    readme = (DOCS.parent / "README.md").read_text()
    assert len(readme.split()) <= page.MOST_WORDS
    assert page.figures(readme) == []
    assert page.figures("it takes 3.5 minutes, 12 MB, 104.2 % and 2.1 times") != []
    for text in (page.why(), page.install()):
        assert text in readme, "python tools/refresh.py readme"
        assert not [share for share in re.findall(r"([\d.]+) %", text) if float(share) > 200]


def test_the_page_of_the_emulator_runs_and_prints_what_it_says(capsys, here):
    page = "emulator.md"
    names: dict[str, object] = {}
    first, *others = blocks(page, "python")
    exec(first, names)
    assert capsys.readouterr().out == blocks(page, "text")[0]
    for block in others:
        exec(block, names)
    assert "kernel.cu 4 " in capsys.readouterr().out

    Path("scale.cu").write_text(str(names["SOURCE"]))
    result = CliRunner().invoke(cli.main, shlex.split(blocks(page, "console")[0])[1:])
    assert result.exit_code == 0, result.output
    assert "scale: no hazard found" in result.output
    assert "y[0:4] = " in result.output


mutants_page = script("tools/mutants.py")


def test_reasons_written_down_after_a_run_are_on_the_page_of_mutants(tmp_path):
    for folder in ("vector_add", "include"):
        shutil.copytree(origin.SOURCES / folder, tmp_path / folder)
    made = [replace(m, root=tmp_path) for m in mutate.mutants(registry.select(["vector_add:naive"]))]
    passed = [mutate.Judged(m, mutate.Outcome.SURVIVED) for m in made]
    old, new = mutate.change_of(made[0])
    entry = f"old = {old[0]!r}\nnew = {new[0]!r}\nreason = 'it is the same'"
    mutate.explanations_of(made[0].path).parent.mkdir()
    mutate.explanations_of(made[0].path).write_text(f"[[mutant]]\n{entry}\n")
    found = {"specs": ["vector_add:naive"], "limit": None, "seed": 0, **mutate.Report(passed).as_dict()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutate, "mutants", lambda stages: made)
        now = mutants_page.with_reasons(found)
        assert (now["explained"], now["survived"]) == (1, len(made) - 1)
        assert now["mutants"][0]["reason"] == "it is the same"
        patch.setattr(mutate, "mutants", lambda stages: made[1:])
        with pytest.raises(ValueError, match="make them again"):
            mutants_page.with_reasons(found)


@pytest.mark.parametrize(("name", "killed"), [("mutation", 0.95), ("mutation-sample", 0.9)])
def test_the_committed_mutants_are_killed_or_explained(name, killed):
    found = compact.read(mutants_page.PAGE.with_name(f"{name}.json.gz"))
    assert found["compiled"] >= 150
    assert found["killed"] / found["compiled"] >= killed
    assert not found["survived"]


@pytest.fixture(scope="module")
def swiglu():
    """The kernel of docs/template.md as a function of two matrices, and its source."""
    page = "template.md"
    names: dict[str, Any] = {}
    exec(blocks(page, "python")[0], names)
    source = "\n".join(blocks(page, "cuda"))

    def solve(gate, up, source=source, include=origin.SOURCES / "include", **more):
        return names["swiglu"](source, gate, up, include, **more)

    return solve, source


def stored() -> dict[str, Any]:
    """The page's other kernel, which has the frame store, with the box of its output."""
    first, *_, last = blocks("template.md", "cuda")
    (struct,) = blocks("template.md", "cuda stored")
    return {"source": f"{first}{struct}{last}", "out_box": (128, 64)}


@pytest.mark.parametrize("kernel", [dict, stored])
@pytest.mark.parametrize("shape", [(128, 64), (1, 8), (300, 136), (127, 640)])
def test_the_kernels_of_the_page_on_frames_compute_what_numpy_does(swiglu, shape, kernel):
    solve, _ = swiglu
    rng = np.random.default_rng(0)
    gate, up = (rng.uniform(-4, 4, shape).astype(ml_dtypes.bfloat16) for _ in range(2))
    out, report = solve(gate, up, **kernel())
    assert report.ok, report
    x, y = gate.astype(np.float64), up.astype(np.float64)
    expected = y * x / (1 + np.exp(-x))
    # half a unit in the last place of bf16, and what the approximated exponential adds
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2.0**-8, atol=1e-6)


@pytest.mark.parametrize(
    ("left_out", "kind"),
    [("async_fence();", "proxy fence"), ("tma_store_commit();", "in flight")],
)
def test_the_emulator_names_what_is_left_out_of_it(swiglu, left_out, kind):
    solve, source = swiglu
    assert left_out in source
    ones = np.ones((300, 136), ml_dtypes.bfloat16)
    _, report = solve(ones, ones, source=source.replace(left_out, ""))
    assert kind in str(report)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("        async_fence();\n", "proxy fence"),
        ("        shared.out_barriers.acquire(to);\n", "in flight"),
        ("        shared.out_barriers.wait(from);\n", "uninitialised"),
        ("        tma_store_wait_read<1>();\n", "in flight"),
    ],
)
def test_the_emulator_names_what_is_left_out_of_the_stores_of_the_frame(swiglu, tmp_path, line, kind):
    solve, _ = swiglu
    include = Path(shutil.copytree(origin.SOURCES / "include", tmp_path / "include"))
    frame = include / "pipeline/load_compute_store.cuh"
    text = frame.read_text()
    assert text.count(line) == 1
    frame.write_text(text.replace(line, ""))
    ones = np.ones((700, 640), ml_dtypes.bfloat16)
    _, report = solve(ones, ones, **stored(), include=include)
    assert kind in str(report)


@pytest.mark.parametrize(
    ("kernel", "change", "header", "says"),
    [
        (dict, {"Roles<2>": "Roles<1>"}, "roles", "take 2 to 4"),
        (dict, {"Roles<2>": "Roles<5>"}, "roles", "take 2 to 4"),
        (dict, {"Roles<2>": "Roles<3, 40, 4>"}, "roles", "lower BLOCKS_PER_SM"),
        (dict, {"ROWS = 128": "ROWS = 512"}, "circular_buffer", "not even two stages fit .* make one of them smaller"),
        (dict, {"Element gate[": "Element more[8], gate["}, "load_compute_epilogue", "multiple of 1024 bytes: pad it"),
        (dict, {"Pipeline<PIPELINE_STAGES": "Pipeline<99"}, "load_compute_epilogue", "too many stages"),
        (stored, {"Element out[": "Element more[8], out["}, "load_compute_store", "multiple of 1024 bytes: pad it"),
        (stored, {"Element gate[": "Element more[8], gate["}, "load_compute_store", "multiple of 1024 bytes: pad it"),
        (stored, {"Pipeline<PIPELINE_STAGES": "Pipeline<99"}, "load_compute_store", "too many stages"),
    ],
)
def test_the_pieces_say_what_does_not_fit_and_which_line_asks_for_it(swiglu, kernel, change, header, says):
    solve, source = swiglu
    source = kernel().get("source", source)
    for before, after in change.items():
        assert before in source
        source = source.replace(before, after)
    ones = np.ones((8, 8), ml_dtypes.bfloat16)
    with pytest.raises(emulator.CompileError) as raised:
        solve(ones, ones, source=source)
    message = rf'{header}\.cuh\((\d+)\): error: static assertion failed with ".*{says}.*"\n(?s:.*?) at line (\d+) of'
    message += r" kernel\.cu"
    failed = re.search(message, str(raised.value))
    assert failed, raised.value
    text = (origin.SOURCES / "include" / "pipeline" / f"{header}.cuh").read_text()
    assert text.splitlines()[int(failed[1]) - 1].lstrip().startswith("static_assert(")
    assert re.search("roles|Pipeline|Frame|consumed", source.splitlines()[int(failed[2]) - 1])
