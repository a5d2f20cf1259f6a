"""`tools/site.py`: every page is staged with what it links to, and a link that leads nowhere is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import refresh

site = refresh.script("tools/site.py")


def staged(tmp_path: Path, page: str, **files: str) -> tuple[Path, list[str]]:
    """`page` as docs/page.md of a repository, staged; what was said of its links."""
    root, folder = tmp_path / "repository", tmp_path / "pages"
    for name, text in {"docs/page.md": page, "tools/theme/site.css": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return folder, site.stage(root, folder)


def test_a_source_and_a_folder_that_are_linked_become_pages(tmp_path: Path) -> None:
    page = "[a source](../src/a.cu) and [all](../src) and `[no link](x.md)`\n\n```\n[nor this](y.md)\n```\n"
    folder, troubles = staged(tmp_path, page, **{"src/a.cu": "int a;", "src/deep/b.py": "b = 1"})
    assert troubles == []
    made = (folder / "docs/page.md").read_text()
    assert "[a source](../src/a.cu.md) and [all](../src/index.md) and `[no link](x.md)`" in made
    assert "[nor this](y.md)" in made
    assert "int a;" in (folder / "src/a.cu.md").read_text()
    assert "[deep/b.py](deep/b.py.md)" in (folder / "src/index.md").read_text()
    assert "b = 1" in (folder / "src/deep/b.py.md").read_text()


@pytest.mark.parametrize(
    ("link", "trouble"),
    [
        ("gone.md", "gone.md leads nowhere"),
        ("../../outside.md", "../../outside.md leads nowhere"),
        ("#gone", "#gone has no such heading"),
        ("other.md#gone", "other.md#gone has no such heading"),
        ("other.md#two-words", None),
        ("other.md#two-words-1", None),
        ("other.md#two-words-2", "other.md#two-words-2 has no such heading"),
        ("other.md#a_name-and-text", None),
        ("https://example.org/#gone", None),
    ],
)
def test_a_link_that_leads_nowhere_is_named_with_its_page(tmp_path: Path, link: str, trouble: str | None) -> None:
    other = "# Two words\n\n## Two: *words*\n\n### `a_name` and [text](page.md)\n\n```\n# gone\n```\n"
    _, troubles = staged(tmp_path, f"# Page\n\n[text]({link})\n", **{"docs/other.md": other})
    assert troubles == ([f"docs/page.md: {trouble}"] if trouble else [])


def test_what_a_built_page_loads_from_elsewhere_and_links_that_it_has_not_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<link rel=stylesheet href=b.css><script src=https://cdn.example.org/x.js></script>"
        "<h1 id=top>A</h1><a href=b.html#there>1</a><a href=b.html#gone>2</a><a href=c.html>3</a>"
        "<a href=https://example.org>4</a><a href=#top>5</a><img src=d.png>"
    )
    (tmp_path / "b.html").write_text("<p id=there>")
    (tmp_path / "b.css").touch()
    assert sorted(site.check(tmp_path)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html leads nowhere",
        "a.html: d.png leads nowhere",
        "a.html: loads https://cdn.example.org/x.js",
    ]


def test_no_page_has_an_escaped_bar_in_code() -> None:
    """GitHub drops the backslash in a table, and the site shows it: `<code>` with `&#124;` is the same on both."""
    for page in (refresh.ROOT / "docs").rglob("*.md"):
        assert not re.search(r"^\|.*`[^`|]*\\\|[^`]*`", page.read_text(), re.MULTILINE), page
