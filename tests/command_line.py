"""The command line, called in this process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from json_schema import check_document

from workbench.cli import main as cli

Workbench = Callable[..., Result]


def invoke(*arguments: object) -> Result:
    """What a command line does and prints; an exception that is no message is raised."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def one_message(result: Result, code: int, *parts: str) -> None:
    """The command ended with this code and a single message, without traceback, that contains all `parts`."""
    assert result.exit_code == code, result.output
    assert result.stderr.count("Error: ") == 1, result.stderr
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def git(*arguments: str, folder: Path | str = ".") -> str:
    """What git prints in a folder; commits have an author."""
    options = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *options, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def interrupt(*arguments: Any, **options: Any) -> None:
    """In the place of something that takes long: the user has enough of it."""
    raise KeyboardInterrupt


def document(result: Result) -> dict[str, Any]:
    """What a command printed with --json: one object, which the schema describes to the last field."""
    found: dict[str, Any] = json.loads(result.stdout)
    check_document(found)
    assert found["exit_code"] == result.exit_code and found["ok"] is (result.exit_code == 0)
    return found


def said(result: Result) -> Any:
    """What the command itself had to say."""
    return document(result)["result"]
