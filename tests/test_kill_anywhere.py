"""A handful of kills at fixed moments; `kill_anywhere.py` does as many as one likes at random ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kill_anywhere
import pytest


@pytest.mark.parametrize(
    ("name", "how", "seconds"),
    [
        *(("run", "kill", 2.0), ("mutate", "Ctrl-C", 2.5), ("watch", "kill", 1.5), ("verify", "worker", 0.3)),
        *(("capture", "Ctrl-C", 1.0), ("emulate", "kill", 0.3), ("run", "Ctrl-C", 1.5)),
    ],
)
def test_a_kill_leaves_no_process_and_no_damage(name: str, how: str, seconds: float, tmp_path: Path) -> None:
    assert kill_anywhere.kill(name, seconds, tmp_path, how).harm == ()


def test_a_process_that_is_left_and_a_damaged_database_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_anywhere, "ORPHAN_SECONDS", 0.0)
    before = {*kill_anywhere.children()}
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert any(f"process {left.pid} is left" in said for said in kill_anywhere.orphans(before))
    left.stdin.close()
    for name in (*kill_anywhere.FOLDERS, "work/reports", "work/reports/h200", "work/reports/h200/results"):
        (tmp_path / name).mkdir()
    (tmp_path / "versions" / "versions.sqlite3").write_bytes(b"SQLite format 3\0" + b"\1" * 4096)
    (tmp_path / "work" / "reports" / "h200" / "results" / "gemm.json").write_text("[1, 2")
    (tmp_path / "home" / "a").write_text("")
    assert len(kill_anywhere.damage(tmp_path)) == 2 and len(kill_anywhere.outside(tmp_path)) == 1
