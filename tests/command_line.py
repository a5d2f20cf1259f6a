"""The command line, called in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from workbench.cli import main as cli


def invoke(*arguments: object) -> Result:
    """What a command line does and prints; an exception that is no message is raised."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
