"""CUDA C++ or PTX, as text or in a file, to a program. The only place that needs a compiler, and only for CUDA C++."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from .architectures import DEFAULT, architecture
from .compiler import Compiled, CompileError, CompilerUnavailable, compile_source, compile_with_nvcc
from .host_code import SourceError, SourceFiles
from .mangled import kernel_name_of, matches
from .program import Entry, Program

__all__ = [
    "CompileError",
    "CompilerUnavailable",
    "DamagedData",
    "Image",
    "holds_images",
    "images",
    "load",
    "signatures",
]

_PTX = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_ARCH_OPTION = re.compile(r"(?:-arch|--gpu-architecture)[= ](.*)")
_NAME_OF_TEXT = "kernel.cu"
_ASSEMBLER_SECONDS = 60
_NEWEST_TARGET = 90


def load(
    source: str | PathLike[str],
    *,
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    entry: str | Sequence[str] | None = None,
    nvcc: bool = False,
    arch: str | None = None,
) -> Program:
    """Compiles CUDA C++, or takes PTX as it is. Kernels are decoded as ``Program.from_ptx`` says.

    PTX that NVRTC makes is assembled at once. A kernel of other PTX is assembled when it is decoded, if ptxas is
    installed. So what a GPU's driver would refuse is refused here.

    ``source`` is the text, or the path of a ``.cu`` or ``.ptx`` file, or of a fat binary, object file, library or
    program that nvcc made, with PTX in it: a string of several lines, or with a brace, is text. ``defines`` are
    macros and ``include`` folders for CUDA C++; a file's own folder is searched too. ``options`` are further flags of
    the compiler, such as ``-use_fast_math``.
    ``entry`` is the kernel that is wanted, such as ``scale`` or a template's instance, ``scale<float>``, or several:
    of a source with host code others need not compile.

    ``arch`` is the architecture of the device, one of ``ARCHITECTURES``: CUDA C++ is compiled for it, and its limits
    hold for launches. None stands for sm_90a, or for what PTX names as its ``.target``.

    Host code is left out, with its lines blank: functions for the host, what only they need, and headers of host
    libraries. Headers in quotes that lie beside the file are treated like it. With ``nvcc``, nvcc compiles the
    source as it is instead, where it is installed, with the host's compiler and headers.

    Raises ``ArchitectureError``, ``CompileError``, ``CompilerUnavailable``, ``PtxSyntaxError``,
    ``UnsupportedInstruction``, and ``OSError`` for a file that cannot be read."""
    entries = [entry] if isinstance(entry, str) else list(entry or ())
    path, text = _read(source, entries)
    if _PTX.search(text) or (path is not None and path.suffix == ".ptx"):
        name = path.name if path else "kernel.ptx"
        return Program.from_ptx(
            text,
            str(path) if path else name,
            check=lambda of_kernel, device: _check_with_assembler(of_kernel, name, device),
            arch=arch,
        )
    folders = [str(folder) for folder in include]
    if path is not None:
        folders.insert(0, str(path.parent))
    name = str(path) if path else _NAME_OF_TEXT
    compiler = compile_with_nvcc if nvcc else compile_source
    device, options = _device(arch, options)
    compiled = compiler(text, name, dict(defines or {}), folders, options, entries, device)
    program = _named(compiled, name, device)
    program.registers_per_thread.update(compiled.registers)
    if (unoptimised := compiled.unoptimised) is not None:
        program.unoptimised = cache(lambda: _named(unoptimised(), name, device))
    program.notes = compiled.notes
    program.templates.update(compiled.templates)
    program.examples.update(compiled.examples)
    return program


def _named(compiled: Compiled, name: str, device: str) -> Program:
    """The program that has been compiled; instances of templates have their names."""
    program = Program.from_ptx(compiled.ptx, name, sources=compiled.sources, arch=device)
    for instance, mangled in compiled.instances.items():
        if mangled in program.entries:
            program.entries.alias(instance, mangled)
    return program


def signatures(source: str | PathLike[str], include: Sequence[str | PathLike[str]] = ()) -> list[tuple[str, list[str]]]:
    """The kernels of a source that ``load`` takes, without compiling it: names and parameters.

    A parameter of CUDA C++ is written as in the source (``const float* x``); of PTX it is the type that the kernel's
    name has, or that PTX gives it (``u64``), since PTX keeps no names. Raises ``CompileError`` and ``OSError``."""
    path, text = _read(source, [])
    if not _PTX.search(text):
        return source_files(text, path, include).signatures()
    found = []
    for mangled, signature in Program.signatures(text).items():
        name = kernel_name_of(mangled)
        parameters = name.parameters[1:-1].split(", ") if name.parameters else [p.type for p in signature.parameters]
        found.append((f"{name.name}{name.arguments}", [parameter for parameter in parameters if parameter]))
    return found


def listed(
    source: Path, include: Sequence[str | PathLike[str]] = ()
) -> tuple[list[tuple[str, list[str]]], dict[str, str], list[str]]:
    """What ``signatures`` has, instances of those kernels that are templates, and macros that only a build can define.

    Raises as ``signatures`` does."""
    path, text = _read(source, [])
    if _PTX.search(text):
        return signatures(source), {}, []
    files = source_files(text, path, include)
    return files.signatures(), files.examples(), files.undefined()


def source_files(text: str, path: Path | None, include: Sequence[str | PathLike[str]] = ()) -> SourceFiles:
    """CUDA C++, taken apart. Raises ``CompileError`` and ``OSError``."""
    try:
        return SourceFiles(text, str(path or _NAME_OF_TEXT), [str(folder) for folder in include])
    except SourceError as error:
        raise CompileError(f"{path or _NAME_OF_TEXT}({error.line}): error: {error}") from None


def _read(source: str | PathLike[str], entries: Sequence[str]) -> tuple[Path | None, str]:
    """The path, where it is no text, and CUDA C++ or PTX. Raises ``CompileError`` and ``OSError``."""
    if isinstance(source, str) and ("\n" in source or "{" in source or _PTX.search(source)):
        return None, source.removeprefix("\ufeff").rstrip("\0")
    path = Path(source)
    data = path.read_bytes()
    text = data if data.startswith(b"\x7fELF") else data.rstrip(b"\0")  # some compilers end PTX as C ends a text
    if b"\0" not in text:
        return path, text.decode("utf-8-sig", errors="replace")

    if holds_images(data):
        return path, _ptx_in(data, path, entries)
    raise CompileError(f"{path.name} holds a zero byte: it is neither CUDA C++ nor PTX")


def _device(arch: str | None, options: Sequence[str]) -> tuple[str, list[str]]:
    """The architecture to compile for, which an option of NVRTC may name, too, and the other options."""
    named = [match[1] for option in options if (match := _ARCH_OPTION.fullmatch(option))]
    others = [option for option in options if not _ARCH_OPTION.fullmatch(option)]
    return architecture(arch or (named[-1] if named else DEFAULT)), others


@lru_cache(maxsize=64)
def _check_with_assembler(text: str, name: str, arch: str) -> None:
    """Raises ``CompileError`` for PTX that ptxas refuses; does nothing where there is no ptxas, or one too old."""
    assembler = _assembler()
    if assembler is None:
        return
    with TemporaryDirectory() as folder:
        given = Path(folder, "kernel.ptx")
        given.write_text(text)
        command = [assembler, f"-arch={arch}", "-c", "-O0", "-o", str(given.with_suffix(".cubin")), str(given)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ASSEMBLER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return
    error = re.search(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", done.stderr)
    if error and "Unsupported .version" not in done.stderr:
        raise CompileError(f"{name}:{error[1]}: ptxas refuses it: {error[2]}")


@cache
def _assembler() -> str | None:
    """Where ptxas is: in a wheel of NVIDIA's, in a CUDA toolkit or on the path."""
    with suppress(Exception):  # an older cuda-pathfinder does not look for programs
        from cuda.pathfinder import find_nvidia_binary_utility

        if found := find_nvidia_binary_utility("ptxas"):
            return str(found)
    return shutil.which("ptxas")


