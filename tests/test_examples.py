"""Every example operation passes its own tests, as whoever copies the project would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPERATIONS = Path(__file__).parent.parent / "examples" / "operations"


@pytest.mark.parametrize("name", sorted(p.parent.name for p in OPERATIONS.glob("*/__init__.py")))
def test_the_operation_passes_its_tests(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    done = subprocess.run(command, cwd=OPERATIONS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
