"""Every example operation passes its own tests, as whoever copies the project would run them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import document, invoke
from test_project import _forgotten

__all__ = ["_forgotten"]

AGENT = Path(__file__).parent.parent / "examples" / "agent"
OPERATIONS = Path(__file__).parent.parent / "examples" / "operations"


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(p.parent.name for p in OPERATIONS.glob("*/__init__.py")))
def test_the_operation_passes_its_tests(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    done = subprocess.run(command, cwd=OPERATIONS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_agent_mends_the_kernel_by_its_verdicts_and_leaves_the_example_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in AGENT.rglob("*") if path.suffix in (".py", ".cu", ".toml")}
    spec = importlib.util.spec_from_file_location("agent_example", AGENT / "agent.py")
    assert spec and spec.loader
    agent = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agent)

    def run(command: list[str], cwd: Path, **_: Any) -> SimpleNamespace:  # here, and not in a process of its own
        assert command[:3] == [sys.executable, "-m", "workbench"]
        monkeypatch.chdir(cwd)
        done = invoke(*command[3:])
        document(done)
        return SimpleNamespace(stdout=done.stdout)

    monkeypatch.setattr(agent, "subprocess", SimpleNamespace(run=run))
    assert agent.main() == 0
    *attempts, last = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(",")[0] for line in attempts] == [
        *("compile_error", "race", "out_of_bounds", "mismatch", "pass")
    ]
    assert attempts[0].endswith("reward 0, row_sum/1_naive.cu:8") and attempts[-1].endswith("reward 1")
    assert "half > 0" in Path(last.removeprefix("right: ")).read_text()
    assert all(path.read_bytes() == content for path, content in before.items())
