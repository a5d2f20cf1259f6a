"""What CI counts of the Python code: the limits hold, and what is beyond them is found."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci/house.py"


@pytest.fixture
def found(tmp_path: Path) -> Any:
    """What is beyond the limits in a tree of these files."""
    report = runpy.run_path(str(SCRIPT))["report"]

    def found(*named: tuple[str, str], **files: str) -> list[str]:
        for name, text in (*named, *files.items()):
            path = (tmp_path / "workbench" / name).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            (path.parent / "__init__.py").touch()
        return report(tmp_path)

    return found


@pytest.mark.parametrize(
    "back",
    [
        "from . import a",
        "from .a import thing",
        "import workbench.a",
        "def late():\n    from .a import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from workbench import a",
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(found: Any, back: str) -> None:
    assert found(a="from .b import other", b="import os") == []
    assert found(a="from .b import other", b=back) == ["circle of imports: workbench.a, workbench.b"]


def test_a_circle_through_what_a_package_passes_on_is_found(found: Any) -> None:
    circle = "circle of imports: workbench.room, workbench.room.one"
    package = ("room/__init__", "from .one import thing")
    assert found(package, ("room/one", "from . import thing")) == [circle]
    assert found(package, ("room/one", "from . import two"), ("room/two", "")) == []


def test_long_functions_and_files_are_found_and_the_options_of_a_command_do_not_count(found: Any) -> None:
    body = "    x = 1\n" * 60
    (line,) = found(a=f"def short():\n{body[10:]}\ndef long():\n{body}")
    assert line == "workbench/a.py:62: long has 61 lines, 60 at most"
    options = "".join(f"    option_{i},\n" for i in range(30))
    assert found(a=f"@click.command()\ndef command(\n{options}):\n{body}") == []
    assert len(found(a=f"@other\ndef command(\n{options}):\n{body}")) == 1
    assert found(a="x = 1\n" * 600) == []
    assert found(a="x = 1\n" * 601) == ["workbench/a.py has 601 lines, 600 at most"]


def test_lines_beyond_a_budget_are_found_and_lines_within_it_are_not(tmp_path: Path) -> None:
    module = runpy.run_path(str(SCRIPT))
    files = {"workbench/a.py": 7, "workbench/__pycache__/b.py": 5, "tests/c.py": 3, "workbench/d.cpp": 2, "e.py": 9}
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * lines)
    spent = {name: (count, lines) for name, count, lines, _ in module["spent"](tmp_path)}
    assert spent == {
        "Python of workbench/": (1, 7),
        "Python of tests/": (1, 3),
        "other Python": (0, 0),
        "C++": (1, 2),
        "CUDA": (0, 0),
    }
    budgets = module["report"].__globals__["BUDGETS"]
    assert not any("at most" in line for line in module["report"](tmp_path))
    budgets["Python of workbench/"] = (("workbench",), (".py",), 6)
    assert module["report"](tmp_path) == ["Python of workbench/ has 7 lines, 6 at most: delete some, or raise BUDGETS"]
