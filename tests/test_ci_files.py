"""What others call from their CI: the workflow, the hooks of pre-commit, and the page that shows them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import document, invoke
from test_project import DECLARATION, HEADER, SOURCE, _forgotten
from test_tutorial import Shell, shell

from workbench.cli import main as cli

yaml = pytest.importorskip("yaml", reason="of the extra dev")
clientlib = pytest.importorskip("pre_commit.clientlib", reason="of the extra dev")

ROOT = Path(__file__).parents[1]
__all__ = ["_forgotten", "shell"]

WORKFLOW = ROOT / ".github" / "workflows" / "kernels.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
PAGE = (ROOT / "docs" / "ci.md").read_text()
(SCALE,) = re.findall(r'^SOURCE = """\n?(.*?)"""', (ROOT / "docs/emulator.md").read_text(), re.MULTILINE | re.DOTALL)


def parsed(command: str) -> click.Context:
    """A command line as the command line takes it; raises click's errors where it does not."""
    program, name, *arguments = shlex.split(command)
    assert program == "workbench"
    return cli.main.commands[name].make_context(name, arguments)


def workbench_lines(text: str) -> list[str]:
    """The lines of a shell script that call the workbench."""
    lines = (line.strip().partition(" || ")[0] for line in text.splitlines())
    return [line for line in lines if line.startswith("workbench ")]


def workflow() -> dict[Any, Any]:
    return yaml.safe_load(WORKFLOW.read_text())


def blocks(page: str) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def test_every_input_of_the_workflow_is_declared_and_used_and_none_is_pasted_into_a_script() -> None:
    made, text = workflow(), WORKFLOW.read_text()
    assert set(re.findall(r"\binputs\.([\w-]+)", text)) == set(made[True]["workflow_call"]["inputs"])
    for step in made["jobs"]["kernels"]["steps"]:
        script = step.get("run", "")
        assert "${{" not in script  # what a caller gives would be code there
        subprocess.run(["bash", "-n", "-c", script], check=True)
        known = {*step.get("env", {}), "RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"}
        assert set(re.findall(r"\$\{?([A-Z_]+)", script)) <= known
    assert made["permissions"]["security-events"] == "write"


