"""Writes every page that is generated, or says which are not what they are made of, and what writes them again.

    python tools/refresh.py [NAME ...]           # of these names, or all
    python tools/refresh.py --check [NAME ...]   # exit code 1 where one is stale
    python tools/refresh.py --list

Pages whose figures are measured as they are written, like those of `benchmarks/watch.py`, have no record and are not
among them, nor are those that compare a record with what the emulator does now.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

ROOT = Path(__file__).parent.parent
CHARTS = [True]
"""Whether charts of reports are drawn: most of the work on these pages."""

DRAWN_WITH = "3.11.2"
"""Version of matplotlib that drew the pictures; another may draw them otherwise, of the same data."""

Files = dict[str, bytes]
"""What files have to hold, by their path from the top of the repository."""


@dataclass(frozen=True)
class Generated:
    """Pages that are made together. `complete` are patterns: what matches one and is not made has to go."""

    name: str
    make: Callable[[Path], Files]
    complete: tuple[str, ...] = ()


def script(path: str) -> ModuleType:
    """A script of this repository as a module, which finds those beside it. `path` is from the top."""
    file = ROOT / path
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    name = file.stem if file.parent.name != "tools" else f"{file.stem}_page"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def readme(root: Path) -> Files:
    """What it quotes is made anew; its own words are as they are."""
    text = (root / "README.md").read_text()
    made = script("tools/readme.py")
    return {"README.md": made.refreshed(text).encode(), made.PICTURE: made.picture().encode()}


def api(root: Path) -> Files:
    """The public interface, from docstrings."""
    return {path: text.encode() for path, text in script("tools/api.py").pages().items()}


def commands(root: Path) -> Files:
    """Every command, from its help text."""
    return {"docs/commands.md": script("tools/commands.py").page().encode()}


def operations(root: Path) -> Files:
    """A page for each operation, from its declaration and the head comments of its sources."""
    return {path: text.encode() for path, text in script("tools/operations.py").pages().items()}


def gallery(root: Path) -> Files:
    """Pictures that no report has: maps of planted faults, and a timeline."""
    return dict(script("tools/gallery.py").pictures())


def ladder(root: Path) -> Files:
    """How far every stage is from its parent."""
    return {"docs/ladder.md": script("tools/ladder.py").page().encode()}


def diffs(root: Path) -> Files:
    """The lesson of GEMM, from its sources and the report."""
    return {"docs/gemm-in-seven-diffs.md": script("tools/diffs.py").page().encode()}


def verdicts(root: Path) -> Files:
    """Every verdict with a message: faults are planted and verified."""
    return {"docs/verdicts.md": script("tools/verdicts.py").page().encode()}


def documents(root: Path) -> Files:
    """What commands print with --json: the schema, and the page of codes."""
    made = script("tools/documents.py")
    schema = json.dumps(made.schema(), indent=1) + "\n"
    return {"workbench/schemas/document.json": schema.encode(), "docs/json.md": made.page().encode()}


def reports(root: Path) -> Files:
    """The pages and charts of `workbench report`, those of experiments among them."""
    from workbench.experiments import page as experiments
    from workbench.report import pages, plots

    with tempfile.TemporaryDirectory() as folder:

        def kept(_: object, path: Path) -> Path:
            there = root / path.relative_to(folder)
            path.write_bytes(there.read_bytes() if there.is_file() else b"")
            return path

        copied = Path(folder) / "reports"
        shutil.copytree(root / "reports", copied, ignore=shutil.ignore_patterns("*.png"))
        with patch.object(plots, "save", plots.save if CHARTS[0] else kept):
            written = [*experiments.write(copied), *pages.write(copied)]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}


def benchmarks(root: Path) -> Files:
    """Pages of benchmarks, each of the record beside it."""
    recorded, found = script("benchmarks/recorded.py"), {}
    for name in (
        "call_time",
        "conv2d_layers",
        "found",
        "gemm_limits",
        "gemm_suite",
        "gemm_types",
        "model_blocks",
        "peers",
        "random_problems",
        "row_heat_map",
        "sensitivity",
        "template",
        "tuned",
        "verified",
    ):
        made = script(f"benchmarks/{name}.py")
        record = root / made.RECORD.relative_to(ROOT)
        page = recorded.page_beside(record).relative_to(root)
        found[page.as_posix()] = made.page(recorded.read(record)).encode()
    fitted = script("benchmarks/cost_model.py")
    found["workbench/records/cost.json"] = fitted.constants_text().encode()
    found["reports/cost-model.md"] = fitted.page(recorded.read(fitted.RANDOM)).encode()
    return {**found, "reports/repeated.md": script("benchmarks/repeated.py").page().encode()}


def faults(root: Path) -> Files:
    """What planted faults were taken for, by the emulator and by the harness."""
    from workbench.model import compact

    found = {}
    for name in ("fault_report", "harness_report"):
        made = script(f"tests/faults/{name}.py")
        found[f"reports/{made.PAGE}"] = made.page(compact.read(root / "reports" / made.RECORD)).encode()
    return found


def public_bugs(root: Path) -> Files:
    """Faults that people have reported, from the pairs of the tests."""
    return {"docs/public-bugs.md": script("tools/public_bugs.py").page().encode()}


def mutants(root: Path) -> Files:
    """Which mutants verification noticed."""
    from workbench.model import compact

    made = script("tools/mutants.py")
    names = ("mutation", "mutation-sample")
    records = {name: root / f"reports/{name}.json.gz" for name in names}
    return {f"reports/{n}.md": made.page(compact.read(path), path.name).encode() for n, path in records.items()}


PAGES = (
    Generated("api", api),
    Generated("benchmarks", benchmarks),
    Generated("commands", commands),
    Generated("diffs", diffs),
    Generated("documents", documents),
    Generated("faults", faults),
    Generated("gallery", gallery, ("docs/gallery/*",)),
    Generated("ladder", ladder),
    Generated("mutants", mutants),
    Generated("public_bugs", public_bugs),
    Generated("operations", operations, ("docs/operations/*.md",)),
    Generated("verdicts", verdicts),
    Generated("reports", reports, ("reports/*/*.png", "reports/experiments/*/*.png")),
    Generated("readme", readme),  # quotes the reports
)


def stale(page: Generated, root: Path) -> Iterator[str]:
    """What differs from what is there, a phrase each."""
    made = page.make(root)
    for path, content in sorted(made.items()):
        if path.endswith(".png") and not _draws_alike():
            continue
        target = root / path
        if not target.is_file():
            yield f"{path} is missing"
        elif target.read_bytes() != content:
            yield f"{path} is not what it is made of"
    yield from (f"{path} is made of nothing any more" for path in _left(page, made, root))


def write(page: Generated, root: Path) -> None:
    """Bring what is there up to date."""
    made = page.make(root)
    for path, content in made.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    for path in _left(page, made, root):
        (root / path).unlink()


def _left(page: Generated, made: Files, root: Path) -> list[str]:
    there = {path.relative_to(root).as_posix() for pattern in page.complete for path in root.glob(pattern)}
    return sorted(there - set(made))


def _draws_alike() -> bool:
    import matplotlib

    return str(matplotlib.__version__) == DRAWN_WITH


def main(arguments: Sequence[str] | None = None, pages: Sequence[Generated] = PAGES, root: Path = ROOT) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(page.name for page in pages))
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is stale")
    parser.add_argument("--no-charts", action="store_true", help="with --check: take charts of reports as they are")
    parser.add_argument("--list", action="store_true", help="what there is, and nothing else")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - {page.name for page in pages}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(page.name for page in pages)}")
    if chosen.list:
        print("\n".join(page.name for page in pages))
        return 0
    CHARTS[0] = not chosen.check or (_draws_alike() and not chosen.no_charts)
    code = 0
    for page in pages:
        if chosen.names and page.name not in chosen.names:
            continue
        if not chosen.check:
            write(page, root)
            continue
        for trouble in stale(page, root):
            code = 1
            print(f"{trouble}; write it again: python tools/refresh.py {page.name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