def _ptx_in(data: bytes, path: Path, entries: Sequence[str]) -> str:
    """The PTX with the kernels that are wanted in a fat binary, or in an object file, library or program with some."""

    try:
        found = list(images(data))
    except DamagedData as error:
        raise CompileError(f"{path.name} cannot be read: {error}") from None
    modules = [image for image in found if image.is_ptx]
    if not modules:
        listed = ", ".join(sorted({f"sm_{image.architecture}" for image in found if image.architecture}))
        raise CompileError(
            f"{path.name} holds machine code{f' for {listed}' if listed else ''} and no PTX: compile it with "
            "-gencode arch=compute_90,code=compute_90, which puts PTX into it"
        )
    modules = [module for module in modules if module.target[0] <= _NEWEST_TARGET] or modules
    texts = {module.contents.decode(errors="replace"): module.target for module in modules}
    kernels = {text: sorted(Program.signatures(text)) for text in texts}
    fitting = [text for text in texts if all(any(_means(name, entry) for name in kernels[text]) for entry in entries)]
    if not fitting or len({tuple(kernels[text]) for text in fitting}) > 1:
        names = sorted({str(kernel_name_of(name)) for text in texts for name in kernels[text]})
        if not names:
            raise CompileError(f"the PTX in {path.name} has no kernel")
        asked = (
            f"there is no kernel {' and '.join(entries)}, or several" if entries else "say which kernel is the entry"
        )
        raise CompileError(f"{asked}; {path.name} has: {', '.join(names)}")
    return max(fitting, key=lambda text: texts[text])


