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
from typing import Any

from .headers import cuda_headers, standard_headers
from .program import Program

__all__ = ["CompileError", "CompilerUnavailable", "load"]

_PTX = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_NAME_OF_TEXT = "kernel.cu"
_ASSEMBLER_SECONDS = 60


class CompileError(ValueError):
    """NVRTC refused the source, or ptxas the PTX; the message holds what was said."""


class CompilerUnavailable(RuntimeError):
    """CUDA C++ was given and NVRTC cannot be loaded; the message says what to install."""


def load(
    source: str | PathLike[str],
    *,
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    instantiate: str | None = None,
) -> Program:
    """Compiles CUDA C++ for sm_90a, or takes PTX as it is. Kernels are decoded as ``Program.from_ptx`` says.

    NVRTC has the PTX that it makes assembled; a kernel of PTX that is given is assembled too when it is decoded, where
    ptxas is installed, so that what a GPU's driver would refuse is refused here.

    ``source`` is the text, or the path of a ``.cu`` or ``.ptx`` file: a string of several lines, or with a brace, is
    text. ``defines`` are macros and ``include`` folders for CUDA C++; a file's own folder is searched too.
    ``options`` are further flags of NVRTC, such as ``-use_fast_math``.
    ``instantiate`` is a template to be compiled, such as ``scale<float>``.

    Raises ``CompileError``, ``CompilerUnavailable``, ``PtxSyntaxError``, ``UnsupportedInstruction``, and ``OSError``
    for a file that cannot be read.
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
            text, str(path) if path else name, check=lambda of_kernel: _check_with_assembler(of_kernel, name)
        )
    folders = [str(folder) for folder in include]
    if path is not None:
        folders.insert(0, str(path.parent))
    name = str(path) if path else _NAME_OF_TEXT
    ptx, registers, lowered = _compile(text, name, dict(defines or {}), folders, options, instantiate)
    program = Program.from_ptx(ptx, name, sources={name: text})
    program.registers_per_thread.update(registers)
    if instantiate is not None and lowered in program.entries:
        program.entries.alias(instantiate, lowered)
    return program


def _compile(
    text: str,
    name: str,
    defines: Mapping[str, str | int],
    folders: Sequence[str],
    more: Sequence[str],
    instantiate: str | None,
) -> tuple[str, dict[str, int], str]:
    """PTX, registers a thread by entry as ptxas reports them, and the mangled name of the instance."""
    nvrtc = _nvrtc()
    options = ["-arch=sm_90a", "-lineinfo", "-device-int128", "--ptxas-options=-v", *more]
    if not any(option.lstrip("-").startswith("std=") for option in more):
        options.append("-std=c++17")
    options += [f"-D{key}={value}" for key, value in defines.items()]
    searched = (*folders, *cuda_headers())
    options += [f"-I{folder}" for folder in searched]
    if "\0" in text:
        raise CompileError(f"{name} holds a zero byte: it is not CUDA C++")
    standard = standard_headers(searched)
    program = nvrtc.createProgram(text, name, [*standard.values()], [*standard])
    try:
        try:
            if instantiate is not None:
                nvrtc.addNameExpression(program, instantiate)
            nvrtc.compileProgram(program, tuple(options))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program).strip("\0 \n")
            raise CompileError(f"{Path(name).name} does not compile:\n{log or error}") from None
        ptx = nvrtc.getPTX(program)
        lowered = nvrtc.getLoweredName(program, instantiate) if instantiate is not None else ""
        log = nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    used = re.findall(r"Compiling entry function '([^']+)'.*?Used (\d+) registers", log, re.DOTALL)
    return (
        (ptx.decode() if isinstance(ptx, bytes) else str(ptx)).rstrip("\0"),
        {entry: int(count) for entry, count in used},
        lowered.decode() if isinstance(lowered, bytes) else str(lowered),
    )


@lru_cache(maxsize=64)
def _check_with_assembler(text: str, name: str) -> None:
    """Raises ``CompileError`` for PTX that ptxas refuses; does nothing where there is no ptxas, or one too old."""
    assembler = _assembler()
    if assembler is None:
        return
    with TemporaryDirectory() as folder:
        given = Path(folder, "kernel.ptx")
        given.write_text(text)
        command = [assembler, "-arch=sm_90a", "-c", "-O0", "-o", str(given.with_suffix(".cubin")), str(given)]
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


def _nvrtc() -> Any:
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise CompilerUnavailable(
            f"CUDA C++ needs NVRTC, the CUDA run-time compiler, which cannot be loaded ({reason}); install it with: "
            "pip install cupy-cuda13x nvidia-cuda-nvrtc, or give PTX, which needs no compiler"
        ) from None
    return nvrtc


def kernel_name(program: Program, wanted: str) -> str | None:
    """The entry that a name from the CUDA source means, or None when none or several fit."""
    if wanted in program.entries:
        return wanted
    parts = wanted.split("::")
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    mangled = f"_Z{mangled}" if len(parts) == 1 else f"_ZN{mangled}E"
    fitting = [name for name in program.entries if name.startswith(mangled)]
    return fitting[0] if len(fitting) == 1 else None
