"""Builds the site from the repository's pages, strictly, and checks every link of it: python tools/site.py [FOLDER]

Pages keep their paths: `build/pages` is a copy of README.md, docs/, reports/ and what they link to. What is no page
becomes one: a source is shown with its text, a folder as a list of its files. properdocs.yml has the navigation. The
site is in `build/site`, or FOLDER, and can be read from disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build/pages"
SITE = ROOT / "build/site"
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "reports/**/*.md", "examples/README.md")
COPIED = {".png", ".svg", ".json", ".gz", ".css"}
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".toml": "toml"}
LISTED = {*LANGUAGES, ".md"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*?)^\1\2[`~]*$\n?", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`)(?:.|\n(?!\n))+?(?<!`)\1(?!`)")


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """The text of a page in pieces: whether each is prose, where links are, and not code."""
    place = 0
    for fence in FENCE.finditer(text):
        yield from _inline(text[place : fence.start()])
        yield fence[0], False
        place = fence.end()
    yield from _inline(text[place:])


def _inline(text: str) -> Iterator[tuple[str, bool]]:
    """As `parts`; code within the text of a link belongs to the link."""
    spans = [m.span() for m in CODE.finditer(text)]
    links = [m.span() for m in LINK.finditer(text)]
    place = 0
    for start, end in spans:
        if any(a < start and end < b for a, b in links) or start < place:
            continue
        yield text[place:start], True
        yield text[start:end], False
        place = end
    yield text[place:], True


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        shown = re.sub(r"\\(.)", r"\1", LINK.sub(lambda m: m[1][1:-1], heading))
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = next(n for n in range(len(found) + 1) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{count}" if count else slug)
    return found


@dataclass
class Staging:
    """Copies pages into `folder`, and whatever they link to; `troubles` are links that lead nowhere."""

    root: Path
    folder: Path
    troubles: list[str] = field(default_factory=list)
    done: set[Path] = field(default_factory=set)

    def page(self, path: Path) -> None:
        """Copy a page of Markdown; links in it lead to what becomes of their targets."""
        if path in self.done:
            return
        self.done.add(path)
        text = "".join(self._linked(path, part) if prose else _plain(part) for part, prose in parts(path.read_text()))
        self._write(path.relative_to(self.root), text)

    def _linked(self, page: Path, text: str) -> str:
        return LINK.sub(lambda m: f"{m[1]}({self._target(page, m[2])})", text)

    def _target(self, page: Path, link: str) -> str:
        parsed = urlsplit(link)
        if parsed.scheme:
            return link
        target = Path(os.path.normpath(page.parent / unquote(parsed.path))) if parsed.path else page
        if not target.exists() or not target.is_relative_to(self.root):
            self.troubles.append(f"{page.relative_to(self.root)}: {link} leads nowhere")
            return link
        if parsed.fragment and target.suffix == ".md" and parsed.fragment not in anchors(target.read_text()):
            self.troubles.append(f"{page.relative_to(self.root)}: {link} has no such heading")
        if target == page:
            return link
        made = os.path.relpath(self._staged(target), page.parent)
        return made + (f"#{parsed.fragment}" if parsed.fragment else "")

    def _staged(self, target: Path) -> Path:
        """Bring a file or a folder to the site; what stands for it there, by its path in the repository."""
        if target.is_dir():
            if (target / "README.md").is_file():
                return self._staged(target / "README.md")
            self._folder(target)
            return target / "index.md"
        if target.suffix == ".md":
            self.page(target)
            return target
        if target.suffix in COPIED:
            copy = self.folder / target.relative_to(self.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
            return target
        shown = target.with_name(f"{target.name}.md")
        if target not in self.done:
            self.done.add(target)
            name, fence = target.relative_to(self.root), "~" * 8
            code = f"{fence}{{.{LANGUAGES.get(target.suffix, 'text')} linenums=1}}\n{target.read_text()}\n{fence}"
            self._write(shown.relative_to(self.root), f"# {target.name}\n\n`{name}`\n\n{code}\n")
        return shown

    def _folder(self, folder: Path) -> None:
        if folder in self.done:
            return
        self.done.add(folder)
        files = [p for p in sorted(folder.rglob("*")) if p.suffix in LISTED and "__pycache__" not in p.parts]
        lines = [f"- [{p.relative_to(folder)}]({os.path.relpath(self._staged(p), folder)})" for p in files]
        self._write(
            folder.relative_to(self.root) / "index.md", f"# {folder.relative_to(self.root)}/\n\n" + "\n".join(lines)
        )

    def _write(self, path: Path, text: str) -> None:
        made = self.folder / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)


def _plain(code: str) -> str:
    """A fence with one word behind it, which is all that the site's Markdown knows."""
    return re.sub(r"\A( *`{3,}\w+) [^\n]*", r"\1", code)


def stage(root: Path = ROOT, folder: Path = PAGES) -> list[str]:
    """Copy all pages; returns what is wrong with their links."""
    shutil.rmtree(folder, ignore_errors=True)
    staging = Staging(root, folder)
    for pattern in FIRST:
        for path in sorted(root.glob(pattern)):
            staging.page(path)
    shutil.copytree(root / "tools/theme", folder / "theme", dirs_exist_ok=True)
    return staging.troubles


class _Page(HTMLParser):
    """The anchors of a built page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found.get("href", ""))
        elif "src" in found:
            self.loads.append(found["src"])


def check(site: Path) -> list[str]:
    """What is wrong with a built site: links and anchors that lead nowhere, and what would be loaded from elsewhere."""
    pages = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    troubles = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute: it is shown at any path
        name = path.relative_to(site)
        troubles += [f"{name}: loads {url}" for url in page.loads if urlsplit(url).netloc]
        for link in [*page.links, *page.loads]:
            parsed = urlsplit(link)
            if parsed.scheme or parsed.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parsed.path))) if parsed.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                troubles.append(f"{name}: {link} leads nowhere")
            elif parsed.fragment and target in pages and unquote(parsed.fragment) not in pages[target].ids | {"__top"}:
                troubles.append(f"{name}: {link} has no such anchor")
    return troubles


def main(site: Path = SITE) -> int:
    """Build and check; returns the exit code."""
    troubles = stage()
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--quiet", "--clean", "--site-dir", str(site)]
    code = subprocess.run([*command, "--config-file", str(ROOT / "properdocs.yml")], cwd=ROOT).returncode
    if code == 0:
        troubles += check(site)
    print("\n".join(troubles) or f"{site.relative_to(ROOT) if site.is_relative_to(ROOT) else site}: every link holds")
    return int(bool(code or troubles))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