@pytest.mark.long
def test_the_default_command_of_the_workflow_verifies_the_project_and_what_it_finds_is_collected(
    project: Path, shell: Shell
) -> None:
    steps = {step.get("name"): step["run"] for step in workflow()["jobs"]["kernels"]["steps"] if "run" in step}
    (default,) = re.findall(r"^\| `command` \| `([^`]*)`", PAGE, re.MULTILINE)
    shell.folder = project
    temporary = project.parent / "runner"
    shell.environment |= {"COMMAND": default, "RUNNER_TEMP": str(temporary)}
    shell.environment |= {name: str(project.parent / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    code, printed = shell.run(steps["Run"])
    assert code == 0 and "2 of 2 stages passed" in printed, printed
    source = project / "device/mirror/1_naive.cu"
    source.write_text(source.read_text().replace("i < n", "i <= n"))
    code, printed = shell.run(steps["Run"])
    assert code == 1 and "1 of 2 stages passed, 1 failed" in printed, printed
    assert shell.run(steps["Collect"])[0] == 0
    assert Path(shell.environment["GITHUB_OUTPUT"]).read_text() == "sarif=1\n"
    (found,) = json.loads((temporary / "sarif/workbench.sarif").read_text())["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("device/mirror/1_naive.cu", 5)


def test_every_command_on_the_page_is_one() -> None:
    lines = [line for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for line in workbench_lines(block)]
    assert len(lines) == 5
    for line in lines:
        parsed(line)


def test_the_hooks_are_a_manifest_whose_entries_are_commands() -> None:
    hooks = {hook["id"]: hook for hook in clientlib.load_manifest(str(HOOKS))}
    assert set(hooks) == {"workbench-verify", "workbench-emulate"}
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for hook in hooks.values():
        assert hook["entry"].split()[0] in scripts["scripts"]
        (extra,) = re.findall(r"^\.\[(\w+)\]$", hook["additional_dependencies"][0])
        assert extra in scripts["optional-dependencies"]
        re.compile(hook["files"])
    parsed(f"{hooks['workbench-verify']['entry']} kernels/negation/1_naive.cu")
    (config,) = [block for block in blocks(PAGE) if "repos" in block]
    (repository,) = config["repos"]
    for used in repository["hooks"]:
        parsed(shlex.join([*shlex.split(hooks[used["id"]]["entry"]), *used.get("args", [])]))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with two operations of a stage each, one of which includes a header."""
    folder = tmp_path / "project"
    (folder / "device/include").mkdir(parents=True)
    (folder / "device/include/negated.cuh").write_text(HEADER)
    for name in ("negation", "mirror"):
        (folder / f"{name}s.py").write_text(DECLARATION.replace("negation", name))
        (folder / "device" / name).mkdir()
        text = SOURCE if name == "negation" else SOURCE.replace("negated(x[i])", "-x[i]").partition("\n")[2]
        (folder / "device" / name / "1_naive.cu").write_text(text)
    lines = ("[project]", 'name = "signs"', "[tool.workbench]", 'kernels = ["negations", "mirrors"]', 'cuda = "device"')
    (folder / "pyproject.toml").write_text("\n".join(lines))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.long
def test_files_choose_the_stages_that_are_made_of_them(project: Path) -> None:
    arguments = ("verify", "--files", "--device", "emulator", "--examples", "1", "--json")

    def verified(*files: str) -> list[str]:
        return [verdict["spec"] for verdict in document(invoke(*arguments, *files))["verdicts"]]

    assert verified("device/mirror/1_naive.cu") == ["mirror:naive"]
    assert verified("device/include/negated.cuh") == ["negation:naive"]
    assert verified("README.md", "--sarif", "none.sarif") == [] and Path("none.sarif").is_file()


@pytest.mark.long
def test_a_source_in_the_folder_of_its_operation_is_that_of_one_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(ROOT / "examples/softmax", tmp_path / "softmax"))
    source = Path("kernels/probabilities/2_warp.cu")
    arguments = ("verify", "--files", "--device", "emulator", "--examples", "1", "--json")
    assert [v["spec"] for v in document(invoke(*arguments, str(source)))["verdicts"]] == ["probabilities:warp"]
    source.unlink()
    specs = [v["spec"] for v in document(invoke(*arguments, str(source)))["verdicts"]]
    assert specs == ["probabilities:naive", "probabilities:warp", "probabilities:online"]


@pytest.mark.long
def test_the_hook_verifies_what_a_commit_changes_and_stops_a_commit_that_is_wrong(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # the configuration of the page, with the hooks of this checkout in place of those that it would download
    known = {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text())}
    (config,) = [block for block in blocks(PAGE) if "repos" in block]
    (repository,) = config["repos"]
    local = [{**known[hook["id"]], **hook, "language": "system", "verbose": True} for hook in repository["hooks"]]
    for hook in local:
        hook["entry"] = hook["entry"].replace("workbench", f"{sys.executable} -m workbench", 1)
        del hook["additional_dependencies"]  # what is installed here is what is tested
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": local}]}))
    (project / "scale.cu").write_text(SCALE.replace("i <= n", "i < n"))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    subprocess.run("git init -q && git add -A", shell=True, check=True)

    def run(*files: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pre_commit", "run", "--files", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, printed = run("device/mirror/1_naive.cu", "pyproject.toml", "scale.cu")
    assert code == 0 and "mirror:naive" in printed and "negation:naive" not in printed, printed
    assert "scale: no hazard found" in printed
    source = project / "device/mirror/1_naive.cu"
    source.write_text(source.read_text().replace("i < n", "i <= n"))
    code, printed = run("device/mirror/1_naive.cu")
    assert code == 1 and "1_naive.cu:5: out of bounds" in printed, printed
    (project / "scale.cu").write_text(SCALE)  # as the page on the emulator has it, with a fault
    code, printed = run("scale.cu")
    assert code == 1 and "scale.cu:3: out of bounds" in printed, printed
    code, printed = run("pyproject.toml")
    assert code == 0 and "no files to check" in printed
