"""The headers that kernels include: CUDA's own, where they are installed, and those of C and C++."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from os import PathLike
from pathlib import Path

__all__ = [
    "MATHEMATICAL",
    "RANDOM",
    "cuda_headers",
    "header_folder",
    "is_of_cuda",
    "random_headers",
    "standard_headers",
]

RANDOM = "curand"
"""How the names of the headers of cuRAND begin."""

_STANDARD = (
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

    nvcc takes them from the host's compiler; NVRTC has none, and kernels written for nvcc include them.
    """
    if not any(Path(folder, "cuda", "std").is_dir() for folder in folders):
        return {}
    headers = {"cstdio": ""}  # printf is the compiler's own
    for name in _STANDARD:
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
