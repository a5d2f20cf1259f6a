"""Lines of the CUDA source: how findings name them, and their text; and the headers that kernels include."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from os import PathLike
from pathlib import Path

from .ptx import SourceLocation, text_of

# -------------------------------------------------------------------------------------------------------------- headers
RANDOM = "curand"
"""How the names of the headers of cuRAND begin."""

STANDARD = (
    *("algorithm", "array", "bit", "complex", "functional", "initializer_list", "limits", "numeric", "optional"),
    *("span", "tuple", "type_traits", "utility", "variant"),
    *("cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdlib", "cstring"),
)

_BUILT_INTO_NVRTC = "__nv_nvrtc_builtin_header.h"
_OF_CUDA = (
    "cooperative_groups/",
    "cooperative_groups.h",
    "cuda/std/",
    "cuda/__",
    "cub/block/",
    "cub/warp/",
    "cub/thread/",
)

MATHEMATICAL = {
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}
"""Constants of POSIX, which every host's <math.h> has."""


def header_folder(library: str) -> str | None:
    """The folder of the headers of a library of CUDA, such as ``cudart``; None where it is not installed."""
    with suppress(Exception):  # of several kinds, for whatever is not installed as expected
        from cuda.pathfinder import find_nvidia_header_directory

        return find_nvidia_header_directory(library) or None
    return None


@cache
def cuda_headers() -> tuple[str, ...]:
    """The folders with ``cuda_bf16.h``, ``cuda/barrier`` and ``crt/mma.h`` and their siblings, as far as installed."""
    found = map(header_folder, ("cudart", "cccl", "nvcc"))  # a source that includes none compiles all the same
    return tuple(dict.fromkeys(folder for folder in found if folder))


@cache
def random_headers() -> tuple[str, ...]:
    """The folder with ``curand_kernel.h``, where it is installed. Only for what names them: where no package has them,
    the search starts a process."""
    return tuple(filter(None, [header_folder("curand")]))


def standard_headers(folders: Sequence[str | PathLike[str]]) -> dict[bytes, bytes]:
    """Headers of C and C++ by name, but for those that these folders have; made of libcu++, where they have that.

    nvcc takes them from the host's compiler; NVRTC has none, and kernels written for nvcc include them."""
    if not any(Path(folder, "cuda", "std").is_dir() for folder in folders):
        return {}
    headers = {"cstdio": ""}  # printf is the compiler's own
    for name in STANDARD:
        headers[name] = f"#include <cuda/std/{name}>\n"
        headers[name] += "namespace cuda { namespace std {} }\nnamespace std { using namespace ::cuda::std; }\n"
    for macro, value in MATHEMATICAL.items():
        headers["cmath"] += f"#ifndef {macro}\n#define {macro} {value}\n#endif\n"
    for name in [name for name in headers if name[0] == "c"]:
        headers[f"{name[1:]}.h"] = f"#include <{name}>\n"
    own = {name for name in headers if any(Path(folder, name).is_file() for folder in folders)}
    return {name.encode(): text.encode() for name, text in headers.items() if name not in own}


@cache
def is_of_cuda(file: str) -> bool:
    """Whether a file is one of CUDA's headers, wherever they lie: PTX names those of the machine that compiled it."""
    path, folders = Path(file), cuda_headers()
    if path.name == _BUILT_INTO_NVRTC:
        return True
    if path.name.startswith(RANDOM):
        folders += random_headers()
    if any(path.is_relative_to(folder) for folder in folders):
        return True
    parts = path.parts
    for start in range(1, len(parts)):
        name = "/".join(parts[start:])
        if name.startswith(_OF_CUDA):
            return True
        if parts[start - 1] == "include" and any(Path(folder, name).is_file() for folder in folders):
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------- lines


def outside_cuda(location: SourceLocation) -> SourceLocation:
    """The innermost line that is not in a header of CUDA, nor in a built-in function (line 0), into which one was
    inlined; the location itself where there is none."""
    calls = (location, *location.inlined_at)
    own = next((i for i, call in enumerate(calls) if call.line and not is_of_cuda(call.file)), 0)
    return dataclasses.replace(calls[own], inlined_at=calls[own + 1 :]) if own else location


def through(location: SourceLocation) -> str:
    """``tma.cuh:17 (from gemm.cu:71)``: a line, and the one that it was inlined into.

    That is the first in another file, which says more than the call in the kernel's body; else the outermost. Of
    headers of CUDA, which call one another, it is the first that is none; lines in them are left out."""
    location = outside_cuda(location)
    if not location.inlined_at:
        return str(location)
    elsewhere = [caller for caller in location.inlined_at if caller.file != location.file]
    own = [caller for caller in elsewhere if not is_of_cuda(caller.file)]
    return f"{location} (from {(own or elsewhere or location.inlined_at[-1:])[0]})"


def source_line(location: SourceLocation, sources: Mapping[str, str]) -> str:
    lines = text_of(location.file, sources).splitlines()
    return lines[location.line - 1] if 0 < location.line <= len(lines) else ""
