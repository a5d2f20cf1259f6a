"""`workbench new`: the files of a new operation, or of the next stage of one. Nothing that is there is overwritten."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import keyword
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..checks.mutate import code_of
from ..model.errors import WrongUsage, hint, text_of
from ..model.operation import Operation
from ..model.origin import BUILT_IN
from ..model.stage import Stage

TEMPLATES = Path(__file__).parents[1] / "templates"

KINDS = ("reduction", "elementwise", "matmul")
"""What an operation may be like."""

SHORT = "short"
"""The folder of templates in short form: a module, a source and a test for each kind."""

DERIVED = "derived"
"""The template of an operation that is made from another one, which is gemm in it."""

PACKAGE = "kernels"
"""The package, and folder, of the operations of a project that has said nothing else."""

PROJECT = f"""[tool.workbench]
kernels = ["{PACKAGE}"]
cuda = "{PACKAGE}"
"""

FILL_IN = "FILL IN"

AS_IT_IS = "surrogateescape"
"""How bytes of a source that are not UTF-8 are read and written again."""


class CannotMake(WrongUsage, ValueError):
    """The files cannot be written as requested; the message says why, and what would be right."""


@dataclass
class Made:
    """Files that were written and added to, relative to the project, and what is to be done next."""

    root: Path
    written: list[Path] = field(default_factory=list)
    added: list[Path] = field(default_factory=list)
    next: list[str] = field(default_factory=list)


def operation(name: str, *, like: str = KINDS[0], base: str | None = None, full: bool = False) -> Made:
    """Write a module with a declaration in short form, a first kernel that passes, and a test.

    `like` is one of KINDS. With `full` they are a folder with a class of problems, a NumPy reference, an empty kernel
    and a test that fails for it. `base` instead is an operation whose problems, inputs and first launch are used. Where
    there is no pyproject.toml yet, one is written as well. Raises CannotMake, BadProject."""
    check_name(name, "an operation")
    if name in registry.operations():
        first = next((s.name for s in registry.operations()[name].stages), None)
        next_stage = f"; its next stage: workbench new {name}:STAGE --from {first}" if first else ""
        whose = "" if name in registry.loaded().own else f", of {registry.operations()[name].origin}"
        raise CannotMake(f"there is an operation {name!r} already{whose or next_stage}")
    if not base and not full:
        return _short(name, like)
    made, folder, cuda = write_operation(name, _from(base, name) if base else _like(like, name))
    reference = shown(folder / "reference.py", made.root)
    made.next += [
        f"say what it computes, in {reference}, and what its arrays are, in the __init__.py beside it",
        f"write the kernel, in {shown(cuda / '1_naive.cu', made.root)}",
        f"workbench verify {name}",
    ]
    return made


def _short(name: str, like: str) -> Made:
    files = {
        f"{name}{suffix}": _renamed((TEMPLATES / SHORT / f"{like}{suffix}").read_text(), like, name)
        for suffix in (".py", ".cu")
    }
    test = _renamed((TEMPLATES / like / f"test_{like}.py").read_text(), like, name)
    defined = f'from workbench import operations\n\ndefinition = operations()["{name}"].problem.declaration.function'
    test = test.replace("from . import reference", defined).replace(f"reference.{name}(", "definition(")
    files[f"test_{name}.py"] = test
    made, folder, cuda = write_operation(name, files, short=True)
    module, source = shown(folder / f"{name}.py", made.root), shown(cuda / f"{name}.cu", made.root)
    made.next += [
        f"workbench verify {name}, which passes as it is",
        f"say what it computes, in {module}; write the kernel, in {source}; verify it again",
    ]
    return made


def write_operation(name: str, files: Mapping[str, str], short: bool = False) -> tuple[Made, Path, Path]:
    """Write the files of a new operation, each by its name, into the project around the working directory, or into one
    that begins here; `stages.py` names sources as `name/1_naive.cu`. `short`: they are in no folder of their own.

    Returns what was written, with what is to be done for the operation to be found, its folder, and that of its
    sources. Raises CannotMake, BadProject."""
    found = registry.find()
    made = Made(found.root if found else Path.cwd())
    home, package = _package(made.root, found)
    folder, cuda = home, found.cuda if found and found.cuda else home
    if not short:
        folder, cuda = folder / name, cuda / name
    targets = {(cuda if file.endswith(".cu") else folder) / file: text for file, text in files.items()}
    if found and found.cuda is None and not short:  # sources are beside the module
        targets[folder / "stages.py"] = files["stages.py"].replace(f'source="{name}/', 'source="')
    if package and not (home / "__init__.py").exists():
        targets[home / "__init__.py"] = '"""One folder an operation."""\n'
    if not found and (made.root / registry.FILE).exists():
        lines = PROJECT.replace("\n", "\n    ").rstrip()
        made.next.append(f"add to {registry.FILE}, so that it is found:\n    {lines}")
    elif not found:
        targets[made.root / registry.FILE] = PROJECT
    elif not package:
        made.next.append(f"add {name!r} to kernels in {registry.FILE}, so that it is found")
    _write(targets, made)
    return made, folder, cuda


def stage(spec: str, previous: str) -> Made:
    """Copy the source and the launch of the stage `previous` for the new stage `spec`, `operation:stage`, after it.

    The kernel is renamed, and the head of the source is to be filled in. The declaration is added at the end of the
    module. Raises CannotMake, UnknownSpec."""
    operation_name, _, name = spec.partition(":")
    check_name(name, "a stage")
    known = registry.operations()
    if operation_name not in known:
        near = difflib.get_close_matches(operation_name, known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"to make it: workbench new {operation_name}"
        raise CannotMake(f"there is no operation {operation_name!r}; {remedy}")
    ladder = known[operation_name]
    before = _stage_of(ladder, previous.removeprefix(f"{operation_name}:"))
    if any(s.name == name for s in ladder.stages):
        raise CannotMake(f"{operation_name} has a stage {name!r} already")
    module = _module_of(before)
    found = registry.find()
    made = Made(found.root if found else Path.cwd())
    if not module.resolve().is_relative_to(made.root.resolve()):
        whose = "the workbench's" if ladder.origin == BUILT_IN else f"{ladder.origin}'s"
        raise CannotMake(
            f"{operation_name} is {whose}; make an operation of your own first: "
            f"workbench new my_{operation_name} --from {operation_name}"
        )
    number = _next_number(before.path)
    source = before.path.with_name(f"{number or operation_name}_{name}.cu")
    declaration, kernels = _declaration(before, name, str(source.relative_to(before.sources)))
    text = _headed(before.path.read_text(errors=AS_IT_IS), name, number or str(len(ladder.stages) + 1))
    for old, new in kernels.items():
        text = re.sub(rf"\b{old}\b", new, text)
    _write({source: text}, made)
    length = module.stat().st_size
    try:
        with module.open("a") as file:
            file.write(f"\n\n{declaration}")
    except OSError as error:
        os.truncate(module, length)
        _take_back([source], error, module)
        raise
    made.added.append(Path(shown(module, made.root)))
    made.next = [
        f"fill in the head of {shown(source, made.root)}, and the idea at the end of {shown(module, made.root)}",
        "change the kernel, and nothing but that idea",
        f"workbench verify {spec}",
    ]
    return made


def _module_of(stage: Stage[Any]) -> Path:
    """The file that declares a stage."""
    if name := getattr(stage.plan_for, "module", ""):
        spec = importlib.util.find_spec(name)
        return Path((spec.origin if spec else "") or "")
    return Path(registry.loaded().modules[stage.operation].__file__ or "")


def check_name(name: str, what: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise CannotMake(
            f"{name!r} cannot be the name of {what}: such a name has small letters, digits and _, begins with a "
            "letter, and is no keyword of Python"
        )


def _package(root: Path, found: registry.Project | None) -> tuple[Path, bool]:
    """The folder in which the folders of operations are, and whether all in it are found: in a package they are."""
    if found is None:
        return root / PACKAGE, True
    for name in found.kernels:
        for start in (root / "src", root):
            folder = start.joinpath(*name.split("."))
            if folder.is_dir() or (name == PACKAGE and start == root):
                return folder, True
    return root, False


def _like(kind: str, name: str) -> dict[str, str]:
    return {_renamed(file, kind, name): _renamed(text, kind, name) for file, text in _texts(kind).items()}


def _texts(template: str) -> dict[str, str]:
    return {p.name: p.read_text() for p in (TEMPLATES / template).iterdir() if p.is_file()}


def _renamed(text: str, old: str, new: str) -> str:
    """The text with another name for the operation, as it is written in modules, classes and constants."""
    for spelling in (str, str.upper, camel):
        text = re.sub(rf"(?<![A-Za-z]){spelling(old)}(?=[^a-z]|$)", spelling(new), text)
    return text


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _from(base: str, name: str) -> dict[str, str]:
    """The files of an operation that has another one's problems, and the first source of that, its kernels empty."""
    known = registry.operations()
    if base not in known:
        raise CannotMake(f"there is no operation {base!r} to begin with; {hint(base, known, 'operations')}")
    old = known[base]
    if not old.stages:
        raise CannotMake(f"{base} has no stage whose launch could be used")
    module = registry.loaded().modules[base]
    constant = next(key for key, value in vars(module).items() if value is old)
    names = {
        "workbench.kernels.gemm": module.__name__,
        "GemmProblem": old.problem.__name__,
        "GEMM": constant,
        "gemm": base,
    }
    words = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in names))
    files = {file: words.sub(lambda m: names[m[0]], text) for file, text in _texts(DERIVED).items()}
    files = {_renamed(file, DERIVED, name): _renamed(text, DERIVED, name) for file, text in files.items()}
    first = old.stages[0]
    files["1_naive.cu"] = _headed(_emptied(first.path.read_text(errors=AS_IT_IS)), "naive", "1")
    return files