def _means(name: str, wanted: str) -> bool:
    return name == wanted or matches(kernel_name_of(name), wanted)


def _commas(parameters: str) -> int:
    """Commas that are not within the parameters or template arguments of a parameter."""
    outer, shorter = parameters, re.sub(r"\([^()]*\)|<[^<>]*>", "", parameters)
    while shorter != outer:
        outer, shorter = shorter, re.sub(r"\([^()]*\)|<[^<>]*>", "", shorter)
    return outer.count(",")


def kernel_name(program: Program, wanted: str) -> str | None:
    """The entry that a name from the CUDA source means, or None when none or several fit.

    It may have namespaces, template arguments and the types of parameters, or leave them out."""
    if wanted in program.entries:
        return wanted
    names = program.entries.kernels
    fitting = [name for name in names if matches(kernel_name_of(name), wanted)]
    if not fitting and wanted.endswith(")"):  # an alias of a type, which PTX does not know
        bare, _, parameters = wanted.partition("(")
        fitting = [name for name in names if matches(kernel_name_of(name), bare)]
        fitting = [n for n in fitting if _commas(kernel_name_of(n).parameters[1:-1]) == _commas(parameters[:-1])]
    return fitting[0] if len(fitting) == 1 else None


@cache
def nothing() -> Entry:
    """A kernel that does nothing, in whose place something else is done."""
    header = ".version 8.0\n.target sm_90\n.address_size 64\n"
    return load(f"{header}.visible .entry nothing() {{\n    ret;\n}}\n").entries["nothing"]


# PTX out of what nvcc and fatbinary write: fat binaries, and object files, libraries and programs that hold them.

# The format is known from files: a header of 16 bytes (magic, version, its size, the size of what follows), then
# entries, each a header (kind, its size, the size of its contents, the compressed size, the architecture, flags, the
# size when decompressed) and contents.


_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_KIND_PTX, _KIND_CUBIN = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_ENTRY = struct.Struct("<HHIQ I I HH I II QQQ")
_EM_CUDA = 190
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


class DamagedData(ValueError):
    """A fat binary that is cut or damaged."""


@dataclass(frozen=True, slots=True)
class Image:
    """One entry of a fat binary: PTX or machine code (a cubin), for an architecture such as 90."""

    is_ptx: bool
    architecture: int
    contents: bytes

    @property
    def target(self) -> tuple[int, str]:
        """Of PTX, the architecture that it names, and its letter."""
        found = _TARGET.search(self.contents)
        return (int(found[1]), found[2].decode()) if found else (self.architecture, "")


def holds_images(data: bytes) -> bool:
    """Whether bytes are a cubin, or hold a fat binary, and not text."""
    return data[:4] == b"\x7fELF" or _MAGIC in data


def images(data: bytes) -> Iterator[Image]:
    """All images in the bytes of a file. Raises ``DamagedData``."""
    if data[:4] == b"\x7fELF" and len(data) > 20 and struct.unpack_from("<H", data, 18)[0] == _EM_CUDA:
        yield Image(False, 0, data)
        return
    at = data.find(_MAGIC)
    while at >= 0:
        end = at + 16 + int.from_bytes(data[at + 8 : at + 16], "little")
        if end > len(data):
            raise DamagedData("a fat binary is longer than the file that holds it")
        yield from _entries(data, at + 16, end)
        at = data.find(_MAGIC, end)


def _entries(data: bytes, at: int, end: int) -> Iterator[Image]:
    while at + _ENTRY.size <= end:
        kind, _, header, size, packed, _, _, _, architecture, _, _, flags, _, unpacked = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size or at + header + size > end:
            raise DamagedData("an entry of a fat binary is longer than the fat binary")
        contents = data[at + header : at + header + size]
        if kind == _KIND_PTX:
            yield Image(True, architecture, _unpacked(contents, flags, packed, unpacked).rstrip(b"\0"))
        elif kind == _KIND_CUBIN:
            yield Image(False, architecture, contents)
        at += header + size


def _unpacked(contents: bytes, flags: int, packed: int, unpacked: int) -> bytes:
    if not flags & (_ZSTD | _LZ4):
        return contents
    import lz4.block  # which few files need
    import zstandard

    try:
        if flags & _ZSTD:
            found = zstandard.ZstdDecompressor().decompress(contents[: packed or None], max_output_size=unpacked)
        else:
            found = lz4.block.decompress(contents[:packed], uncompressed_size=unpacked)
    except (zstandard.ZstdError, lz4.block.LZ4BlockError, MemoryError, OverflowError, ValueError) as error:
        raise DamagedData(f"an entry of a fat binary cannot be decompressed: {error}") from None
    if len(found) != unpacked:
        raise DamagedData(f"{len(found)} bytes come out of an entry of a fat binary that should hold {unpacked}")
    return bytes(found)
