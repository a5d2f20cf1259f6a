"""The project around the working directory: whose kernels they are, where their sources lie, where reports go."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.errors import WrongUsage

FILE = "pyproject.toml"

KEYS = {"kernels": "a list of modules", "cuda": "a folder", "reports": "a folder"}
"""What `[tool.workbench]` may hold."""


MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class BadProject(WrongUsage, ValueError):
    """The table `[tool.workbench]`, or a module that it names, cannot be used; the message says what is wrong."""


@dataclass(frozen=True)
class Project:
    """`[tool.workbench]` of one `pyproject.toml`.

    `kernels` are importable modules, from `root` or `root/src`; a package stands for all modules in it, and none means
    that the project has no kernels of its own. `cuda` is the folder of the CUDA sources, None where each module has
    them beside itself.
    """

    root: Path
    name: str
    kernels: tuple[str, ...]
    cuda: Path | None
    reports: Path


def find(start: Path | None = None) -> Project | None:
    """The nearest project from `start` (default: the working directory) upwards that has a `[tool.workbench]`.

    Raises BadProject.
    """
    start = start or Path.cwd()
    for folder in (start, *start.parents):
        path = folder / FILE
        if path.is_file() and (project := _read(path)):
            return project
    return None


def reports(start: Path | None = None) -> Path:
    """Where reports go by default: in the project, else in the working directory. A relative path where it can be."""
    try:
        project = find(start)
    except BadProject:
        project = None
    if project is None:
        return Path("reports")
    here = Path.cwd()
    return project.reports.relative_to(here) if project.reports.is_relative_to(here) else project.reports


def _read(path: Path) -> Project | None:
    text = path.read_text(errors="replace")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if "tool.workbench" not in text:
            return None
        raise BadProject(f"{path} is not TOML: {error}") from None
    tools = data.get("tool", {})
    if not isinstance(tools, dict) or "workbench" not in tools:
        return None
    section, root = tools["workbench"], path.parent
    _check(path, section)
    return Project(
        root,
        str(data.get("project", {}).get("name", root.name)),
        tuple(section["kernels"]),
        root / section["cuda"] if "cuda" in section else None,
        root / section.get("reports", "reports"),
    )


def _check(path: Path, section: Any) -> None:
    where = f"[tool.workbench] of {path}"
    if not isinstance(section, dict):
        raise BadProject(f"{where} is {section!r}; it has to be a table")
    for key, value in section.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(KEYS)}"
            raise BadProject(f"{where} has {key!r}; {hint}")
        right = isinstance(value, str) if key != "kernels" else _is_names(value)
        if not right:
            raise BadProject(f"{where}: {key} is {value!r}; it has to be {KEYS[key]}")
    if "kernels" not in section:
        raise BadProject(f'{where} lacks the modules of the kernels, for example: kernels = ["kernels"]')
    if "cuda" in section and not (path.parent / section["cuda"]).is_dir():
        raise BadProject(f"{where}: there is no folder {path.parent / section['cuda']}, which cuda names")


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and MODULE.fullmatch(v) for v in value)
