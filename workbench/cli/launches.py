"""`workbench emulate`: any kernel, from a shell. Arguments are written as text; arrays come from and go to files."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import click
import numpy as np

from .. import emulator
from ..emulator.source import listed
from ..model.dtypes import BOOL, DTYPES, E8M0, SPELLINGS
from ..model.errors import WorkbenchError, WrongUsage
from .main import unwritable

FILLS = ("zeros", "ones", "random", "arange", "nan", "uninitialised")
_ARGUMENT = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:)?\s*(?P<type>\w+)\s*(?P<shape>\[[^\]]*\])?"
    r"\s*(?:=(?!>)\s*(?P<value>.*?))?\s*(?:=>\s*(?P<save>.+?))?\s*"
)
_MAP = re.compile(
    r"(?P<of>.*?)\s+as\s+map\s*(?P<box>\[[^\]]*\])(?:\s+swizzle=(?P<swizzle>\d+))?(?P<save>\s*=>.*)?\s*", re.DOTALL
)
_STRUCT = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:)?\s*\{(?P<members>.*)\}\s*", re.DOTALL)
_OBJECT = re.compile(
    r"(?P<of>.*?)\s+as\s+(?P<kind>texture|surface)\b(?P<how>[\w\s=]*?)(?P<save>\s*=>.*)?\s*", re.DOTALL
)
_ADDRESS_MODES = ("clamp", "border", "wrap", "mirror")
_OBJECT_WORDS = ("linear", *_ADDRESS_MODES, "normalized", "fraction", "layered")
_MAP_EXAMPLE = "A:bf16[256,64]=random as map[64,64] swizzle=128"
NOT_EXECUTED: dict[type[Exception], tuple[str, str]] = {
    emulator.CompileError: ("compile_error", "compile_error"),
    emulator.CompilerUnavailable: ("compiler_unavailable", ""),
    emulator.PtxSyntaxError: ("ptx_syntax_error", "compile_error"),
    emulator.UnsupportedInstruction: ("unsupported_instruction", "unsupported"),
}
"""What `emulator.launch` raises where there is nothing to execute, what programs know it by, and the verdict of the
source: none where it is not to blame."""

_STEP_EXAMPLE = "reduce --grid 1 --block 256 --arg y --arg z:f32[1] --arg i32=4"
_EXAMPLE = "write for example f32[1024]=random, f32[64,32] => out.npy or i32=1024"


class UsageError(WrongUsage, ValueError):
    """An argument of the command that cannot be understood; the message says what would be right."""


class NotExecuted(WorkbenchError):
    """A source that the emulator cannot execute, or a compiler that is missing; the message says what and where.

    `verdict` is that of the source, empty where it is not to blame; `file` and `line` are where, as far as it is known.
    """

    def __init__(self, message: str, code: str = "not_executed", verdict: str = "") -> None:
        super().__init__(message)
        self.code, self.verdict = code, verdict
        self.file, self.line = "", 0


@contextlib.contextmanager
def not_executed() -> Iterator[None]:
    """Errors of the emulator as those of a command. Raises UsageError and NotExecuted."""
    try:
        yield
    except (emulator.ArchitectureError, emulator.ArgumentError, emulator.LaunchError) as error:
        raise UsageError(str(error)) from None
    except tuple(NOT_EXECUTED) as error:
        known = next(names for kind, names in NOT_EXECUTED.items() if isinstance(error, kind))
        raise NotExecuted(str(error), *known) from None


@dataclass
class Argument:
    """One `--arg`: the value for `emulator.launch`, its name, the array behind it, and where that is saved.

    ``members`` are those of a struct, or the array of a tensor map."""

    name: str
    value: Any
    array: np.ndarray[Any, Any] | None = None
    save: Path | None = None
    members: Sequence[Argument] = ()


def check_paths(file: Path, include: Sequence[Path] = ()) -> None:
    """Raises UsageError unless the source is a file and each of the others a folder."""
    if not file.is_file():
        raise UsageError(f"{file} is a folder; name a file" if file.is_dir() else f"there is no file {file}")
    for folder in include:
        if not folder.is_dir():
            raise UsageError(f"--include {folder}: there is no such folder")


def examples(file: Path, include: Sequence[str] = ()) -> str:
    """The kernels of a file with their parameters, and a launch of each to begin with.

    Raises NotExecuted and OSError."""
    with not_executed():
        kernels, instances, missing = listed(file, include)
    if not kernels:
        return f"{file} has no kernel: no function is __global__ (.entry in PTX)"
    shown = []
    for name, parameters in kernels:
        words = ["workbench", "emulate", str(file)]
        words += [word for macro in missing for word in ("--define", f"{macro}=32")]
        *spaces, bare = name.split("::")
        words += ["--entry", "::".join([*spaces, instances.get(bare, bare)]), "--grid", "4", "--block", "256"]
        given = [example_argument(parameter, number) for number, parameter in enumerate(parameters)]
        text = shlex.join([*words, *(word for one in given for word in ("--arg", one))])
        shown.append(f"  {name}({', '.join(parameters)})\n    {text}")
    count = f"kernel of {file}" if len(shown) == 1 else f"kernels of {file}, each"
    return f"The {count} with a launch to begin with:\n" + "\n".join(shown)


def example_argument(parameter: str, number: int) -> str:
    """An `--arg` for a parameter of C++: an array for a pointer, which is written where it is not const."""
    words = re.sub(r"__restrict__|__restrict|__grid_constant__|\bstd::|[*&]", r" ", parameter).split()
    plain = [word for word in words if word not in ("const", "volatile")]
    found = SPELLINGS.get(" ".join(plain))
    name = f"a{number}"
    if found is None and len(plain) > 1:
        found, name = SPELLINGS.get(" ".join(plain[:-1])), plain[-1]
    if found is None:
        return f"{name}:TYPE[1024]=random" if "*" in parameter else f"{name}:TYPE=1"
    kind = found.ptx if found.is_float else "u8" if found is BOOL else found.triton
    if "*" not in parameter:
        return f"{name}:{kind}=1" if found.is_float else f"{name}:{kind}=1024"
    return f"{name}:{kind}[1024]=random" if "const" in words else f"{name}:{kind}[1024]"


def parse_dimensions(text: str, what: str) -> tuple[int, ...]:
    """`4,2` as numbers. Raises UsageError."""
    try:
        numbers = tuple(int(part) for part in re.split(r"[,x]", text))
    except ValueError:
        raise UsageError(f"{what} {text!r} is not one to three whole numbers; write for example {what} 4,2") from None
    if not 1 <= len(numbers) <= 3:
        raise UsageError(f"{what} {text!r} has {len(numbers)} numbers; one to three are allowed")
    return numbers


def parse_argument(
    text: str, number: int, rng: np.random.Generator, known: Mapping[str, Argument] | None = None
) -> Argument:
    """One argument as `workbench emulate --help` describes it; ``known`` are those that can be named again.

    Raises UsageError and OSError."""
    if known is not None and text.strip() in known:
        return known[text.strip()]
    if as_map := _MAP.fullmatch(text):
        of = parse_argument(as_map["of"] + (as_map["save"] or ""), number, rng, known)
        if of.array is None:
            raise UsageError(f"--arg {text!r}: a tensor map is of an array; write for example {_MAP_EXAMPLE}")
        tensor_map = emulator.TensorMapOf(of.value, _shape(text, as_map["box"]), int(as_map["swizzle"] or 0))
        is_new = known is None or of is not known.get(of.name)
        return Argument(f"{of.name}_map", tensor_map, members=[of] if is_new else [])
    if as_object := _OBJECT.fullmatch(text):
        return _object(text, as_object, number, rng, known)
    if struct := _STRUCT.fullmatch(text):
        return _struct(struct["name"] or f"a{number}", struct["members"], rng, known)
    match = _ARGUMENT.fullmatch(text)
    if not match:
        raise UsageError(f"--arg {text!r} is not an argument; {_EXAMPLE}")
    name = match["name"] or f"a{number}"
    if match["type"] not in SPELLINGS:
        raise UsageError(f"--arg {text!r}: there is no type {match['type']!r}; the types are {', '.join(DTYPES)}")
    if SPELLINGS[match["type"]].packing > 1:
        raise UsageError(
            f"--arg {text!r}: elements of {match['type']} are packed: pass the bytes that hold them, as u8"
        )
    dtype, value = _numpy(match["type"]), match["value"]
    save = Path(match["save"]) if match["save"] else None
    if save and (reason := unwritable(save)):
        raise UsageError(f"--arg {text!r}: {reason}")
    from_file = value is not None and value.startswith("@")
    if match["shape"] is None and not from_file:
        if save:
            raise UsageError(f"--arg {text!r}: a number is not changed, only an array can be saved; {_EXAMPLE}")
        return Argument(name, _number(text, value, match["type"]))
    shape = _shape(text, match["shape"]) if match["shape"] is not None else None
    if shape is not None and prod(shape) * dtype.itemsize > 2**33:
        raise UsageError(f"--arg {text!r} has {prod(shape) * dtype.itemsize} bytes; 2^33 are allowed")
    if from_file:
        assert value is not None
        array = _from_file(text, value[1:], dtype, shape)
    else:
        assert shape is not None
        array = _filled(text, value or "uninitialised", dtype, shape, rng)
    passed = emulator.Output(array) if value in (None, "", "uninitialised") else array
    return Argument(name, passed, array, save)


def _object(
    text: str, match: re.Match[str], number: int, rng: np.random.Generator, known: Mapping[str, Argument] | None
) -> Argument:
    """A texture or surface of an array, and how it is read."""
    of = parse_argument(match["of"] + (match["save"] or ""), number, rng, known)
    words = match["how"].split()
    channels = [word.removeprefix("channels=") for word in words if word.startswith("channels=")]
    plain = [word for word in words if not word.startswith("channels=")]
    allowed = _OBJECT_WORDS if match["kind"] == "texture" else _OBJECT_WORDS[-1:]
    if of.array is None or not set(plain) <= set(allowed) or not all(word.isdecimal() for word in channels):
        raise UsageError(
            f"--arg {text!r}: a {match['kind']} is of an array, with words among {', '.join(allowed)} and channels=4; "
            "write for example image:f32[64,64]=random as texture linear normalized wrap"
        )
    modes = [word for word in plain if word in _ADDRESS_MODES]
    how: dict[str, Any] = {word: True for word in plain if word not in modes}
    if modes:
        how["address"] = modes[0]
    if channels:
        how["channels"] = int(channels[0])
    kind = emulator.TextureOf if match["kind"] == "texture" else emulator.SurfaceOf
    is_new = known is None or of is not known.get(of.name)
    return Argument(f"{of.name}_{match['kind']}", kind(of.value, **how), members=[of] if is_new else [])


def _struct(name: str, text: str, rng: np.random.Generator, known: Mapping[str, Argument] | None) -> Argument:
    """A struct by value, of members between semicolons."""
    members = [
        parse_argument(member, number, rng, known) for number, member in enumerate(_members(text)) if member.strip()
    ]
    value = emulator.Struct({member.name: member.value for member in members})
    if len(value) < len(members):
        raise UsageError(f"two members of {name} have the same name: {', '.join(member.name for member in members)}")
    own = [member for member in members if known is None or member is not known.get(member.name)]
    return Argument(name, value, members=[replace(member, name=f"{name}.{member.name}") for member in own])


def _members(text: str) -> list[str]:
    """What stands between semicolons that are in no inner braces."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == ";" and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


