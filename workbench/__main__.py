"""The command `workbench`, also as `python -m workbench`."""

import sys


def main() -> None:
    # imported here: every worker process imports anew what the script of the command imports
    from .model import notices

    try:
        from .cli.main import main as command_line
    except ImportError as error:
        if error.name != "workbench.emulator._engine":
            raise
        sys.exit(f"error: {error}")
    notices.plain()
    command_line()


if __name__ == "__main__":
    main()
