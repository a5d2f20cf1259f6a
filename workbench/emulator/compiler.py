"""CUDA C++ to PTX, by NVRTC; host code is taken out before, with line numbers kept."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .host_code import DeviceCode, HostCode, SourceError, SourceFiles
from .ptx import source_files
from .source_lines import RANDOM, cuda_headers, random_headers, standard_headers

_MOST_ATTEMPTS = 8
_MOST_NAMED = 4
_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error\b", re.MULTILINE)
_ASSEMBLER_ERROR = re.compile(r"^ptxas application ptx input, line (\d+); error\s*: (.*)$", re.MULTILINE)
_PLACE = re.compile(r"[ \t]*\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_UNDEFINED = re.compile(r'(?:identifier|name followed by "::"|class template|member) "([^"]+)"')


class CompileError(ValueError):
    """NVRTC rejected the source, or ptxas the PTX; the message has the diagnostics."""


class CompilerUnavailable(RuntimeError):
    """CUDA C++ needs NVRTC, which cannot be loaded; the message says what to install."""


@dataclass(slots=True)
class Compiled:
    """PTX, registers a thread by kernel as ptxas reports them, mangled names of the instances that were asked
    for, the texts of the files by name, and kernels that are templates with the instances that host code launches, and
    with an example of one.

    ``unoptimised`` compiles the same once more without optimisation; ``notes`` say what a user should know."""

    ptx: str
    registers: dict[str, int]
    instances: dict[str, str]
    sources: dict[str, str]
    templates: dict[str, list[str]] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    unoptimised: Callable[[], Compiled] | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Job:
    """What NVRTC is asked for."""

    nvrtc: Any
    name: str
    options: list[str]
    standard: dict[bytes, bytes]
    instances: list[str]
    opened: str = ""  # what stands behind the source, so that instances need not be qualified

    def compile(self, code: DeviceCode) -> tuple[str, dict[str, int], dict[str, str]]:
        """PTX, registers and mangled names of instances. Raises ``CompileError`` with the log."""
        nvrtc = self.nvrtc
        headers = {**self.standard, **{name.encode(): text.encode() for name, text in code.headers.items()}}
        options = [
            *self.options,
            f"--pre-include={code.implicit}",
            *(["-default-device"] if code.has_host_code else []),
        ]
        program = nvrtc.createProgram(code.text + self.opened, self.name, [*headers.values()], [*headers])
        try:
            try:
                for instance in self.instances:
                    nvrtc.addNameExpression(program, instance)
                nvrtc.compileProgram(program, tuple(options))
            except nvrtc.NVRTCError as error:
                log = errors_in(nvrtc.getProgramLog(program))
                if _ASSEMBLER_ERROR.search(log):
                    log = _at_lines_of_the_source(log, self._unassembled(code, headers, options))
                raise CompileError(log or str(error)) from None
            ptx = _text(nvrtc.getPTX(program)).rstrip("\0")
            lowered = {instance: _text(nvrtc.getLoweredName(program, instance)) for instance in self.instances}
            log = nvrtc.getProgramLog(program)
        finally:
            nvrtc.destroyProgram(program)
        used = re.findall(r"Compiling entry function '([^']+)'.*?Used (\d+) registers", log, re.DOTALL)
        return ptx, {entry: int(count) for entry, count in used}, lowered

    def _unassembled(self, code: DeviceCode, headers: Mapping[bytes, bytes], options: Sequence[str]) -> str:
        """The PTX that ptxas has refused; empty where there is none."""
        nvrtc = self.nvrtc
        program = nvrtc.createProgram(code.text + self.opened, self.name, [*headers.values()], [*headers])
        virtual = [re.sub(r"^-arch=sm_", "-arch=compute_", option) for option in options if "ptxas" not in option]
        try:
            for instance in self.instances:
                nvrtc.addNameExpression(program, instance)
            nvrtc.compileProgram(program, tuple(virtual))
            return _text(nvrtc.getPTX(program)).rstrip("\0")
        except nvrtc.NVRTCError:
            return ""
        finally:
            nvrtc.destroyProgram(program)


def _at_lines_of_the_source(log: str, ptx: str) -> str:
    """What ptxas says about lines of the PTX, once for each line of the source that they come from."""
    files, lines = source_files(ptx), ptx.splitlines()
    named: dict[str, None] = {}
    for number, message in _ASSEMBLER_ERROR.findall(log):
        place = next((at for line in lines[int(number) - 1 :: -1] if (at := _PLACE.match(line))), None)
        if place is None or int(place[1]) not in files:
            return log
        caller = f" (inlined at line {place[4]} of {Path(files[int(place[3])]).name})" if place[3] else ""
        named[f"{files[int(place[1])]}({place[2]}): error: ptxas: {message}{caller}"] = None
    return "\n".join(named)


def compile_source(
    text: str,
    name: str,
    defines: Mapping[str, str | int],
    folders: Sequence[str],
    more: Sequence[str],
    entries: Sequence[str],
    arch: str,
) -> Compiled:
    """PTX of a source, for an architecture.

    ``entries`` are the kernels that are wanted, with template arguments where they are instances; none stands for all.
    Raises ``CompileError`` and ``CompilerUnavailable``."""
    if "\0" in text:
        raise CompileError(f"{name} holds a zero byte: it is not CUDA C++")
    nvrtc = _nvrtc()
    files: SourceFiles | SourceError
    try:
        files = SourceFiles(text, name, folders)
    except SourceError as error:
        files = error
    texts = [text] if isinstance(files, SourceError) else [text, *(header.text for header in files.headers)]
    searched = (*folders, *cuda_headers(), *(random_headers() if any(RANDOM in part for part in texts) else ()))
    standard = standard_headers(searched)
    options = [f"-arch={arch}", "-lineinfo", "-device-int128", "--ptxas-options=-v", "-w", *more]
    if not any(option.lstrip("-").startswith("std=") for option in more):
        options.append("-std=c++17")
    options += [f"-D{key}={value}" for key, value in defines.items()]
    options += [f"-I{folder}" for folder in searched]
    instances = [entry for entry in entries if is_instance(entry)]
    job = _Job(nvrtc, name, options, standard, instances)
    if isinstance(files, SourceError):
        return _untouched(job, text, files)
    job.opened = _opened(files, instances)
    words = frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(instances)))
    given = (re.match(r"(?:-D|--define-macro=)(\w+)", option) for option in options)
    defined = frozenset(found[1] for found in given if found)
    code = HostCode(files, searched, [header.decode() for header in standard], words, defined=defined)
    sources = {name: text, **{header.name: header.text for header in files.headers}}
    templates, examples = files.templates(), files.examples()
    guessed = [f"{header} is {found}: --include FOLDER names another" for header, found in files.guessed.items()]

    def compiled(job: _Job) -> Compiled:
        ptx, registers, lowered, notes = _without_host_code(job, code, entries)
        return Compiled(ptx, registers, lowered, sources, templates, examples, notes=(*guessed, *notes))

    result = compiled(job)
    if not {"-G", "--device-debug"} & {*more}:
        kept = [option for option in options if option not in ("-lineinfo", "--ptxas-options=-v")]
        kept = [option.replace("-arch=sm_", "-arch=compute_") for option in kept]  # ptxas takes long, and is not needed
        result.unoptimised = lambda: compiled(replace(job, options=[*kept, "-G"]))
    return result


def is_instance(entry: str) -> bool:
    """Whether a kernel's name has template arguments."""
    return "<" in entry.partition("(")[0]


