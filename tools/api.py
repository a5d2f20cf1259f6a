"""Writes docs/api.md from the docstrings of all that is public: python tools/api.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import griffe2md

PUBLIC = ("workbench", "workbench.ops", "workbench.emulator", "workbench.triton")
"""What their `__all__` lists is public."""

PAGE = Path(__file__).parent.parent / "docs/api.md"

HEAD = """# The public interface

<!-- made by tools/api.py from the docstrings; change those -->

"""

CONFIG: Any = {
    **griffe2md.default_config,
    "docstring_style": None,
    "filters": ["!^_"],
    "heading_level": 2,
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


def page() -> str:
    """The page as it should be."""
    return HEAD + "\n\n".join(griffe2md.render_package_docs(name, CONFIG).strip() for name in PUBLIC) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