def _emptied(text: str) -> str:
    """A source whose kernels do nothing."""
    code, at = code_of(text), 0
    for match in list(re.finditer(r"__global__[^;{]*\{", code))[::-1]:
        start, depth = match.end(), 1
        at = start
        while depth:
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        text = f"{text[:start]}\n  // {FILL_IN}\n{text[at - 1 :]}"
    return text


def _headed(text: str, name: str, number: str) -> str:
    """A source whose head comment keeps what is computed, and has the rest to be filled in."""
    head = re.match(r"(?://[^\n]*\n)*", text)
    lines = head[0].splitlines() if head else []
    first = lines[: lines.index("//")] if "//" in lines else lines
    new = [
        *(first or [f"// {FILL_IN}: what is computed, and the shapes."]),
        "//",
        f"// stage {number}, {name.replace('_', ' ')}: {FILL_IN}, the idea in two or three sentences.",
        "//",
        f"// what it gains: {FILL_IN}, and why.",
        "//",
        f"// what limits it: {FILL_IN}.",
    ]
    return "\n".join(new) + "\n" + text[head.end() if head else 0 :]


def _stage_of(ladder: Operation[Any], name: str) -> Stage[Any]:
    for one in ladder.stages:
        if one.name == name:
            return one
    known = hint(name, [s.name for s in ladder.stages], f"stages of {ladder.name}")
    raise CannotMake(f"{ladder.name} has no stage {name!r} to begin with; {known}")