def errors_in(log: str) -> str:
    """A compiler's log without what ptxas reports of kernels that it has compiled."""
    return re.sub(r"(?m)^ptxas (info +:|        ).*\n?", "", log.replace("\0", "")).strip()


def _opened(files: SourceFiles, instances: Sequence[str]) -> str:
    """Directives that open the namespaces around kernels that are named without all of them."""
    opened: dict[str, None] = {}
    for instance in instances:
        spaces = files.namespaces(_bare(instance))
        if not any(instance.replace(" ", "").startswith(f"{space}::") for space in spaces if "::" not in space):
            opened.update(dict.fromkeys(spaces))
    return "".join(f"\nusing namespace {space};" for space in opened)


def _bare(entry: str) -> str:
    """The name of a kernel without namespaces, template arguments and parameters."""
    return re.sub(r"<.*|\(.*", "", entry, flags=re.DOTALL).split("::")[-1].strip()


def compile_with_nvcc(
    text: str,
    name: str,
    defines: Mapping[str, str | int],
    folders: Sequence[str],
    more: Sequence[str],
    entries: Sequence[str],
    arch: str,
) -> Compiled:
    """PTX of a source and its host code as nvcc compiles them, with the host's compiler and headers.

    Raises ``CompileError``, and ``CompilerUnavailable`` where there is no nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise CompilerUnavailable("there is no nvcc on the path; without --nvcc, NVRTC compiles what is for the device")
    command = [nvcc, "-ptx", f"-arch={arch}", "-lineinfo", *more]
    command += [f"-D{key}={value}" for key, value in defines.items()] + [f"-I{folder}" for folder in folders]
    wanted = [entry for entry in entries if is_instance(entry)]
    instances = "".join(f"static void* workbench_instance_{i} = (void*)({name});\n" for i, name in enumerate(wanted))
    with TemporaryDirectory() as folder:
        given, made = Path(folder, "given.cu"), Path(folder, "made.ptx")
        given.write_text(f'#line 1 "{name}"\n{text}\n{instances}')
        try:
            done = subprocess.run([*command, "-o", str(made), str(given)], capture_output=True, text=True, check=False)
        except OSError as error:
            raise CompilerUnavailable(f"nvcc cannot be run: {error}") from None
        if done.returncode or not made.is_file():
            raise CompileError(f"{Path(name).name} does not compile:\n{(done.stderr or done.stdout).strip()}")
        return Compiled(made.read_text(), {}, {}, {name: text})


def _without_host_code(
    job: _Job, code: HostCode, entries: Sequence[str]
) -> tuple[str, dict[str, int], dict[str, str], tuple[str, ...]]:
    """Compiles what is for the device, and less of it where what is not needed does not compile."""
    message = ""
    for _ in range(_MOST_ATTEMPTS):
        device = code.device_code()
        try:
            return *job.compile(device), _notes(device)
        except CompileError as error:
            log = str(error)
        failed = [(file, int(line)) for file, line in _ERROR.findall(log)]
        for file, line in code.launches():
            if (file, line) in failed and not (entries and not code.kernels):
                raise CompileError(
                    f"{Path(file).name}:{line}: a kernel launches another one here, which is not emulated: launch both "
                    "from the host, the other one by --then"
                )
        message = message or f"{_missing(device)}{Path(job.name).name} does not compile:\n{log}{_hints(log, device)}"
        if not device.has_host_code:
            break
        if entries and not code.kernels:
            code.kernels, message = frozenset(map(_bare, entries)), ""
        elif not code.refuse(failed):
            break
    raise CompileError(message)


def _untouched(job: _Job, text: str, error: SourceError) -> Compiled:
    """Compiles a source that cannot be taken apart as it is."""
    try:
        ptx, registers, lowered = job.compile(
            DeviceCode(text, {"workbench/implicit.h": ""}, "workbench/implicit.h", False)
        )
    except CompileError as refused:
        name = Path(job.name).name
        raise CompileError(
            f"{name} does not compile:\n{refused}\n{name}:{error.line}: host code cannot be taken out: {error}"
        ) from None
    return Compiled(ptx, registers, lowered, {job.name: text})


def _hints(log: str, code: DeviceCode) -> str:
    """What the compiler misses since it was taken out."""
    lines = []
    if "__nv_name_map(" in log:
        lines.append("no template fits the instance that is named: compare its arguments, and how it is qualified")
    for name in dict.fromkeys(_UNDEFINED.findall(log)):
        if name in code.taken_out:
            lines.append(
                f"{name} ({code.taken_out[name]}) is host code, which was left out: a kernel can use it when it is "
                "marked __device__, or constexpr"
            )
    return "".join(f"\n{line}" for line in lines)


def _missing(code: DeviceCode) -> str:
    """Which headers were not found: what the compiler misses may come from them."""
    lines = [
        f"{place}: {header} is not found and left out: --include FOLDER names its folder\n"
        for header, place in code.absent.items()
    ]
    return "".join(lines)


def _notes(code: DeviceCode) -> tuple[str, ...]:
    """What a user should know though the source compiles: that headers are missing, which may decide what is judged."""
    notes = _missing(code).splitlines()
    headers = ", ".join([*code.left_out, *code.absent][:_MOST_NAMED])
    notes += [
        f"{place}: an #if reads {macro}, which nothing defines here, and which a header that was left out ({headers}) "
        f"may define: --define {macro}=1 chooses the other branch"
        for macro, place in code.undecided.items()
    ]
    return tuple(notes)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def load_nvrtc() -> Any:
    """CuPy's module of NVRTC. Raises ``ImportError`` with the reason, in one line, where it cannot be used."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        raise ImportError(str(error).splitlines()[0] if str(error) else repr(error)) from None
    return nvrtc


def _nvrtc() -> Any:
    try:
        return load_nvrtc()
    except ImportError as error:
        raise CompilerUnavailable(
            f"CUDA C++ needs NVRTC, the CUDA run-time compiler, which cannot be loaded ({error}); install it with: "
            "pip install 'kernel-workbench[cuda13]', or give PTX, which needs no compiler"
        ) from None
