"""docs/tutorial.md, followed word by word in an empty folder, gives examples/softmax, which docs/ci.md verifies.

WORKBENCH_INSTALLED names the `bin` folder of an environment into which the wheel was installed; without it the commands
are those of this checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import missing_gpu

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "softmax"


@dataclass
class Block:
    """A fenced block of a page: its language, its text, and the file that the line before it names."""

    language: str
    text: str
    file: str | None


@dataclass
class Shell:
    """Runs commands in a folder with the workbench on the path."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"(?:`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(language, text, file or None) for file, language, text in found]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def settled(line: str) -> str:
    """A line without what differs: how long it took, the width of a table, and the last digits of the worst error, as
    another version of Hypothesis draws other problems."""
    settled = re.sub(r"\b0\.\d{3}\b", "E", re.sub(r"\d+\.\d+ ?s?$", "T", line.strip()))
    return re.sub(r"\s+", " ", settled)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    folder = tmp_path / "softmax"
    folder.mkdir()
    chosen = os.environ.get("WORKBENCH_INSTALLED")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "WORKBENCH_INSTALLED"))}
    if chosen:
        kept.pop("PYTHONPATH", None)
        return Shell(folder, {**kept, "PATH": f"{chosen}:{kept['PATH']}"})
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, arguments in (("workbench", "-m workbench"), ("pytest", "-m pytest"), ("python", "")):
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    # who has installed the workbench so that it can be edited sees a warning that the tutorial does not show
    editable = "-W 'ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning'"
    options = editable if _plugin_installed() else "-p workbench.pytest_plugin"
    return Shell(
        folder,
        {**kept, "PATH": f"{bin_folder}:{kept['PATH']}", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": options},
    )


def _plugin_installed() -> bool:
    from importlib import metadata

    return any(e.value == "workbench.pytest_plugin" for e in metadata.entry_points(group="pytest11"))


def test_it_is_the_installed_workbench(shell: Shell) -> None:
    code, where = shell.run('python -c "import workbench; print(workbench.__file__)"')
    assert code == 0, where
    installed = os.environ.get("WORKBENCH_INSTALLED")
    assert Path(where).is_relative_to(Path(installed).parent if installed else ROOT)


def test_following_the_tutorial_gives_the_example(shell: Shell) -> None:
    for block in blocks(DOCS / "tutorial.md"):
        if block.language == "cuda":
            assert block.file is not None
            (shell.folder / block.file).write_text(block.text)
        elif block.language == "toml":
            assert (shell.folder / "pyproject.toml").read_text() == block.text
        elif block.language == "diff":
            done = subprocess.run(["git", "apply", "-"], cwd=shell.folder, input=block.text, text=True, check=False)
            assert done.returncode == 0, block.text
        elif block.language == "console":
            for command, printed in commands(block.text):
                _follow(shell, command, printed)
    written = {path.relative_to(shell.folder) for path in _sources(shell.folder)}
    assert written == {path.relative_to(EXAMPLE) for path in _sources(EXAMPLE)}
    for path in written:
        assert (shell.folder / path).read_text() == (EXAMPLE / path).read_text(), path


def test_the_workflow_verifies_and_puts_the_report_into_the_summary(shell: Shell) -> None:
    shutil.copytree(EXAMPLE, shell.folder, dirs_exist_ok=True)
    (workflow,) = (b.text for b in blocks(DOCS / "ci.md") if b.language == "yaml" and "--workbench-examples" in b.text)
    tests, report = _steps(workflow)[1:]
    summary = shell.folder / "summary.md"
    shell.environment["GITHUB_STEP_SUMMARY"] = str(summary)
    code, output = shell.run(tests.replace("--workbench-examples 50", "--workbench-examples 5"))
    assert code == 0, output
    assert 'tests="4"' in (shell.folder / "junit.xml").read_text()
    report = report.replace("--device emulator", "--device emulator --examples 5")
    code, output = shell.run(report)
    assert code == 0, output
    assert "| `warp`" in summary.read_text()
    source = shell.folder / "kernels/probabilities/2_warp.cu"
    source.write_text(source.read_text().replace("r >= rows", "r > rows"))
    code, output = shell.run(report)
    assert code == 1, output
    assert "kernels/probabilities/2_warp.cu:22: out of bounds" in summary.read_text()


def _steps(workflow: str) -> list[str]:
    """The commands of a workflow, step by step, as a runner's shell gets them."""
    found = []
    for folded, line in re.findall(r"^ {8}run: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", workflow, re.MULTILINE):
        found.append(re.sub(r"^ {10}", "", folded, flags=re.MULTILINE) if folded else line)
    assert len(found) == workflow.count(" run: ")
    return found


def _follow(shell: Shell, command: str, printed: list[str]) -> None:
    code, output = shell.run(command)
    wrong = any(word in line for line in printed for word in ("probabilities:naive: ", "mismatch"))
    if command.startswith("workbench bench") and missing_gpu():
        (said,) = (block.text for block in blocks(DOCS / "tutorial.md") if block.language == "text")
        assert (code, output) == (1, said)
        return
    assert code == (1 if wrong else 0), output
    lines = [settled(line) for line in output.splitlines()]
    for line in printed:
        assert line == "..." or settled(line) in lines, f"{command} does not print {line!r}:\n{output}"


def _sources(folder: Path) -> list[Path]:
    made = ("reports", "__pycache__", ".pytest_cache", ".hypothesis")
    return [p for p in folder.rglob("*") if p.is_file() and not set(p.relative_to(folder).parts) & set(made)]
