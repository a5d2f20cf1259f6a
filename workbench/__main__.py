"""`python -m workbench`."""

from .cli import main

main()
