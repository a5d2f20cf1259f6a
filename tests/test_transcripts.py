"""The commands of the README and of docs/, followed as a reader would: what they say they print is printed.

Other pages have such tests of their own: `test_tutorial.py` follows the tutorial (three stages, a baseline) and the CI
page, `test_triton_intake.py` the page on Triton, and `test_docs.py` the page on the emulator.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from command_line import invoke, one_message
from fakes import NumpyDevice
from refresh import script
from test_project import _forgotten
from test_tutorial import commands, settled

from workbench.catalogue import registry
from workbench.cli import main as cli
from workbench.cli import sessions

__all__ = ["_forgotten"]

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BENCH = r"(?:^(?:\$ )?|`)(workbench bench\b(?! \[OPTIONS)[^`\n#]*)"
BENCHES = [page for page in PAGES if re.search(BENCH, page.read_text(), re.MULTILINE)]


@pytest.fixture
def project(here: Path) -> Path:
    """A folder in which the files of the README were written, and nothing else."""
    script("tools/readme.py").write_project(README.read_text(), here)
    return here


def _called(line: str) -> list[str]:
    """The words of a line of a shell behind `workbench`, without comments and what reads its output."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    words = words[: words.index("|")] if "|" in words else words
    return words[1:] if words[:1] == ["workbench"] else []


def _block(language: str, starting: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(starting))
    return str(found)


def test_the_first_failure_is_printed_and_the_barrier_that_it_asks_for_lets_the_kernel_pass(project: Path) -> None:
    ((command, printed),) = commands(_block("console", "$ workbench verify"))
    failed = invoke(*_called(command))
    assert failed.exit_code == 1, failed.output
    lines = [settled(line) for line in failed.stdout.splitlines()]
    for line in printed:
        assert settled(line) in lines, f"{line!r} is not printed:\n{failed.output}"

    source = project / "kernels/row_sum.cu"
    found = re.search(r"__syncthreads\(\) is missing between (\S+):(\d+) and \S+:(\d+)", failed.stdout)
    assert found and Path(found[1]) == source.relative_to(project)
    text = source.read_text().splitlines(keepends=True)
    text.insert(int(found[2]), "    __syncthreads();\n")
    source.write_text("".join(text))
    passed = invoke(*_called(command), "--examples", "10")
    assert passed.exit_code == 0, passed.output
    for what in ("profile", "inspect"):  # of an operation for which no timed problem was declared
        result = invoke(what, "row_sum")
        assert result.exit_code == 0 and "row_sum:naive" in result.stdout, result.output


def test_without_the_readmes_project_file_the_message_says_that_it_is_missing(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    one_message(
        invoke("verify", "row_sum", "--device", "emulator"), 2, "'row_sum'", "pyproject.toml", "which is not here"
    )
    assert "pyproject.toml" not in invoke("verify", "gemm:niave").stderr  # a slip of the pen


def test_of_a_project_file_that_is_wrong_or_names_no_operation_nobody_says_that_it_is_not_here(
    project: Path,
) -> None:
    file = project / "pyproject.toml"
    for text, said in (
        (file.read_text().replace("kernels =", "kernel ="), "did you mean kernels?"),
        ('[tool.workbench]\nkernels = ["nothing"]\n', "declares no operation in nothing"),
    ):
        (project / "nothing.py").touch()
        file.write_text(text)
        registry.reload()
        wrong = invoke("verify", "row_sum", "--device", "emulator")
        one_message(wrong, 2, "'row_sum'", said)
        assert "not here" not in wrong.stderr


def test_the_readmes_operation_has_a_next_stage(project: Path) -> None:
    lines = _block("console", "workbench new ").splitlines()
    (begun,) = (words for line in lines if (words := _called(line))[:1] == ["new"])
    made = invoke(*begun)
    assert made.exit_code == 0, made.output
    assert (project / "kernels/row_sum_warp.cu").is_file()
    assert {words[1].partition(":")[0] for words in map(_called, lines)} == {"row_sum"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_closed_before_the_next_begins(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)
    assert all(language for language in fences[::2]) and not any(fences[1::2]), fences
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_a_page_is_one_with_options_that_it_has(page: Path) -> None:
    for block in re.findall(r"```(?:console|sh)\n(.*?)```", page.read_text(), re.DOTALL):
        for words in map(_called, block.replace("\\\n", " ").splitlines()):
            if not words:
                continue
            name, *arguments = words
            assert name in cli.main.commands, f"{page.name}: workbench {name}"
            try:
                cli.main.commands[name].make_context(name, arguments)
            except click.UsageError as error:
                pytest.fail(f"{page.name}: {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("page", BENCHES, ids=lambda page: page.name)
def test_every_bench_on_a_page_says_without_a_gpu_what_to_do(
    page: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "open_device", lambda name: NumpyDevice())
    # what pages call by the name of an operation that they begin is here the one of the README
    ours = {"rowmax": "row_sum", "probabilities": "row_sum", "STAGE": "row_sum"}
    for words in map(_called, re.findall(BENCH, page.read_text(), re.MULTILINE)):
        words = [ours.get(word, word) for word in words if word != "..."]
        if words[-1] == "--problem":
            words.append("rows=64,columns=64")
        one_message(invoke(*words), 1, "bench needs a GPU", "workbench doctor says why", "workbench verify")


def test_every_extra_that_a_page_installs_is_one_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        for extras in re.findall(r"(?:\.|kernel-workbench)\[([\w,]+)\]", page.read_text()):
            assert set(extras.split(",")) <= set(settings["optional-dependencies"]), f"{page.name}: {extras}"


@pytest.mark.gpu
def test_a_bench_of_the_readmes_kernel_is_timed_beside_pytorch(project: Path) -> None:
    pytest.importorskip("torch", reason="of the extra baselines")
    source = project / "kernels/row_sum.cu"
    source.write_text(source.read_text().replace("    for (int half", "    __syncthreads();\n    for (int half"))
    with (project / "kernels/__init__.py").open("a") as file:
        file.write('\n\n@row_sum.baseline("PyTorch", requires="torch", vendor=True)\n')
        file.write("def pytorch(p, x):\n    return x.sum(dim=1)\n")
    result = invoke("bench", "row_sum", "--problem", "rows=4096,columns=4096", "--examples", "10")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"\d+\.\d %", _timed(result.stdout)["of vendor"]), result.output


def _timed(printed: str) -> dict[str, str]:
    """The first row of the table of times, by its headers."""
    rows = [re.split(r" {2,}", line.strip()) for line in printed.splitlines()]
    at = next(number for number, row in enumerate(rows) if "of vendor" in row)
    return dict(zip(rows[at], next(row for row in rows[at + 1 :] if len(row) == len(rows[at])), strict=True))
