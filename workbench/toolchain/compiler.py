"""NVRTC: a CUDA source and its defines become PTX and a cubin, with resource usage, cached on disk by content.

Whoever executes PTX needs no cubin: `translate_stage` leaves it out, which takes two fifths of the time, until it is
asked for."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..model.origin import SOURCES
from ..model.problem import Problem
from ..model.results import Resources
from ..model.stage import Stage
from . import compiling
from .compiling import CompileError as CompileError
from .compiling import CompilerUnavailable as CompilerUnavailable

INCLUDE = SOURCES / "include"
"""Headers that every source may include."""

FORMAT = 2
"""Of the entries of the cache: another one has other names, so that versions of the workbench can share a cache."""

MOST_BYTES = 16 << 20
"""Of a source with the headers that it includes, those of CUDA excepted."""

MOST_SAID = 20_000
"""Characters of the compiler's diagnostics that are kept."""

ASSEMBLED, ASKED = ".assembled", ".asked"
"""Files of the cache: a variant of this source has been assembled; that was asked for after it had been translated."""

Defines = tuple[tuple[str, str], ...]
"""Macros and their values, sorted."""


@dataclass(frozen=True)
class KernelUsage:
    """Resources of one entry point, as ptxas reports them: registers a thread, bytes of shared memory and spills."""

    registers: int
    static_shared: int
    spill_bytes: int
    stack_bytes: int


@dataclass(frozen=True)
class Assembled:
    """What ptxas made of the PTX of a source, and the resources that it reports for every entry point."""

    cubin_path: Path
    usage: Mapping[str, KernelUsage]


@dataclass(frozen=True)
class Compiled:
    """One source compiled for one set of defines. `key` is the digest of everything that went into it.

    Where it is only translated to PTX so far, the first question for `cubin_path` or `usage` has it assembled. That
    raises what `compile_source` raises."""

    key: str
    name: str
    source: str
    digest: str
    defines: Defines
    architecture: str
    ptx: str
    made: Assembled | None = None

    @property
    def assembled(self) -> Assembled:
        """The cubin and its resources."""
        if self.made is not None:
            return self.made
        if source_digest(Path(self.source)) != self.digest:
            raise CompileError(f"{self.name} has changed since it was read: start again")
        made = _compile(Path(self.source), self.digest, self.defines, self.architecture).made
        assert made is not None
        _set_mark(Path(self.source), self.digest, self.architecture, ASKED)
        return made

    @property
    def cubin_path(self) -> Path:
        """The file of the cubin."""
        return self.assembled.cubin_path

    @property
    def usage(self) -> Mapping[str, KernelUsage]:
        """Resources by entry point."""
        return self.assembled.usage

    @property
    def variant(self) -> str:
        """The defines in one line, `IN=float TRANS_B=1`."""
        return " ".join(f"{k}={v}" for k, v in self.defines)

    def binary_digest(self) -> str:
        """SHA-256 of the cubin, which is what runs."""
        return hashlib.sha256(self.cubin_path.read_bytes()).hexdigest()


_elsewhere: ContextVar[Path | None] = ContextVar("cache folder", default=None)


