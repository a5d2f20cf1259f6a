"""A page of a report whose record has changed says so, until it is written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import emulated_run, environment

from workbench.cli.sessions import marking_stale
from workbench.records.store import Folder
from workbench.report import freshness, html_page, pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a device with the pages of two operations, in Markdown and HTML."""
    for operation in ("vector_add", "matvec"):
        Folder(tmp_path / "emulator").save(emulated_run(operation))
    pages.write(tmp_path)
    html_page.write(tmp_path)
    return tmp_path / "emulator"


def test_pages_that_were_just_written_are_not_stale(folder: Path) -> None:
    assert {path.name for path in freshness.pages(folder)} == {"vector_add.md", "matvec.md", "report.html"}
    assert freshness.stale(folder) == {} and freshness.mark(folder) == []


def test_a_page_whose_record_has_changed_is_marked_and_written_again_without_the_mark(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_text() for path in freshness.pages(folder)}
    run = emulated_run("matvec")
    run.environment = environment(date="2026-02-02T03:04:05Z")
    saved = Folder(folder)
    with pytest.raises(KeyboardInterrupt), marking_stale(saved):  # also where a command is interrupted
        saved.save(run)
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert "matvec.md" in said and "report.html" in said and "vector_add.md" not in said and "workbench report" in said
    page, html = ((folder / name).read_text() for name in ("matvec.md", "report.html"))
    mark = "results/matvec.json has changed since this page was written. Write it again: "
    assert page.split("\n\n")[1] == f"> **Stale.** {mark}`workbench report`"
    assert f'<p class="stale">Stale. {mark}workbench report --html</p>' in html
    assert (folder / "vector_add.md").read_text() == before[folder / "vector_add.md"]

    assert freshness.mark(folder) and (folder / "matvec.md").read_text() == page  # once
    pages.write(folder.parent)
    html_page.write(folder.parent)
    assert freshness.stale(folder) == {}
    assert "Stale." not in (folder / "matvec.md").read_text() + (folder / "report.html").read_text()


def test_a_page_without_its_record_or_of_before_is_stale(folder: Path) -> None:
    (folder / "results/matvec.json").unlink()
    page = folder / "vector_add.md"
    digest = freshness.digest(folder / "results/vector_add.json")
    page.write_text(page.read_text().replace(f" (SHA-256 `{digest}`)", ""))
    found = {path.name: reasons for path, reasons in freshness.stale(folder).items()}
    gone = ["results/matvec.json is gone"]
    assert found == {
        "matvec.md": gone,
        "report.html": gone,
        "vector_add.md": ["it does not say which records it is made of"],
    }


def test_the_index_says_which_pages_of_other_devices_are_stale(folder: Path) -> None:
    other = folder.parent / "other"
    Folder(other).save(emulated_run("vector_add"))
    (folder / "results/matvec.json").write_text((folder / "results/matvec.json").read_text() + "\n")
    pages.write(folder.parent, only="other")
    index = (folder.parent / "README.md").read_text()
    assert "[matvec](emulator/matvec.md) (stale)" in index
    assert index.count("(stale)") == 1


def test_what_a_page_says_of_its_records_is_data(folder: Path) -> None:
    page = folder / "report.html"
    kept = json.loads(freshness.unescape(freshness.HTML.search(page.read_text())[1]))
    assert kept == freshness.digests(folder, ["results/vector_add.json", "results/matvec.json"])