def _shape(text: str, brackets: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in brackets[1:-1].split(","))
    except ValueError:
        shape = (-1,)
    if any(extent < 0 for extent in shape):
        raise UsageError(f"--arg {text!r}: the shape {brackets} is not whole numbers with commas; {_EXAMPLE}")
    return shape


def _numpy(type_name: str) -> np.dtype[Any]:
    """What NumPy holds elements of a type as: a bool, which is 0 or 1, as its byte."""
    kind = SPELLINGS[type_name].numpy
    return np.dtype(np.uint8) if kind.kind == "b" else kind


def _number(text: str, value: str | None, type_name: str) -> Any:
    if not value:
        raise UsageError(
            f"--arg {text!r} has neither a shape nor a value; write {type_name}=1 for a number or {type_name}[1] for "
            "an array"
        )
    dtype = _numpy(type_name)
    try:
        if dtype.kind in "iu":
            return np.array(int(value, 0), dtype)[()]
        return np.array(float(value)).astype(dtype)[()]
    except (ValueError, OverflowError):
        raise UsageError(f"--arg {text!r}: {value!r} is not a number that {type_name} holds") from None


def _filled(
    text: str, fill: str, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    whole = dtype.kind in "iu"
    if fill == "nan" and whole:
        raise UsageError(f"--arg {text!r}: integers have no NaN; the fills are {', '.join(FILLS)}")
    if fill in ("zeros", "uninitialised"):
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "nan":
        return np.full(shape, np.nan).astype(dtype)
    if fill == "arange":
        return np.arange(prod(shape)).reshape(shape).astype(dtype)
    if fill == "random":
        if whole:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        drawn = rng.standard_normal(shape)
        return (np.exp2(drawn) if dtype == E8M0.numpy else drawn).astype(dtype)
    raise UsageError(
        f"--arg {text!r}: there is no fill {fill!r}; the fills are {', '.join(FILLS)} or @file.npy, and a number has "
        "no shape"
    )


def _from_file(text: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    try:
        array = np.load(name, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(f"--arg {text!r}: {name} is not a .npy file ({error})") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"--arg {text!r}: {name} holds several arrays; save one with numpy.save")
    if dtype.isbuiltin != 1 and array.dtype.kind in "uV" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # numpy.save knows only the bytes of types that are not NumPy's own
    if array.dtype != dtype:
        raise UsageError(f"--arg {text!r}: {name} holds {array.dtype}, not {dtype}; convert it with astype")
    if shape is not None and array.shape != shape:
        raise UsageError(f"--arg {text!r}: {name} has the shape {list(array.shape)}; leave the shape out to take it")
    return np.array(array)


def _inner(argument: Argument) -> Iterator[Argument]:
    for member in argument.members:
        yield member
        yield from _inner(member)


@dataclass
class Step:
    """One launch: a kernel and what it is given."""

    entry: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Argument]
    shared_bytes: int = 0
    cluster: tuple[int, ...] = (1, 1, 1)
    stream: int | None = None
    programmatic: bool = False

    def given(self) -> dict[str, Any]:
        """The arguments by name. Raises UsageError."""
        names = [argument.name for argument in self.arguments]
        if len(set(names)) < len(names):
            raise UsageError(f"two arguments have the same name: {', '.join(names)}")
        return {argument.name: argument.value for argument in self.arguments}


@dataclass
class Emulation:
    """What one `workbench emulate` is asked to do: launches on the same memory, one after the other or in streams."""

    file: Path
    steps: Sequence[Step]
    variables: Sequence[Argument] = ()
    defines: dict[str, str] = field(default_factory=dict)
    include: Sequence[Path] = ()
    options: Sequence[str] = ()
    seed: int = 0
    slice: int | None = None
    counters: bool = False
    trace: emulator.Traced | None = None
    max_seconds: float | None = None
    nvcc: bool = False
    strict: bool = False
    suppress: Sequence[str] = ()
    arch: str | None = None
    unoptimised: bool = False
    program: emulator.Program | None = None
    """The compiled file, which `run` sets where it is None."""

    @property
    def arguments(self) -> list[Argument]:
        """Those of all launches and variables, each once."""
        every = [argument for step in self.steps for argument in step.arguments]
        flat = [inner for argument in [*every, *self.variables] for inner in (argument, *_inner(argument))]
        return list({id(argument): argument for argument in flat}.values())

    def run(self) -> list[emulator.Report]:
        """Runs it, up to the first launch with a failure. Raises UsageError, NotExecuted and OSError."""
        check_paths(self.file, self.include)
        return self._launches([step.given() for step in self.steps])

    def save(self) -> None:
        """Saves the arrays that are to be saved. Raises OSError."""
        for argument in self.arguments:
            if argument.save is not None and argument.array is not None:
                array = argument.array
                with argument.save.open("wb") as stream:
                    np.save(stream, array if array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}"))

    def _launches(self, given: Sequence[dict[str, Any]]) -> list[emulator.Report]:
        named = [step.entry for step in self.steps if step.entry is not None]
        with not_executed():
            self.program = self.program or emulator.load(
                self.file,
                defines=self.defines,
                include=self.include,
                options=self.options,
                entry=named if len(named) == len(self.steps) else None,
                nvcc=self.nvcc,
                arch=self.arch,
            )
            session = emulator.Session(self.program)
            for variable in self.variables:
                session.set(variable.name, variable.value)
            reports: list[emulator.Report] = []
            overlap = any(step.stream is not None or step.programmatic for step in self.steps)
            for step, arguments in zip(self.steps, given, strict=True):
                if overlap or not reports or reports[-1].ok:
                    stream = {"stream": step.stream or 0, "programmatic": step.programmatic} if overlap else {}
                    reports.append(self._launch(session, step, arguments, **stream))
            session.synchronize()
            return reports

    def _launch(
        self, session: emulator.Session, step: Step, arguments: dict[str, Any], **stream: Any
    ) -> emulator.Report:
        return session.launch(
            step.entry,
            step.grid,
            step.block,
            arguments,
            shared=step.shared_bytes,
            cluster=step.cluster,
            seed=self.seed,
            time_slice=self.slice,
            counters=self.counters,
            trace=self.trace,
            max_seconds=self.max_seconds,
            strict=self.strict,
            suppress=self.suppress,
            unoptimised=self.unoptimised,
            **stream,
        )


_THEN = click.Command(
    "--then",
    params=[
        click.Argument(["entry"]),
        click.Option(["--grid"], required=True),
        click.Option(["--block"], required=True),
        click.Option(["--cluster"], default="1"),
        click.Option(["--arg", "arguments"], multiple=True),
        click.Option(["--shared"], type=click.IntRange(0), default=0),
        click.Option(["--stream"], type=click.IntRange(0)),
        click.Option(["--programmatic"], is_flag=True),
    ],
    add_help_option=False,
)


def parse_arguments(texts: Sequence[str], rng: np.random.Generator, known: Sequence[Argument] = ()) -> list[Argument]:
    """Arguments in their order; each can name those before it. Raises UsageError and OSError."""
    named = {argument.name: argument for argument in known}
    found = []
    for number, text in enumerate(texts):
        argument = parse_argument(text, number, rng, named)
        named.update((one.name, one) for one in (argument, *_inner(argument)))
        found.append(argument)
    return found


def parse_step(text: str, known: Sequence[Argument], rng: np.random.Generator) -> Step:
    """A `--then` as `workbench emulate --help` describes it; a name alone is an argument before. Raises UsageError."""
    try:
        given = _THEN.make_context("--then", shlex.split(text)).params
    except (click.UsageError, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise UsageError(f"--then {text!r}: {reason.rstrip('.')}. Write for example --then '{_STEP_EXAMPLE}'") from None
    return Step(
        given["entry"],
        parse_dimensions(given["grid"], "--grid"),
        parse_dimensions(given["block"], "--block"),
        parse_arguments(given["arguments"], rng, known),
        given["shared"],
        parse_dimensions(given["cluster"], "--cluster"),
        given["stream"],
        given["programmatic"],
    )


def parse_steps(first: Step, texts: Sequence[str], rng: np.random.Generator, programmatic: bool = False) -> list[Step]:
    """The first launch and each `--then`, which can name the arguments before it. Raises UsageError and OSError.

    Those that name no stream are in that of the first launch, or of the first programmatic one that names it.
    ``programmatic``: all but the first are."""
    steps = [first]
    if programmatic and not texts:
        raise UsageError("--programmatic is about launches behind the first one; add --then '...'")
    for text in texts:
        known = [one for step in steps for argument in step.arguments for one in (argument, *_inner(argument))]
        steps.append(parse_step(text, known, rng))
        steps[-1].programmatic |= programmatic
    named = [step.stream for step in steps if step.stream is not None and (step is first or step.programmatic)]
    for number, step in enumerate(steps if named else ()):
        step.stream = named[0] if step.stream is None else step.stream
        if step.programmatic and step.stream not in [one.stream for one in steps[:number]]:
            raise UsageError(
                f"--programmatic: no launch is before {step.entry} in stream {step.stream}; give both one --stream"
            )
    return steps


def parse_variable(text: str, rng: np.random.Generator) -> Argument:
    """A `--set`. Raises UsageError and OSError."""
    argument = parse_argument(text, 0, rng)
    if not re.match(r"\s*[A-Za-z_]\w*\s*:", text):
        raise UsageError(f"--set {text!r} names no variable; write for example --set coefficients:f32[4]=@c.npy")
    if isinstance(argument.value, emulator.Output):
        raise UsageError(f"--set {text!r} gives no value; write for example --set coefficients:f32[4]=ones")
    return argument


def plain(array: np.ndarray[Any, Any]) -> list[Any]:
    """The elements as Python's numbers."""
    listed: list[Any] = (array if array.dtype.kind in "iu" else array.astype(np.float64)).tolist()
    return listed


def parse_slice(text: str) -> slice:
    """`0:8` as a slice. Raises UsageError."""
    match = re.fullmatch(r"(-?\d*):(-?\d*)(?::(-?\d+))?", text)
    if not match or match[3] in ("0", "-0"):
        raise UsageError(f"--print {text!r} is not a range of elements; write for example --print 0:8")
    chosen = slice(*(int(part) if part and part != "-" else None for part in match.groups()))
    if not range(*chosen.indices(2**40)):
        raise UsageError(f"--print {text!r} has no elements; write for example --print 0:8")
    return chosen


def parse_defines(defines: Sequence[str]) -> dict[str, str]:
    """`X=1` or `X`. Raises UsageError."""
    found = {}
    for text in defines:
        name, _, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*(\([^)]*\))?", name):
            raise UsageError(f"--define {text!r} names no macro; write for example --define TILE=16")
        found[name] = value if "=" in text else "1"
    return found