@contextmanager
def cached_in(folder: Path) -> Iterator[None]:
    """Keep what is compiled in this context in another folder, so that it does not fill the user's cache."""
    token = _elsewhere.set(folder)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def cache_folder() -> Path:
    """Where compiled kernels are kept: `$WORKBENCH_CACHE`, else `workbench` in the user's cache folder."""
    if folder := _elsewhere.get():
        return folder
    if chosen := os.environ.get("WORKBENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench"


def kept_source(code: str, name: str) -> Path:
    """The folder in which CUDA code that came as a string lies as the file `name`, for its content alone.

    Raises CompilerUnavailable where the cache cannot be written."""
    folder = cache_folder() / "sources" / hashlib.sha256(code.encode()).hexdigest()[:32]
    target, content = folder / name, code.encode()
    if not target.is_file() or target.read_bytes() != content:
        write(target, content)
    return folder


def sources_of(stage: Stage[Any]) -> Path:
    """The folder that the source of a stage is relative to. Raises CompilerUnavailable."""
    return stage.sources if stage.code is None else kept_source(stage.code, stage.source)


def source_of(stage: Stage[Any]) -> Path:
    """The file with the CUDA C++ of a stage; where that is a string, one in the cache. Raises CompilerUnavailable."""
    return sources_of(stage) / stage.source


@cache
def _version() -> tuple[int, int]:
    """Of NVRTC. Raises CompilerUnavailable."""
    try:
        from cuda.bindings import nvrtc  # CuPy has it too, and takes longer to load

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # as many kinds as there are ways to miss a library
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise CompilerUnavailable(
            f"NVRTC, the CUDA run-time compiler, cannot be loaded ({reason}); "
            "install it with: pip install 'kernel-workbench[cuda13]'"
        ) from None
    return major, minor


def nvrtc_version() -> str:
    """Version of NVRTC, `13.4`. Raises CompilerUnavailable."""
    return "{}.{}".format(*_version())


@cache
def cuda_headers() -> Path:
    """The folder with `cuda_bf16.h` and its siblings. Raises CompilerUnavailable."""
    from ..emulator.source_lines import header_folder  # only where something is compiled: that loads the emulator

    found = header_folder("cudart")
    if not found or not (Path(found) / "cuda_bf16.h").exists():
        raise CompilerUnavailable(
            "the CUDA headers (cuda_bf16.h) were not found; install them with: pip install 'kernel-workbench[cuda13]'"
        )
    return Path(found)


@cache
def more_cuda_headers() -> tuple[Path, ...]:
    """The folders with `cuda/barrier`, `nv/target` and `crt/mma.h`, as far as they are installed elsewhere."""
    from ..emulator.source_lines import header_folder

    wanted = (("cccl", "cuda/barrier"), ("nvcc", "crt/mma.h"))
    # a search beyond the installed packages starts a process
    found = [header_folder(library) for library, header in wanted if not (cuda_headers() / header).exists()]
    return tuple(dict.fromkeys(Path(folder) for folder in found if folder))


def source_digest(path: Path) -> str:
    """SHA-256 of a source and of every header that it includes, those of CUDA excepted."""
    parts = (
        text or str(name).encode() for name, text in contents(path).items()
    )  # it may be asked whether one is there
    return hashlib.sha256(b"".join(parts)).hexdigest()


def with_headers(path: Path) -> list[Path]:
    """The source and, depth first, the headers it includes from `header_folders`."""
    return list(contents(path))


def contents(path: Path) -> dict[Path, bytes]:
    """The source and, depth first, the headers that it includes or asks for from `header_folders`, as they are now.

    Where a name is computed, every file of those folders. Raises OSError, also for a header that is no regular file."""
    found: dict[Path, bytes] = {}
    todo, total = [path], 0
    folders = header_folders(path)
    places: dict[tuple[Path, str], list[Path]] = {}
    while todo:
        part = todo.pop()
        found[part] = _read(part)
        if (total := total + len(found[part])) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB with its headers", str(path))
        names, computed = _included(found[part])
        for name in names:
            place = part.parent, name
            if place not in places:
                places[place] = list(_places(name, part.parent, folders))
            todo += [h for h in places[place] if h not in found and h not in todo]
        if computed:
            todo += [h for h in _everything(folders) if h not in found and h not in todo]
    return found


def _places(name: str, beside: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    """Where the file is that an include of this name, with the sign before it, means; of one in angle brackets also
    what lies beside the file that includes it."""
    among = [os.path.join(folder, name[1:]) for folder in (beside, *folders)]  # noqa: PTH118  # Path takes longer
    for order in (among, among[1:]) if name[0] == "<" else (among,):
        if header := next((h for h in order if os.path.exists(h) and not os.path.isdir(h)), None):  # noqa: PTH110, PTH112
            yield Path(header)


def _everything(folders: tuple[Path, ...]) -> list[Path]:
    """The files of folders of headers but for ours, which no project changes."""
    return [file for folder in folders if folder != INCLUDE for file in sorted(folder.rglob("*")) if not file.is_dir()]


def _read(path: Path) -> bytes:
    """The content of a source. Raises OSError, also for what would never end (a pipe, a device) or is too large."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if about.st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", str(path))
        return file.read(MOST_BYTES)


def names(path: Path) -> dict[Path, str]:
    """The source and the headers it includes, as `with_headers` lists them, and by which name each can be included from
    a folder that holds copies of all of them, the source at its top."""
    folders = header_folders(path)
    found = {}
    for part in with_headers(path):
        within = [str(part.relative_to(folder)) for folder in folders if part.is_relative_to(folder)]
        found[part] = min(within, key=len, default=part.name)
    return found


_DIRECTIVE = re.compile(r'^\s*(?:#|%:)\s*include(?:_next)?\b\s*(?:([<"][^>"\n]+)[>"])?', re.MULTILINE)
_QUESTION = re.compile(r'(?<!ifdef )(?<!defined )__has_include(?:_next)?\b(?!\s*\))(?:\s*\(\s*([<"][^>"\n]+)[>"])?')
_PASTED = re.compile(r"__has_\w*\s*##|##\s*\w*include")


@lru_cache(maxsize=1024)
def _included(code: bytes) -> tuple[tuple[str, ...], bool]:
    """The names that it includes or asks for, each behind its sign, and whether it computes one: looked for once in
    what is read many times.

    In the text with comments and without: what begins one may be part of a string."""
    text = re.sub(r"\\[ \t]*\r?\n", "", code.decode(errors="replace"))
    names: dict[str, None] = {}
    for read in (text, re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)):
        names |= dict.fromkeys(m[1] or "" for pattern in (_DIRECTIVE, _QUESTION) for m in pattern.finditer(read))
    computed = names.pop("", 0) is None or _PASTED.search(text) is not None
    return tuple(names), computed


def computes_names(path: Path) -> bool:
    """Whether a source, or a header of it, includes or asks for a header whose name it computes. Raises OSError."""
    return any(_included(text)[1] for text in contents(path).values())


def header_folders(path: Path) -> tuple[Path, ...]:
    """Where headers are looked for: beside the source, in `include` there, one or two folders up, then in ours."""
    beside = (folder for parent in path.parents[:3] if (folder := parent / "include").is_dir())
    return tuple(dict.fromkeys((path.parent, *beside, INCLUDE)))


def _options(architecture: str) -> tuple[str, ...]:
    options: tuple[str, ...] = (f"-arch={architecture}", "-std=c++17", "-device-int128", "-lineinfo")
    if architecture.startswith("sm_"):
        options += ("--ptxas-options=-v",)
    if _version() >= (12, 9):
        options += ("--no-cache",)  # NVRTC's own cache gives the binary back, but not what ptxas said of it
    return options


def load() -> None:
    """Load what is needed to know the compiler: the first time takes longer. Raises CompilerUnavailable."""
    nvrtc_version()
    more_cuda_headers()


def _key(path: Path, digest: str, defines: Defines, architecture: str) -> str:
    # the path is in the line information: findings in another checkout must not point to this one
    folders, options = [str(f) for f in header_folders(path)], _options(architecture)
    made_of = json.dumps([FORMAT, digest, str(path), folders, defines, options, nvrtc_version()])
    return hashlib.sha256(made_of.encode()).hexdigest()


def _entry(path: Path, key: str) -> tuple[Path, Path, Path]:
    """The files of an entry of the cache: PTX, cubin, and what ptxas reported."""
    stem = cache_folder() / f"{path.stem}-{key[:32]}"
    ptx, cubin, usage = (stem.with_name(stem.name + suffix) for suffix in (".ptx", ".cubin", ".json"))
    return ptx, cubin, usage


def _mark(path: Path, digest: str, architecture: str, suffix: str) -> Path:
    """The file of the cache that says something of all variants of a source."""
    return cache_folder() / f"{path.stem}-{_key(path, digest, (), architecture)[:32]}{suffix}"


def _set_mark(path: Path, digest: str, architecture: str, suffix: str) -> None:
    """Keep that all variants of a source are to be treated so. Raises CompilerUnavailable."""
    mark = _mark(path, digest, architecture, suffix)
    if not mark.exists():
        write(mark, b"")


@lru_cache(maxsize=512)
def _compile(path: Path, digest: str, defines: Defines, architecture: str) -> Compiled:
    key = _key(path, digest, defines, architecture)
    ptx_path, cubin_path, usage_path = _entry(path, key)
    if kept := _kept(ptx_path, cubin_path, usage_path):
        ptx, usage = kept
    else:
        ptx, cubin, usage = _run_nvrtc(path, defines, _options(architecture))
        kernels = {k: asdict(v) for k, v in usage.items()}
        write(ptx_path, ptx.encode())
        write(cubin_path, cubin)
        write(usage_path, json.dumps({"sha256": _digest(ptx.encode(), cubin), "kernels": kernels}).encode())
        _set_mark(path, digest, architecture, ASSEMBLED)
    return Compiled(key, path.name, str(path), digest, defines, architecture, ptx, Assembled(cubin_path, usage))


@lru_cache(maxsize=512)
def _translate(path: Path, digest: str, defines: Defines, architecture: str) -> Compiled:
    """As `_compile`, but without a cubin, where another variant of the same source has been assembled: what ptxas
    refuses is refused for the first one. Where the cubin of a variant was asked for later, those of the next ones will
    be: both at once take less than one after the other."""
    key = _key(path, digest, defines, architecture)
    alone = _entry(path, key)[0].with_suffix(".alone.ptx")
    if _kept(*_entry(path, key)) or not _was_assembled(path, digest, architecture):
        compiled = _compile(path, digest, defines, architecture)
        _set_mark(path, digest, architecture, ASSEMBLED)
        return compiled
    ptx = _kept_alone(alone)
    if ptx is None and _mark(path, digest, architecture, ASKED).exists():
        return _compile(path, digest, defines, architecture)
    if ptx is None:
        ptx, _, _ = _run_nvrtc(path, defines, _options(architecture.replace("sm_", "compute_")))
        write(alone, f"{_digest(ptx.encode(), b'')}\n{ptx}".encode())
    return Compiled(key, path.name, str(path), digest, defines, architecture, ptx)


def _was_assembled(path: Path, digest: str, architecture: str) -> bool:
    """Whether ptxas has taken a variant of this source."""
    return _mark(path, digest, architecture, ASSEMBLED).exists()


def _kept_alone(path: Path) -> str | None:
    """The PTX of an entry without a cubin, or None where it is not there as a whole."""
    with suppress(OSError, ValueError):
        digest, _, ptx = path.read_bytes().decode().partition("\n")
        if digest == _digest(ptx.encode(), b""):
            return ptx
    return None


def _kept(ptx_path: Path, cubin_path: Path, usage_path: Path) -> tuple[str, dict[str, KernelUsage]] | None:
    """What an entry of the cache holds, or None: where it is not there as a whole, as after a crash of the machine or
    on a disk that was full, it is made again."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        ptx, about = ptx_path.read_bytes(), json.loads(usage_path.read_bytes())
        if about["sha256"] == _digest(ptx, cubin_path.read_bytes()):
            return ptx.decode(), {k: KernelUsage(**v) for k, v in about["kernels"].items()}
    return None


def _digest(ptx: bytes, cubin: bytes) -> str:
    return hashlib.sha256(ptx + cubin).hexdigest()


def write(target: Path, content: bytes) -> None:
    """Write in one step, so that two processes can fill the cache at once. Raises CompilerUnavailable."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        raise CompilerUnavailable(
            f"the kernel cache {target.parent} cannot be written ({error.strerror}); "
            "set WORKBENCH_CACHE to a folder that can"
        ) from None


def target_of(architecture: int) -> str:
    """What NVRTC compiles for, `sm_90a`, on a device of this compute capability times ten."""
    return f"sm_{architecture}{'a' if architecture >= 90 else ''}"


def compile_source(path: Path, defines: Mapping[str, str | int], architecture: int = 90) -> Compiled:
    """Compile a CUDA source for a compute capability, times ten, to PTX and a cubin.

    Raises CompileError when the source does not compile, CompilerUnavailable without NVRTC or a cache that can be
    written, OSError when the source cannot be read."""
    return _compile(path, source_digest(path), _sorted(defines), target_of(architecture))


def compile_stage(stage: Stage[Any], problem: Problem, architecture: int | None = None) -> Compiled:
    """Compile a stage for a problem on a device of this compute capability, times ten; without one on its machine.

    Raises what `compile_source` raises, and whatever its declaration does."""
    return compile_source(source_of(stage), stage.defines(problem), architecture or stage.home.architecture)


def translate_source(path: Path, defines: Mapping[str, str | int], architecture: int = 90) -> Compiled:
    """As `compile_source`, for whoever executes the PTX: the cubin is made where it is asked for.

    One variant of every source is assembled all the same, so that PTX that ptxas refuses raises CompileError."""
    return _translate(path, source_digest(path), _sorted(defines), target_of(architecture))


def translate_stage(stage: Stage[Any], problem: Problem, architecture: int | None = None) -> Compiled:
    """As `compile_stage`, for whoever executes the PTX, by `translate_source`."""
    return translate_source(source_of(stage), stage.defines(problem), architecture or stage.home.architecture)


def _sorted(defines: Mapping[str, str | int]) -> Defines:
    return tuple((name, str(value)) for name, value in sorted(defines.items()))


def _run_nvrtc(path: Path, defines: Defines, options: tuple[str, ...]) -> tuple[str, bytes, dict[str, KernelUsage]]:
    from ..emulator.source_lines import standard_headers

    text = _read(path).decode(errors="replace")
    folders = (*header_folders(path), cuda_headers(), *more_cuda_headers())
    flags = [*options, *(f"-D{k}={v}" for k, v in defines), *(f"-I{folder}" for folder in folders)]
    try:
        readable = folders if computes_names(path) else ()  # so that the digest covers all that can be read
        made = compiling.run(text, str(path), flags, standard_headers(folders), readable)
    except CompileError as error:
        raise CompileError(_diagnostics(str(error), path, defines)) from None
    return made.ptx, made.cubin, _usage(made.log)


def _diagnostics(log: str, path: Path, defines: Defines) -> str:
    """The compiler's log; NVRTC already quotes the source line under each message."""
    from ..emulator.compiler import errors_in

    where = " ".join(f"{k}={v}" for k, v in defines)
    given = f" ({where})" if where else ""
    said = errors_in(log)
    rest = f"\n... and {len(said) - MOST_SAID:,} characters more" if len(said) > MOST_SAID else ""
    return f"{path.name} does not compile{given}:\n{said[:MOST_SAID]}{rest}{_missing_headers(said)}"


def _missing_headers(said: str) -> str:
    """What to include for names that a host's compiler knows, and NVRTC does not."""
    from ..emulator.host_code.stubs import header_of

    headers = {name: header_of(name) for name in re.findall(r'identifier "(\w+)" is undefined', said)}
    return "".join(f"\n{name}: add #include <{header}>" for name, header in headers.items() if header)


def _usage(log: str) -> dict[str, KernelUsage]:
    """Resource usage by entry point, from what `ptxas -v` printed into the log."""
    usage: dict[str, KernelUsage] = {}
    for chunk in log.split("Compiling entry function '")[1:]:
        name = chunk.split("'", 1)[0]

        def number(pattern: str, chunk: str = chunk) -> int:
            match = re.search(pattern, chunk)
            return int(match[1]) if match else 0

        usage[name] = KernelUsage(
            registers=number(r"Used (\d+) registers"),
            static_shared=number(r"(\d+) bytes smem"),
            spill_bytes=number(r"(\d+) bytes spill stores"),
            stack_bytes=number(r"(\d+) bytes stack frame"),
        )
    return usage


# -------------------------------------------------------------------------------------------------- occupancy


def resources(stage: Stage[Any], problem: Problem, architecture: int | None = None) -> list[Resources]:
    """What each kernel takes that the stage launches for `problem`, in launch order; on its machine where no
    `architecture` is given.

    Raises CompileError, CompilerUnavailable, OSError as `compile_stage` does, and ValueError for an architecture
    whose limits are not known."""
    from ..emulator.architectures import BY_CAPABILITY

    architecture = architecture or stage.home.architecture
    if architecture not in BY_CAPABILITY:
        known = ", ".join(f"{a / 10:.1f}" for a in BY_CAPABILITY)
        raise ValueError(f"no limits are known for compute capability {architecture / 10:.1f}; known are {known}")
    compiled = compile_stage(stage, problem, architecture)
    found = []
    for launch in stage.plan(problem).launches:
        usage = compiled.usage[launch.kernel]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fit = BY_CAPABILITY[architecture].occupancy(threads, usage.static_shared + launch.shared_bytes, usage.registers)
        found.append(
            Resources(
                variant=compiled.variant,
                kernel=launch.kernel,
                registers=usage.registers,
                static_shared=usage.static_shared,
                dynamic_shared=launch.shared_bytes,
                spill_bytes=usage.spill_bytes,
                block_threads=threads,
                blocks_per_sm=fit.blocks,
                occupancy=fit.fraction,
                limiter=fit.limiter,
            )
        )
    return found


def suite_resources(stage: Stage[Any], problems: tuple[Problem, ...]) -> list[Resources]:
    """`resources` of every variant that the supported ones of `problems` need, each variant once."""
    found: list[Resources] = []
    for problem in problems:
        if stage.supports(problem) is None:
            found += [r for r in resources(stage, problem) if r not in found]
    return found
