"""The command `workbench`, also as `python -m workbench`."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path


def main() -> None:
    # of a stream that was closed before the start, Python makes None: what is printed there is for nobody
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    from .cli.supervised import supervised

    sys.exit(supervised(_main))


def _main() -> int:
    """The exit code of the command."""
    try:
        _command()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


def _command() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:  # which packages ask for as they are imported
        sys.exit("Error: the working directory does not exist any more; change to another one")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of ASCII has no lines for tables
    # imported here: every worker process imports anew what the script of the command imports
    try:
        from .cli.main import main as command_line
        from .model import errors
    except KeyboardInterrupt:  # imports take half a second
        sys.stderr.write("Error: interrupted\n")
        sys.exit(130)
    except ImportError as error:
        if error.name != "workbench.emulator._engine":
            raise
        sys.exit(f"error: {error}")
    errors.plain()
    command_line()


if __name__ == "__main__":
    main()
