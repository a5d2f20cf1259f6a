"""`tools/refresh.py`: a page that is stale is named with what writes it again, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import refresh
from synthetic import timed_run

from workbench.records import store


def _made(root: Path) -> dict[str, bytes]:
    return {"a.md": (root / "a.json").read_bytes().upper(), "charts/a.txt": b"chart"}


def test_what_is_stale_is_named_with_its_command_and_then_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [
        refresh.Generated("a", _made, ("charts/*.txt",)),
        refresh.Generated("b", lambda root: {"b.md": b"b"}),
    ]
    (tmp_path / "a.json").write_text("one")
    (tmp_path / "b.md").write_text("b")
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts/old.txt").touch()

    def check(*names: str) -> tuple[int, list[str]]:
        code = refresh.main(["--check", *names], pages, tmp_path)
        return code, capsys.readouterr().out.splitlines()

    again = "write it again: python tools/refresh.py a"
    assert check() == (
        1,
        [
            f"a.md is missing; {again}",
            f"charts/a.txt is missing; {again}",
            f"charts/old.txt is made of nothing any more; {again}",
        ],
    )
    assert not (tmp_path / "a.md").exists()
    assert check("b") == (0, [])
    assert refresh.main(["a"], pages, tmp_path) == 0
    assert check() == (0, [])
    assert not (tmp_path / "charts/old.txt").exists()
    (tmp_path / "a.json").write_text("two")
    assert check("a") == (1, [f"a.md is not what it is made of; {again}"])


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        refresh.main(["--check", "nonsense"])
    assert "there is no nonsense; there are api, benchmarks," in capsys.readouterr().err


def test_a_picture_of_another_matplotlib_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = refresh.Generated("a", lambda root: {"a.png": b"today", "a.md": b"today"})
    (tmp_path / "a.png").write_text("of then")
    (tmp_path / "a.md").write_text("of then")
    for alike, found in ((True, ["a.md", "a.png"]), (False, ["a.md"])):
        monkeypatch.setattr(refresh, "_draws_alike", lambda alike=alike: alike)
        assert [trouble.split()[0] for trouble in refresh.stale(page, tmp_path)] == found


def test_charts_are_taken_as_they_are_where_they_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.Folder(tmp_path / "reports/nvidia-h200").save(timed_run("vector_add"))
    chart = tmp_path / "reports/nvidia-h200/vector_add-ladder.png"
    chart.write_bytes(b"as it is")
    monkeypatch.setattr(refresh, "CHARTS", [False])
    made = refresh.reports(tmp_path)
    assert made["reports/nvidia-h200/vector_add-ladder.png"] == b"as it is"
    assert made["reports/nvidia-h200/vector_add-spread.png"] == b"" and made["reports/nvidia-h200/vector_add.md"]
