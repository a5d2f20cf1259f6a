"""What git says of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

SECONDS = 30.0
"""How long a question may take."""


def ask(root: Path, *arguments: str) -> str | None:
    """What `git <arguments>` prints in a folder; None where it fails, or where there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: what it printed is no text
        return None
    return done.stdout if done.returncode == 0 else None
