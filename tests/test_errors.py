"""Errors that are foreseen have one base class, and the command line shows the message of each and no traceback."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench
from workbench.cli import main as cli
from workbench.cli import setup
from workbench.devices import Fault
from workbench.model.errors import WorkbenchError, WrongUsage
from workbench.model.results import Verdict

UNFORESEEN = {
    "workbench.judge.draw.Failed",  # tells Hypothesis that a problem failed
    "workbench.judge.draw.Enough",  # ends a search of Hypothesis
    "workbench.sandbox.integrity.Tampered",  # becomes a verdict
    "workbench.catalogue.registry.ImportTooLong",  # becomes a trouble of the project
    "workbench.devices.worker.Late",  # what a device in a process of its own makes a Fault of
    "workbench.devices.worker.Ended",
    "workbench.devices.worker.Broken",
    "workbench.run.budget._Late",  # ends a run whose time is up
    "workbench.measure.referee.Unprepared",  # becomes the reason why an answer is not judged
    "workbench.toolchain.compiling._Killed",  # becomes an error of the compiler, after another try
    "workbench.sandbox.child.Silent",  # what the host of stages makes a BadStage of
    "workbench.sandbox.child.Closed",
    "workbench.sandbox.plain.OffSchema",
    "workbench.ops.torch_arrays.Elsewhere",  # sends a call to an operator of PyTorch
    "workbench.toolchain._nvrtc_process._Failed",  # ends as an answer to the process that asked
}
"""Exceptions that are caught where they are expected, or are mistakes of the workbench's own."""


def exceptions() -> Iterator[type[BaseException]]:
    """Every class of an exception that a module of the package defines, but those of the emulator."""
    package = Path(workbench.__file__).parent  # of an editable install `__path__` has more than the package
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(("workbench", *(part for part in parts if part != "__init__")))
        if parts[0] in ("emulator", "templates", "__main__") or "triton" in name:
            continue
        for each in vars(importlib.import_module(name)).values():
            if isinstance(each, type) and issubclass(each, BaseException) and each.__module__ == name:
                yield each


def subclasses(base: type[WorkbenchError]) -> Iterator[type[WorkbenchError]]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_exception_that_is_foreseen_has_the_one_base_class() -> None:
    found = {f"{e.__module__}.{e.__qualname__}" for e in exceptions() if not issubclass(e, WorkbenchError | Warning)}
    assert found == UNFORESEEN


def test_each_becomes_one_message_and_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({*exceptions()}) > 20  # all are imported
    for kind in subclasses(WorkbenchError):
        error = kind(Verdict.TIMEOUT, "what to do") if issubclass(kind, Fault) else kind("what to do")

        def fail(_: object, error: WorkbenchError = error) -> None:
            raise error

        monkeypatch.setattr(setup.registry, "stages", lambda fail=fail: fail(None))
        result = CliRunner().invoke(cli.main, ["list"])
        assert (result.exit_code, result.stderr) == (kind.exit_code, "Error: what to do\n"), kind
        assert kind.exit_code == (2 if issubclass(kind, WrongUsage) else 130 if kind.__name__ == "Interrupted" else 1)
