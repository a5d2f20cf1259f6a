"""What a command prints with `--json`: one document, whether it went well or not. docs/json.md describes it.

A command says what it has found with `result`, once; the document is printed when the command has ended, since its exit
code belongs to it. `Document` and `shapes` are what the schema in `workbench/schemas` is made of."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click

from ..model.errors import INTERRUPTED, WorkbenchError
from ..model.results import Verdict
from ..report.judged import Judged
from ..report.meanings import VERDICTS

SCHEMA_VERSION = 1
"""Grows when a field is removed or changes its meaning, but not when a field is added."""

INTERNAL_ERROR = "internal_error"
"""The code of an error that is not foreseen; stderr has its traceback."""

USAGE = {
    "bad_argument_usage": "An argument is used in a wrong way.",
    "bad_option_usage": "An option is used in a wrong way, for example without its value.",
    "bad_parameter": "The value of an option or argument is not valid.",
    "missing_parameter": "An option or argument is missing.",
    "no_such_option": "There is no option with this name.",
    "usage_error": "The command line is wrong in another way.",
}
"""Codes of wrong command lines."""


@dataclass
class ErrorSaid:
    """Why a command could not do what it was asked for.

    `code` is stable. `message` is the text on stderr. `remedy` is the part of the message that says what would be
    right, or empty. `file` and `line` name a source that is to blame; otherwise they are empty and 0."""

    code: str
    message: str
    remedy: str = ""
    file: str = ""
    line: int = 0


@dataclass
class Document:
    """A command prints this document with `--json`.

    `ok` says whether the exit code is 0; docs/json.md has a table of exit codes. `error` is null unless the command
    could not do its job, or was interrupted. A stage that fails is not an error: `verdicts` has what was judged.
    `result` has everything else; its shape depends on the command, and it is null if there was nothing yet."""

    command: str
    ok: bool
    exit_code: int
    error: ErrorSaid | None = None
    verdicts: list[Judged] = field(default_factory=list)
    result: Any = None
    schema_version: int = SCHEMA_VERSION


@dataclass
class _Collected:
    """What one command has said until now."""

    command: str
    document: Document
    stream: TextIO
    said: bool = False
    lines: bool = False


_now: _Collected | None = None


def result(value: Any, verdicts: Sequence[Judged] = ()) -> None:
    """What a command has to say, of types that JSON has, paths among them; which it does once."""
    if _now:
        _now.document.result, _now.document.verdicts = value, [*verdicts]
        _now.said = True


def judged(verdicts: Sequence[Judged]) -> None:
    """What was judged before an error ends the command."""
    if _now:
        _now.document.verdicts = [*verdicts]


def line(value: Any) -> None:
    """Print one of many objects, a line each. The document of such a command is its last line, where it fails."""
    if _now:
        _now.lines = True
    click.echo(json.dumps(value, default=os.fspath), file=_now.stream if _now else None)


def failed(error: BaseException, said: str = "") -> None:
    """This error ends the command; `said` is what is shown of it, by default its message."""
    if _now and _now.document.error is None:
        _now.document.error = described(error, said)


def described(error: BaseException, said: str = "") -> ErrorSaid:
    """An error as the document has it."""
    if isinstance(error, click.ClickException):
        message = said or error.format_message()
        context = getattr(error, "ctx", None)
        return ErrorSaid(code_of(error), message, _help(context) if context else "")
    message = said or str(error) or type(error).__name__
    remedy = message.partition("; ")[2] if isinstance(error, WorkbenchError) else ""
    return ErrorSaid(code_of(error), message, remedy, getattr(error, "file", ""), getattr(error, "line", 0))


def _help(context: click.Context) -> str:
    return f"workbench {context.info_name} --help" if context.parent else "workbench --help"


def code_of(error: BaseException) -> str:
    """What programs know an error by."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, WorkbenchError):
        return error.code
    if isinstance(error, click.ClickException):
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
        return code if code in USAGE else "usage_error"
    if isinstance(error, OSError):
        return "os_error"
    return "out_of_memory" if isinstance(error, MemoryError) else INTERNAL_ERROR


@contextlib.contextmanager
def printed(command: str, *, helps: bool = False) -> Iterator[None]:
    """Print the document of a command when it has ended, by SystemExit or an error that nobody has foreseen.

    Whatever else is printed goes to stderr, for example by a module of the project; but not the help that `helps`."""
    global _now
    _now = _Collected(command, Document(command, True, 0), sys.stdout)
    code = 0
    try:
        with contextlib.redirect_stdout(sys.stdout if helps else sys.stderr):
            yield
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        raise
    except BaseException as error:
        code = 1
        failed(error, f"{type(error).__name__}: {error}")
        raise
    finally:
        collected, _now = _now, None
        _print(collected, code)


def _print(collected: _Collected, code: int) -> None:
    document = collected.document
    document.ok, document.exit_code = code == 0, code
    of_lines = collected.lines and code in (0, INTERRUPTED)  # Ctrl-C is how `watch` ends
    if of_lines or (code == 0 and not collected.said):  # help
        return
    made = finite(dataclasses.asdict(document))
    with contextlib.suppress(BrokenPipeError):
        text = json.dumps(made, indent=None if collected.lines else 1, sort_keys=True, default=os.fspath)
        click.echo(text, file=collected.stream)


def unfinished(command: str, error: WorkbenchError, about: str) -> None:
    """Print the document of a command whose process has ended before it; `about` is what it was to judge."""
    judged = Judged(about, Verdict.OPERATION_ERROR, False, str(error), VERDICTS[Verdict.OPERATION_ERROR][1])
    document = Document(command, False, error.exit_code, described(error), [judged])
    _print(_Collected(command, document, sys.stdout, said=True), error.exit_code)


def finite(value: Any) -> Any:
    """The value with text for numbers that JSON does not have: `nan`, `inf`, `-inf`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
