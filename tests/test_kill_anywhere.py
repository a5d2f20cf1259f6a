"""A handful of kills at fixed moments; `kill_anywhere.py` does as many as one likes at random ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kill_anywhere
import pytest


@pytest.mark.parametrize(("name", "seconds"), [("run", 2.0), ("mutate", 2.5), ("watch", 1.5), ("verify", 0.3)])
def test_a_kill_leaves_no_process_and_no_damage(name: str, seconds: float, tmp_path: Path) -> None:
    assert kill_anywhere.kill(name, seconds, tmp_path).harm == ()


def test_a_process_that_is_left_and_a_damaged_database_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_anywhere, "ORPHAN_SECONDS", 0.0)
    left = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, kill_anywhere.MARK: "x"}
    )
    assert any(f"process {left.pid} is left" in said for said in kill_anywhere.orphans("x"))
    left.wait()
    assert left.stdin is not None
    left.stdin.close()
    (tmp_path / "versions.sqlite3").write_bytes(b"SQLite format 3\0" + b"\1" * 4096)
    (tmp_path / "reports" / "h200" / "results").mkdir(parents=True)
    (tmp_path / "reports" / "h200" / "results" / "gemm.json").write_text("[1, 2")
    assert len(kill_anywhere.damage(tmp_path)) == 2
