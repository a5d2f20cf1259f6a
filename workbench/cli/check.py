"""`workbench check`: reads the launchers in a file of CUDA C++, such as a PyTorch extension, and proposes commands."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..model.dtypes import SPELLINGS
from .main import options

if TYPE_CHECKING:
    from ..emulator.host_code import SourceFiles

_LAUNCH = re.compile(r"([A-Za-z_][\w:]*)\s*(<(?:[^<>;]|<[^<>;]*>)*>)?\s*<<<")
_NUMBER = re.compile(
    r"\b(?:auto|bool|int|unsigned(?:\s+int)?|size_t|(?:std::)?u?int(?:32|64)_t|long(?:\s+long)?)\s+(\w+)\s*=\s*([^;]+);"
)
_DIM3 = re.compile(r"\bdim3\s+(\w+)\s*(?:=\s*dim3\s*)?[({](.*?)[)}]\s*;", re.DOTALL)
_CONSTANT = re.compile(rf"^(?:static\s+|inline\s+)*(?:const|constexpr)\b[^;{{}}()]*{_NUMBER.pattern}", re.MULTILINE)
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)")
_TYPENAME = re.compile(r"\b(?:typename|class)\s+(\w+)")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)$", re.MULTILINE)
_MACRO_THAT_LAUNCHES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)\n]*)\)([^\n]*<<<[^\n]*)$", re.MULTILINE)
_POINTER = re.compile(r"\b(?:auto|\w+)\s*[&*]?\s*(?:const\s+)?(\w+)\s*=\s*&?\s*([A-Za-z_][\w:]*)\s*(<[^;]*>)?\s*;")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*([^;]+);")
_SWITCH = re.compile(r"\b\w*SWITCH\w*\s*\([^;{]*?,\s*(\w+)\s*,\s*\[")
_TYPED = re.compile(r"\b(\w*DISPATCH\w*(?:FP16|HALF)\w*)\s*\([^;{]*?,\s*(\w+)\s*,\s*(?:\[|\{)")
_INSTANTIATED = re.compile(r"^[ \t]*template\s+(?!<)[^;{}<]*<\s*([\w:]+)\s*[,>]", re.MULTILINE)
_MOST_LAUNCHES = 64
_DISPATCH = re.compile(r"\b(AT_DISPATCH_\w+)\s*\(")
_SIZE = re.compile(r"\b(\w+)\s*\.\s*(?:size\s*\(\s*(\d+)\s*\)|sizes\s*\(\s*\)\s*\[\s*(\d+)\s*\])")
_DATA = re.compile(r"\b(\w+)\s*\.\s*(?:const_|mutable_)?data(?:_ptr)?\s*(?:<\s*([^<>]+)\s*>)?\s*\(\s*\)")
_ACCESSOR = re.compile(r"\b(\w+)\s*\.\s*packed_accessor(32|64)\s*<\s*([^,<>]+),\s*(\d+)")
_CAST = re.compile(r"(?:static_cast\s*<[^<>]*>|\((?:unsigned\s+)?(?:int|long|size_t|u?int(?:32|64)_t)\))")
_EXTENTS = (4, 70, 9, 5, 3)  # of a tensor's dimensions, where nobody says them: no powers of two, so that tails exist
_LENGTH = 1000
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv},
    **{ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift},
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    **{ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne},
}
_CONDITIONAL = re.compile(r"(.+?)\?(.+?)(?<!:):(?!:)(.+)", re.DOTALL)
_WORDS = ("unsigned", "signed", "const", "volatile", "void", "true", "false", "nullptr", "sizeof", "std")
_KINDS = {"at::Half": "f16", "c10::Half": "f16", "at::BFloat16": "bf16", "c10::BFloat16": "bf16"}


@dataclass
class Launcher:
    """A launch in host code: what it is made of, and what has been assumed of it."""

    text: str
    before: str
    kernel: str
    arguments: str
    configuration: list[str]
    given: list[str]
    ranks: dict[str, int] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)  # types of the source
    threads: int = 256  # of a block, where nobody says it
    total: int = 1  # threads of the launch

    def types(self) -> list[str]:
        """The types that the macro around the launch dispatches to."""
        found = _DISPATCH.findall(self.before)
        if not found or "scalar_t" not in self.text:
            return []
        name = found[-1]
        types = ["float", "double"] if "FLOATING" in name or "ALL" in name else []
        types += ["int", "int64_t"] if "INTEGRAL" in name or "ALL_TYPES" in name else []
        types += ["at::Half"] if "HALF" in name else []
        return types + (["at::BFloat16"] if "BFLOAT16" in name else [])

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The extents that are proposed for a tensor."""
        if like := re.search(rf"\b{tensor}\s*=\s*(?:torch|at)::\w+_like\s*\(\s*(\w+)", self.before):
            return self.shape(like[1]) if like[1] != tensor else (_LENGTH,)
        made = re.search(rf"\b{tensor}\s*=\s*(?:torch|at)::\w+\s*\(\s*\{{([^}}]*)\}}", self.before)
        if made and all(extents := [self.value(part) for part in split(made[1])]):
            return tuple(extent or 1 for extent in extents)
        rank = self.ranks.get(tensor, 0)
        return _EXTENTS[:rank] if rank > 1 else (_LENGTH,)

    def value(self, text: str, depth: int = 0) -> int | None:
        """The value of an expression of C++ in whole numbers; None where it cannot be told."""
        text = _SIZE.sub(lambda m: str(self.shape(m[1])[min(int(m[2] or m[3]), self.ranks[m[1]] - 1)]), text.strip())
        text = re.sub(r"\b(\w+)\s*\.\s*numel\s*\(\s*\)", lambda m: str(prod(self.shape(m[1]))), text)
        text = _SIZEOF.sub(lambda m: str(_bytes(self.plain_type(m[1], "float"))), text)
        text = re.sub(r"(?<=\d)(?:[uUlL]+)\b|std::|at::", "", _CAST.sub("", text)).replace("ceil_div", "CeilDiv")
        if (condition := _CONDITIONAL.fullmatch(text)) and depth < 20:
            chosen = self.value(condition[1], depth + 1)
            return None if chosen is None else self.value(condition[2 if chosen else 3], depth + 1)
        try:
            return self._evaluated(ast.parse(text.strip(), mode="eval").body, depth)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None

    def _evaluated(self, node: ast.expr, depth: int) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in ("true", "false"):
            return int(node.id == "true")
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](self._evaluated(node.left, depth), self._evaluated(node.right, depth))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            values = [self._evaluated(one, depth) for one in (node.left, node.comparators[0])]
            return int(_COMPARISONS[type(node.ops[0])](*values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._evaluated(node.operand, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            numbers = [self._evaluated(argument, depth) for argument in node.args]
            if node.func.id in ("min", "max"):
                return (min if node.func.id == "min" else max)(numbers)
            if node.func.id == "CeilDiv":
                return -(-numbers[0] // numbers[1])
            if len(numbers) == 1 and re.search("block|grid", node.func.id, re.IGNORECASE):
                return -(-numbers[0] // self.threads)  # as many blocks as so many elements need
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in ("x", "y", "z"):
            extents = [m[2] for m in _DIM3.finditer(self.before) if m[1] == node.value.id]
            parts = [*split(extents[-1]), "1", "1"] if extents else []
            number = self.value(parts["xyz".index(node.attr)], depth + 1) if parts else None
            if number is not None:
                return number
        if isinstance(node, ast.Name) and depth < 20:
            found = [m[2] for m in (*_MACRO.finditer(self.before), *_NUMBER.finditer(self.before)) if m[1] == node.id]
            number = self.value(found[-1], depth + 1) if found else None
            if number is not None:
                return number
            if re.search("block_?(?:size|dim)|threads|^block", node.id, re.IGNORECASE):
                question = f"what is {node.id}? {self.threads} is proposed"
                self.questions += [question] if question not in self.questions else []
                return self.threads
        raise ValueError

    def extent(self, text: str, what: str) -> str:
        """A grid or block as `emulate` takes it."""
        text = text.strip()
        named = [m[2] for m in _DIM3.finditer(self.before) if m[1] == text]
        inner = re.fullmatch(r"dim3\s*[({](.*)[)}]", text, re.DOTALL)
        parts = split(named[-1] if named else inner[1] if inner else text)
        self.threads = 16 if what == "block" and len(parts) > 1 else 256
        numbers = [self.value(part) for part in parts]
        if None in numbers or not numbers or any((number or 0) < 1 for number in numbers):
            self.questions.append(f"what is the {what} `{text}`? 1 is proposed")
            return "1"
        return ",".join(map(str, numbers))

    def argument(self, parameter: str, given: str, kind: str) -> str:
        """An `--arg` for a parameter, of what the launch gives it; `kind` stands for `scalar_t`."""
        for _ in range(4):  # an alias may be of a pointer, and of another alias
            parameter = re.sub(r"[A-Za-z_]\w*", lambda m: self.aliases.get(m[0], m[0]), parameter)
        name = (re.findall(r"\w+", parameter) or ["a"])[-1]
        if accessor := _ACCESSOR.search(given):
            tensor, bits, element, rank = accessor[1], accessor[2], accessor[3].strip(), int(accessor[4])
            shape = _EXTENTS[:rank] if rank > 1 else (_LENGTH,)
            numbers = [*shape, *(prod(shape[i + 1 :]) for i in range(rank))]
            members = "; ".join(f"n{i}:i{bits}={number}" for i, number in enumerate(numbers))
            return f"{name}:{{{tensor}:{self.element(element, kind)}[{_listed(shape)}]=random; {members}}}"
        plain = re.sub(r"\b(?:const|__restrict__|__restrict|volatile|typename)\b", " ", parameter)
        element = self.element(" ".join(plain.replace("*", " ").split()[:-1]), kind)
        if "*" in parameter:
            data = _DATA.search(given)
            variable = (re.findall(r"[A-Za-z_]\w*", _CAST.sub("", given)) or [name])[0]
            tensor = data[1] if data else name
            count = (self.allocated(variable) or 0) // _bytes(element)
            if any(question.startswith("which type is") for question in self.questions):  # of a struct, perhaps
                count = 16 * max(count, self.total)
            elif not count:
                self.ranks.setdefault(tensor, 0)
                count = self.total if self.shape(tensor) == (_LENGTH,) and self.total > _LENGTH else 0
            array = f"{name}:{element}[{count or _listed(self.shape(tensor))}]"
            if "const" not in parameter:
                return array + self.first_values(data[1] if data else variable, element)
            if element[0] in "iu":
                self.questions.append(
                    f"which values does {name} hold? zeros are proposed, which are in range as indices"
                )
            return f"{array}={'zeros' if element[0] in 'iu' else 'random'}"
        number = self.value(given)
        if number is None:
            self.questions.append(f"what is {name}, `{given.strip()}`? 1 is proposed")
        return f"{name}:{element}={1 if number is None else number}"

    def allocated(self, name: str) -> int | None:
        """Bytes that the host allocates for a pointer; None where nobody says it."""
        found = [*re.finditer(rf"\bcudaMalloc\w*\s*\([^;&]*&\s*{name}\s*,", self.before)]
        rest = self.before[found[-1].end() :].partition(";")[0] if found else ""
        return self.value(split(rest)[0].rstrip(") ") + ")" * _open(split(rest)[0].rstrip(") "))) if rest else None

    def first_values(self, name: str, element: str) -> str:
        """What an array that may be written holds before: nothing where the host has only allocated it."""
        filled = rf"cudaMemcpy\w*\s*\(\s*{name}\s*,|>>>\s*\([^;]*\b{name}\b|cudaMallocManaged[^;]*&\s*{name}\b"
        empty = rf"\b{name}\s*=\s*(?:torch|at)::(?:empty|\w+_like)\b|cudaMalloc\w*\s*\([^;&]*&\s*{name}\b"
        if re.search(rf"cudaMemset\w*\s*\(\s*{name}\s*,|\b{name}\s*=\s*(?:torch|at)::zeros", self.before):
            return "=zeros"
        if re.search(filled, self.before) or not re.search(empty, self.before):
            return "=zeros" if element[0] in "iu" else "=random"
        return ""

    def plain_type(self, type_name: str, kind: str) -> str:
        """A type as it is spelt; the types of templates around the launch are `kind`."""
        name = type_name.strip()
        return kind if name in ("scalar_t", "T", *_TYPENAME.findall(self.before)) else name

    def template_arguments(
        self, kind: str, known: Collection[str], example: Sequence[str], required: Sequence[str]
    ) -> str:
        """The arguments between angle brackets, with the values of constants of the host.

        `known` are names that the compiler knows. `example` has arguments by the kinds of all parameters, `required`
        of those without a default."""
        parts = split(re.sub(r"\s+", " ", self.arguments)[1:-1])
        given = []
        for number, part in enumerate(parts):
            found = self._resolved(re.sub(r"\bscalar_t\b", kind, part), kind)
            value = self.value(found) if found not in SPELLINGS else None
            words = {*re.findall(r"(?<!::)\b[A-Za-z_]\w*", re.sub(r"\.\.\.", "", found))}
            if value is None and not words <= {*known, *_WORDS, *SPELLINGS} and number < len(example):
                self.questions.append(f"what is the template argument `{part}`? {example[number]} is proposed")
                found = example[number]
            given.append(found if value is None else str(value))
        given += required[len(parts) :]
        return f"<{', '.join(given)}>" if given else ""

    def _resolved(self, text: str, kind: str) -> str:
        """A template argument with what the function around the launch calls by other names put in."""
        bound = {name: meant for name, meant in _ALIAS.findall(self.before) if not re.search(rf"\b{name}\b", meant)}
        for name in {*re.findall(r"[A-Za-z_]\w*", " ".join([text, *bound.values()]))} - bound.keys():
            if (value := self.value(name)) is not None:
                bound[name] = str(value)
            elif name in _SWITCH.findall(self.before):
                bound[name] = "true"
            elif name in {found[1] for found in _TYPED.findall(self.before)}:
                bound[name] = "half"
            elif name == "T" or name in _TYPENAME.findall(self.before):
                bound[name] = "int" if "index" in name.lower() else kind
        for _ in range(4):
            text = re.sub(r"(?<!::)\b[A-Za-z_]\w*", lambda m: bound.get(m[0], m[0]), text)
        return re.sub(r"\btypename\s+", "", text)

    def element(self, type_name: str, kind: str) -> str:
        found = self.plain_type(type_name, kind)
        if found in _KINDS:
            return _KINDS[found]
        dtype = SPELLINGS.get(found.replace("std::", ""))
        if dtype is None:
            question = f"which type is {found}? f32 is proposed"
            self.questions += [question] if question not in self.questions else []
            return "f32"
        return dtype.ptx if dtype.is_float else dtype.triton


def _bytes(type_name: str) -> int:
    """Of a type, by its name in C++ or in `--arg`."""
    dtype = SPELLINGS.get(type_name.replace("std::", "").strip())
    return dtype.numpy.itemsize if dtype is not None else 4


def _open(text: str) -> int:
    """How many brackets are not closed."""
    return max(text.count("(") - text.count(")"), 0)


def _listed(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def split(text: str) -> list[str]:
    """What stands between commas that are in no brackets."""
    found, depth = [""], 0
    for character in text.replace("->", "."):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [part for part in found if part.strip()]


def launchers(text: str) -> Iterator[Launcher]:
    """The launches in a source, in their order."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = _expanded(re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', re.sub(r"\\[ \t]*\n", " ", text)))
    for match in _LAUNCH.finditer(text):
        end = text.find(">>>", match.end())
        opening = text.find("(", end)
        close = _closed(text, opening + 1)
        start = max(text.rfind("\n}", 0, match.start()), 0)
        macros = "\n".join(found[0] for of in (_MACRO, _CONSTANT) for found in of.finditer(text))
        given, whole = text[opening + 1 : close - 1], text[start:close]
        before = f"{macros}\n{_bound(text, text[start : match.start()])}{text[start : match.start()]}"
        pointed = [found for found in _POINTER.findall(before) if found[0] == match[1]]
        kernel, arguments = pointed[-1][1:] if pointed else (match[1], match[2] or "")
        launch = Launcher(whole, before, kernel, arguments, split(text[match.end() : end]), split(given))
        for size in _SIZE.finditer(whole):
            launch.ranks[size[1]] = max(launch.ranks.get(size[1], 0), int(size[2] or size[3]) + 1)
        for accessor in _ACCESSOR.finditer(whole):
            launch.ranks[accessor[1]] = int(accessor[4])
        yield launch


def _expanded(text: str) -> str:
    """A source in which macros that launch kernels are put in where they are used."""
    for macro in [*_MACRO_THAT_LAUNCHES.finditer(text)]:
        text = text.replace(macro[0], "", 1)
        uses = [*re.finditer(rf"\b{macro[1]}\s*\(", text)][:_MOST_LAUNCHES]
        for use in reversed(uses):
            close = _closed(text, use.end())
            names, values = split(macro[2]), split(text[use.end() : close - 1])
            given = {name.strip(): value.strip() for name, value in zip(names, values, strict=False)}
            body = re.sub(r"\w+", lambda m, given=given: given.get(m[0], m[0]), macro[3]).replace("##", "")
            text = text[: use.start()] + body + text[close:]
    return text


def _closed(text: str, at: int, brackets: str = "()") -> int:
    """Where a bracket closes that opens before `at`."""
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] == brackets[0]) - (text[at] == brackets[1])
        at += 1
    return at


def _bound(text: str, function: str) -> str:
    """What the template parameters of the function around a launch stand for in the first call that gives them."""
    opened = next(reversed([*re.finditer(r"^[ \t]*template\s*<", function, re.MULTILINE)]), None)
    close = _closed(function, opened.end(), "<>") if opened else 0
    name = re.match(r"[^;{}()]*?(\w+)\s*\(", function[close:])
    call = re.search(rf"\b{name[1]}\s*<([^;{{}}()]*)>\s*\(", text) if opened and name else None
    if not opened or not call:
        return ""
    found = []
    for parameter, given in zip(split(function[opened.end() : close - 1]), split(call[1]), strict=False):
        *kind, named = parameter.split()
        if kind and named != given.strip() and "=" not in parameter:
            is_type = kind[0] in ("typename", "class", "template")
            found.append(f"{f'using {named}' if is_type else f'int {named}'} = {given.strip()};\n")
    return "".join(found)


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--include", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER", help="A folder of headers."
)
@options("json")
def check(file: Path, include: tuple[Path, ...], as_json: bool) -> None:
    """Read the launches in FILE.cu, such as a PyTorch extension, and propose how to emulate them.

    For each launch of the host code it prints a command of `workbench emulate`: the kernel, its grid and block,
    arrays for its tensors. Below are the questions that the file does not answer, and what was assumed."""
    from ..emulator.source import source_files
    from . import launches as given

    given.check_paths(file, include)
    text = file.read_text("utf-8-sig", errors="replace")
    found = list(launchers(text))
    if not found:
        raise given.UsageError(f"{file} launches no kernel: give `workbench emulate {file}` a grid and a block")
    with given.not_executed():
        files = source_files(text, file, include)
    kernels = dict(files.signatures())
    source = Source(file, include, kernels, files)
    proposed = [source.proposal(launch) for launch in found]
    if as_json:
        from . import documents

        documents.result({"launches": [{"command": command, "questions": asked} for command, asked in proposed]})
        return
    for command, asked in proposed:
        click.echo("\n".join([command, *(f"  {number}. {question}" for number, question in enumerate(asked, 1))]))


@dataclass
class Source:
    """What a file says: its kernels with their parameters, and how it is taken apart."""

    file: Path
    include: Sequence[Path]
    kernels: dict[str, list[str]]
    files: SourceFiles

    def __post_init__(self) -> None:
        self.aliases, self.names, self.undefined = self.files.aliases(), self.files.names(), self.files.undefined()
        self.examples, self.required = (self.files.template_arguments(defaults=which) for which in (True, False))

    def proposal(self, launch: Launcher) -> tuple[str, list[str]]:
        """A command, and the questions behind it."""
        types = launch.types()
        instances = [kind for kind in _INSTANTIATED.findall(self.files.main.text) if kind in {**SPELLINGS, **_KINDS}]
        kind, launch.aliases = [*types, *instances, "float"][0], self.aliases
        bare = launch.kernel.split("::")[-1]
        named = next((name for name in self.kernels if name.split("::")[-1] == bare), "")
        if not named and self.kernels:
            named = next(iter(self.kernels))
            launch.questions.append(f"which kernel is {launch.kernel}? {named} is proposed")
            launch.kernel, bare, launch.arguments = named, named.split("::")[-1], ""
        example = self.examples.get(bare, [])
        defines = {**dict.fromkeys(self.undefined, "32"), **dict.fromkeys(self.files.switches(bare), "1")}
        launch.questions += [f"what is {name}, which nothing defines? {n} is proposed" for name, n in defines.items()]
        launch.before = "".join(f"int {name} = {value};\n" for name, value in defines.items()) + launch.before
        grid, block, *rest = [*launch.configuration, "1", "1"]
        words = ["workbench", "emulate", str(self.file)]
        words += [word for folder in self.include for word in ("--include", str(folder))]
        words += [word for name, value in defines.items() for word in ("--define", f"{name}={value}")]
        required = self.required.get(bare, [])
        words += ["--entry", launch.kernel + launch.template_arguments(kind, self.names, example, required)]
        words += ["--grid", launch.extent(grid, "grid"), "--block", launch.extent(block, "block")]
        launch.total = prod(int(number) for extent in words[-3::2] for number in extent.split(","))
        if len(launch.configuration) > 2 and (shared := launch.value(rest[0])) != 0:
            if shared is None:
                launch.questions.append(f"how many bytes of shared memory is `{rest[0].strip()}`? 0 is proposed")
            words += ["--shared", str(shared or 0)]
        for parameter, given in zip(self.kernels.get(named, []), launch.given, strict=False):
            words += ["--arg", launch.argument(parameter, given, kind)]
        if launch.ranks:
            sizes = ", ".join(f"{name}: {_listed(launch.shape(name))}" for name in launch.ranks)
            launch.questions.insert(0, f"which shapes do the tensors have? These are assumed: {sizes}")
        if len(types) > 1:
            launch.questions.append(f"which type? {kind} is proposed; the file also dispatches {', '.join(types[1:])}")
        return shlex.join(words), launch.questions
