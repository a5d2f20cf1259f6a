"""CUDA C++ or PTX, as text or in a file, to a program. The only place that needs a compiler, and only for CUDA C++."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from .architectures import DEFAULT, architecture
from .compiler import CompileError, CompilerUnavailable, compile_source
from .program import Program

__all__ = ["CompileError", "CompilerUnavailable", "load"]

_PTX = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_ARCH_OPTION = re.compile(r"(?:-arch|--gpu-architecture)[= ](.*)")
_NAME_OF_TEXT = "kernel.cu"
_ASSEMBLER_SECONDS = 60


def load(
    source: str | PathLike[str],
    *,
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    entry: str | None = None,
    arch: str | None = None,
) -> Program:
    """Compiles CUDA C++, or takes PTX as it is. Kernels are decoded as ``Program.from_ptx`` says.

    NVRTC has the PTX that it makes assembled; a kernel of PTX that is given is assembled too when it is decoded, where
    ptxas is installed, so that what a GPU's driver would refuse is refused here.

    ``source`` is the text, or the path of a ``.cu`` or ``.ptx`` file: a string of several lines, or with a brace, is
    text. ``defines`` are macros and ``include`` folders for CUDA C++; a file's own folder is searched too.
    ``options`` are further flags of NVRTC, such as ``-use_fast_math``.
    ``entry`` is the kernel that is wanted, such as ``scale`` or a template's instance, ``scale<float>``: of a source
    with host code others need not compile.

    ``arch`` is the architecture of the device, one of ``ARCHITECTURES``: CUDA C++ is compiled for it, and its limits
    hold for launches. None stands for sm_90a, or for what PTX names as its ``.target``.

    Host code is left out, with its lines blank: functions for the host, what only they need, and headers of host
    libraries. Headers in quotes that lie beside the file are treated like it.

    Raises ``ArchitectureError``, ``CompileError``, ``CompilerUnavailable``, ``PtxSyntaxError``,
    ``UnsupportedInstruction``, and ``OSError`` for a file that cannot be read.
    """
    if isinstance(source, str) and ("\n" in source or "{" in source or _PTX.search(source)):
        path, text = None, source
    else:
        path = Path(source)
        text = path.read_text(errors="replace")
    if text.startswith("\x7fELF"):
        raise CompileError(f"{path or 'the text'} is a cubin, machine code of one device: give its PTX or its source")
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
    device, options = _device(arch, options)
    compiled = compile_source(text, name, dict(defines or {}), folders, options, entry, device)
    program = Program.from_ptx(compiled.ptx, name, sources=compiled.sources, arch=device)
    program.registers_per_thread.update(compiled.registers)
    program.templates.update(compiled.templates)
    if entry is not None and compiled.instance in program.entries:
        program.entries.alias(entry, compiled.instance)
    return program


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


def kernel_name(program: Program, wanted: str) -> str | None:
    """The entry that a name from the CUDA source means, or None when none or several fit."""
    if wanted in program.entries:
        return wanted
    parts = wanted.split("::")
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    mangled = f"_Z{mangled}" if len(parts) == 1 else f"_ZN{mangled}E"
    fitting = [name for name in program.entries if name.startswith(mangled)]
    return fitting[0] if len(fitting) == 1 else None
