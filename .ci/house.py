"""How the code is built, counted: lines, rooms, import circles, long functions and files. Fails beyond the limits.

An import counts wherever it stands: at the top of a module, in a function, or under TYPE_CHECKING. Which room may
import from which is a contract of import-linter, in pyproject.toml.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "workbench"

FOLDERS = (PACKAGE, "tests", "benchmarks", "tools", "examples", ".ci")
"""Whose functions and files are measured."""

FUNCTION, FILE = 60, 600
"""Most lines of a function and of a file. Docstrings do not count, nor does the argument list of a command of click."""


BUDGETS = {
    "Python of workbench/": ((PACKAGE,), (".py",), 72_489),
    "Python of tests/": (("tests",), (".py",), 63_942),
    "other Python": (("benchmarks", "tools", "examples", ".ci"), (".py",), 10_813),
    "C++": ((PACKAGE, "tests"), (".cpp", ".hpp"), 28_008),
    "CUDA": ((PACKAGE, "cuda_src", "tests", "examples"), (".cu", ".cuh"), 29_167),
}
"""Folders, languages and the lines that they may have, 1 to 2 % more than they had when this was last lowered. Whoever
needs more deletes elsewhere, or says in the commit that raises the budget what the lines are worth."""


def sources(root: Path, folders: Sequence[str], suffixes: Sequence[str] = (".py",)) -> Iterator[Path]:
    """The files of a language in these folders."""
    for folder in folders:
        found = (path for path in (root / folder).rglob("*") if path.suffix in suffixes)
        yield from sorted(path for path in found if "__pycache__" not in path.parts and path.is_file())


def spent(root: Path) -> Iterator[tuple[str, int, int, int]]:
    """Of each budget the name, the files, their lines, and the lines that they may have."""
    for name, (folders, suffixes, most) in BUDGETS.items():
        lines = [len(path.read_text().splitlines()) for path in sources(root, folders, suffixes)]
        yield name, len(lines), sum(lines), most


def modules(root: Path, package: str) -> dict[str, Path]:
    """The modules of a package by name, also those written in C++; what `workbench new` writes is none."""
    found = {}
    for path in (*sources(root, [package]), *sorted((root / package).rglob("*.pyi"))):
        parts = path.relative_to(root).with_suffix("").parts
        if "templates" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules among the known ones that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name if path.stem == "__init__" else name.rpartition(".")[0]
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        for target in targets:
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and target != name:
                found.add(target)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def long_functions(path: Path) -> Iterator[tuple[int, str, int]]:
    """Line, name and length of each function that is too long."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            command = any("click." in ast.unparse(d) or ".command(" in ast.unparse(d) for d in node.decorator_list)
            first = node.body[0].lineno if command else node.lineno
            doc = node.body[0] if ast.get_docstring(node) is not None else None
            described = (doc.end_lineno or 0) - doc.lineno + 1 if doc else 0
            length = (node.end_lineno or first) - first + 1 - described
            if length > FUNCTION:
                yield node.lineno, node.name, length


def report(root: Path) -> list[str]:
    """Print the counts; what is beyond the limits."""
    known = modules(root, PACKAGE)
    graph = {name: imports(name, path, known) for name, path in known.items()}
    rooms = sorted(path.name for path in (root / PACKAGE).iterdir() if (path / "__init__.py").is_file())
    files = {path.relative_to(root): len(path.read_text().splitlines()) for path in sources(root, FOLDERS)}
    circular = [f"circle of imports: {', '.join(circle)}" for circle in circles(graph)]
    functions = [
        f"{path}:{line}: {name} has {length} lines, {FUNCTION} at most"
        for path in files
        for line, name, length in long_functions(root / path)
    ]
    long_files = [f"{path} has {lines} lines, {FILE} at most" for path, lines in files.items() if lines > FILE]
    over = []
    for name, count, lines, most in spent(root):
        print(f"{lines:,} lines of {name} in {count} files, {most:,} at most")
        over += [f"{name} has {lines:,} lines, {most:,} at most: delete some, or raise BUDGETS"] if lines > most else []
    print(f"{len(rooms)} rooms ({', '.join(rooms)}), {len(known)} modules")
    print(f"{len(circular)} circles of imports")
    print(f"{len(functions)} functions of more than {FUNCTION} lines, in {len(files)} files")
    print(f"{len(long_files)} files of more than {FILE} lines")
    return over + circular + functions + long_files


if __name__ == "__main__":
    beyond = report(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    print(*beyond, sep="\n", end="\n" if beyond else "")
    sys.exit(bool(beyond))
