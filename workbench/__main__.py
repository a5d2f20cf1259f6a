"""The command `workbench`, also as `python -m workbench`."""


def main() -> None:
    # imported here: every worker process imports anew what the script of the command imports
    from . import notices
    from .cli import main as command_line

    notices.plain()
    command_line()


if __name__ == "__main__":
    main()