def _next_number(before: Path) -> str:
    """The number after the largest in the folder of a source, with as many digits as that source's has at least.
    Nothing where that source has none."""
    digits = re.match(r"\d+(?=_)", before.name)
    if not digits:
        return ""
    numbers = [int(match[1]) for path in before.parent.glob("*.cu") if (match := re.match(r"(\d+)_", path.name))]
    return str(max(numbers, default=0) + 1).zfill(len(digits[0]))


def _declaration(before: Stage[Any], name: str, source: str) -> tuple[str, dict[str, str]]:
    """The declaration of a stage after another one, and the kernels that it names with the new names of them."""
    text = getattr(before.plan_for, "text", "") or text_of(before.plan_for)
    try:
        function = ast.parse(text).body[0]
    except (IndexError, SyntaxError):
        function = None
    call = function.decorator_list[0] if isinstance(function, ast.FunctionDef) and function.decorator_list else None
    if not isinstance(function, ast.FunctionDef) or not isinstance(call, ast.Call):
        raise CannotMake(f"{before.spec} is not declared by a decorated function, which could be copied")
    entries = re.findall(
        r"__global__[^;{(]*(?:__launch_bounds__\s*\([^;{]*?\)\s*)?\b(\w+)\s*\(", before.path.read_text(errors=AS_IT_IS)
    )
    kernels = {entry: _kernel(entry, before.name, name) for entry in entries}
    strings = [
        node
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in kernels
    ]
    spans = [(_span(text, node), f'"{kernels[str(node.value)]}"') for node in strings]
    idea = f"{FILL_IN}: what it adds to {before.name}"
    given = {"after": before.name, **({"source": source} if _names(call, "source") else {}), "idea": idea}
    lines = [f'    "{name}",', *(f'    {key}="{value}",' for key, value in given.items())]
    spans.append((_span(text, call), "\n".join([f"{ast.unparse(call.func)}(", *lines, ")"])))
    for (start, end), value in sorted(spans, reverse=True):
        text = f"{text[:start]}{value}{text[end:]}"
    text = re.sub(rf"^def {function.name}\(", f"def {name}(", text, flags=re.MULTILINE)
    named = {str(node.value) for node in strings}
    return text, {old: new for old, new in kernels.items() if old in named}


def _names(call: ast.Call, keyword: str) -> bool:
    return any(k.arg == keyword for k in call.keywords)


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where a part of the text begins and ends."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _place_of(text, node.lineno, node.col_offset), _place_of(text, node.end_lineno, node.end_col_offset)


def _place_of(text: str, line: int, column: int) -> int:
    """Where a line, counted from 1, and a column of it, in bytes, are in a text."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _kernel(entry: str, old: str, new: str) -> str:
    return entry.replace(old, new) if old in entry else f"{entry}_{new}"


def _write(targets: dict[Path, str], made: Made) -> None:
    """Write all of the files, or none. Raises CannotMake where one is there already."""
    for path in targets:
        if path.exists():
            raise CannotMake(f"{path} is there already; nothing was written")
    begun: list[Path] = []
    for path, text in sorted(targets.items()):
        folders = [folder for folder in path.parents if not folder.exists()]
        begun += [*reversed(folders), path]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", errors=AS_IT_IS) as file:
                file.write(text)
        except OSError as error:
            _take_back(begun, error, path)
            raise
        made.written.append(Path(shown(path, made.root)))
    registry.reload()


def _take_back(begun: Sequence[Path], error: OSError, path: Path) -> None:
    """Remove what was begun, and let the error, which may name no file, name the one that could not be written."""
    error.filename = error.filename or str(path)
    for one in reversed(begun):
        with contextlib.suppress(OSError):
            one.rmdir() if one.is_dir() else one.unlink()


def shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
