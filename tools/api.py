"""Writes docs/api*.md from the docstrings of all that is public, a page for each package: python tools/api.py"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe2md

ROOT = Path(__file__).parent.parent

PUBLIC = {
    "workbench": "docs/api.md",
    "workbench.ops": "docs/api-ops.md",
    "workbench.emulator": "docs/api-emulator.md",
    "workbench.triton": "docs/api-triton.md",
}
"""What their `__all__` lists is public, and the page of each."""

FIRST = ("verify", "bench", "results", "simple_operation", "Outcome")
"""What most people look for stands before the rest, which is in alphabetical order."""

HEAD = """# The public interface: `{}`

<!-- made by tools/api.py from the docstrings; change those -->

Pages: {}.

"""

CONFIG: Any = {
    **griffe2md.default_config,
    "docstring_style": None,
    "filters": ["!^_"],
    "heading_level": 1,
    "inherited_members": False,
    "line_length": 100,
    "load_external_modules": False,
    "members_order": "alphabetical",
    "show_bases": False,
    "show_if_no_docstring": False,
    "show_object_full_path": False,
    "show_signature_annotations": True,
    "show_submodules": False,
    "summary": False,
}


def page(package: str) -> str:
    """The page of a package as it should be."""
    pages = ", ".join(f"[`{name}`]({Path(path).name})" for name, path in PUBLIC.items() if name != package)
    lead, *sections = re.split(r"^(?=## )", griffe2md.render_package_docs(package, CONFIG), flags=re.MULTILINE)
    _, _, lead = lead.strip().partition("\n")  # the name of the package is in the title
    order = {f"## `{package}.{name}`": place for place, name in enumerate(FIRST)}
    sections.sort(key=lambda section: order.get(section.partition("\n")[0], len(order)))
    return HEAD.format(package, pages) + "\n\n".join(map(str.strip, (lead, *sections))) + "\n"


def pages() -> dict[str, str]:
    """All pages by their path from the top of the repository."""
    return {path: page(package) for package, path in PUBLIC.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        (ROOT / path).write_text(text)
