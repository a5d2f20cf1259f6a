"""Headers that take the place of those that only host compilers read, and what nvcc includes without being asked."""

from __future__ import annotations

from collections.abc import Collection

from ..source_lines import MATHEMATICAL
from .torch_header import PHILOX, TORCH

PRELUDE = "workbench/implicit.h"
_TORCH = "workbench/torch.h"
_DRIVER = "workbench/cuda.h"
_PHILOX = "workbench/philox.h"
_BLAS = "workbench/blas.h"

_MACROS = {
    "INFINITY": "__builtin_bit_cast(float, 0x7f800000u)",
    "NAN": "__builtin_bit_cast(float, 0x7fffffffu)",
    "HUGE_VALF": "__builtin_bit_cast(float, 0x7f800000u)",
    "HUGE_VAL": "__builtin_bit_cast(double, 0x7ff0000000000000ull)",
    "__extension__": "",
    "__asm__": "asm",
    "__volatile__": "volatile",
    "RAND_MAX": "2147483647",
    "EXIT_SUCCESS": "0",
    "EXIT_FAILURE": "1",
    **MATHEMATICAL,
}
_TYPES = {  # of glibc's <sys/types.h>, which cuda_runtime.h includes
    "uint": "unsigned int",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "ssize_t": "long",
    "u_char": "unsigned char",
    "u_int": "unsigned int",
    "u_int8_t": "unsigned char",
    "u_int16_t": "unsigned short",
    "u_int32_t": "unsigned int",
    "u_int64_t": "unsigned long",
}
_FUNCTIONS = {  # of the device runtime, which NVRTC does not declare
    "cudaGridDependencySynchronize": 'asm volatile("griddepcontrol.wait;" ::: "memory")',
    "cudaTriggerProgrammaticLaunchCompletion": 'asm volatile("griddepcontrol.launch_dependents;" ::: "memory")',
}
_LIMITS = frozenset(
    f"{kind}_{end}" for kind in ("CHAR", "SCHAR", "SHRT", "INT", "LONG", "LLONG") for end in ("MIN", "MAX")
) | {"UCHAR_MAX", "USHRT_MAX", "UINT_MAX", "ULONG_MAX", "ULLONG_MAX", "CHAR_BIT"}
_FLOATS = frozenset(
    f"{kind}_{what}"
    for kind in ("FLT", "DBL", "LDBL")
    for what in ("MAX", "MIN", "EPSILON", "DIG", "MANT_DIG", "MAX_EXP", "MIN_EXP", "TRUE_MIN")
)
_WIDTHS = ("8", "16", "32", "64", "_fast8", "_fast16", "_fast32", "_fast64", "_least8", "_least16", "_least32", "ptr")
_INTEGERS = frozenset(f"{sign}int{width}_t" for sign in ("", "u") for width in _WIDTHS) | {
    *(f"{sign}INT{width}_{end}" for sign in ("", "U") for width in ("8", "16", "32", "64") for end in ("MIN", "MAX")),
    *("SIZE_MAX", "intmax_t", "uintmax_t"),
}

_TYPES_OF_CUDA = {
    "cuda_fp16.h": "__half half __half2 half2",
    "cuda_bf16.h": "__nv_bfloat16 nv_bfloat16 __nv_bfloat162 nv_bfloat162",
    "cuda_fp8.h": "__nv_fp8_e4m3 __nv_fp8_e5m2 __nv_fp8x2_e4m3 __nv_fp8x2_e5m2 __nv_fp8x4_e4m3 __nv_fp8x4_e5m2",
}
_DECLARING = {
    **dict.fromkeys(_INTEGERS, "cstdint"),
    **dict.fromkeys(_LIMITS, "climits"),
    **dict.fromkeys(_FLOATS, "cfloat"),
    **dict.fromkeys(("INFINITY", "NAN", *MATHEMATICAL), "cmath"),
    **{name: header for header, names in _TYPES_OF_CUDA.items() for name in names.split()},
}

# names of namespace std that kernels use, and the header that nvcc's host compiler has somewhere among the others
_OF_STD = {
    "algorithm": "min max minmax clamp fill fill_n copy copy_n for_each sort lower_bound upper_bound reverse equal",
    "array": "array",
    "bit": "bit_cast popcount countl_zero countr_zero has_single_bit bit_width bit_ceil bit_floor rotl rotr",
    "cmath": "abs fabs sqrt cbrt exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh "
    "tanh floor ceil round rint nearbyint trunc fmod fma fmax fmin isnan isinf isfinite signbit copysign erf erfc "
    "tgamma lgamma hypot ldexp frexp modf lround llround lrint sqrtf expf logf powf fabsf",
    "complex": "complex",
    "cstddef": "size_t ptrdiff_t nullptr_t byte max_align_t",
    "cstring": "memcpy memset memcmp memmove",
    "functional": "plus minus multiplies less greater equal_to logical_and logical_or bit_and bit_or bit_xor invoke",
    "initializer_list": "initializer_list",
    "limits": "numeric_limits",
    "numeric": "accumulate iota reduce inner_product gcd lcm",
    "optional": "optional nullopt",
    "span": "span",
    "tuple": "tuple make_tuple tie get tuple_size tuple_element apply",
    "type_traits": "enable_if enable_if_t conditional conditional_t is_same is_same_v is_integral is_integral_v "
    "is_floating_point is_floating_point_v is_arithmetic is_arithmetic_v is_signed is_signed_v is_unsigned "
    "is_unsigned_v is_pointer is_pointer_v is_base_of is_base_of_v is_convertible is_convertible_v is_void is_void_v "
    "is_const is_const_v is_enum is_enum_v is_class is_trivially_copyable is_trivially_copyable_v decay decay_t "
    "remove_cv remove_cv_t remove_const remove_const_t remove_reference remove_reference_t remove_pointer "
    "remove_pointer_t remove_extent remove_extent_t add_const add_const_t integral_constant bool_constant true_type "
    "false_type void_t common_type common_type_t make_signed make_signed_t make_unsigned make_unsigned_t "
    "underlying_type underlying_type_t aligned_storage alignment_of disjunction conjunction negation is_invocable "
    "is_invocable_v invoke_result invoke_result_t result_of type_identity is_constant_evaluated rank extent "
    "disjunction_v conjunction_v negation_v is_empty is_empty_v remove_cvref remove_cvref_t is_array is_array_v",
    "variant": "variant visit holds_alternative",
    "utility": "pair make_pair move forward swap exchange declval index_sequence make_index_sequence "
    "integer_sequence make_integer_sequence index_sequence_for as_const in_place",
}
_HEADER_OF = {name: header for header, names in _OF_STD.items() for name in names.split()}

_CUB = {
    **{
        f"Block{name}": f"cub/block/block_{file}.cuh"
        for name, file in (
            *(("Reduce", "reduce"), ("Scan", "scan"), ("Load", "load"), ("Store", "store"), ("Exchange", "exchange")),
            *(("RadixSort", "radix_sort"), ("RadixRank", "radix_rank"), ("Histogram", "histogram")),
            *(("Discontinuity", "discontinuity"), ("AdjacentDifference", "adjacent_difference")),
            *(("MergeSort", "merge_sort"), ("Shuffle", "shuffle"), ("RunLengthDecode", "run_length_decode")),
        )
    },
    "WarpReduce": "cub/warp/warp_reduce.cuh",
    "WarpScan": "cub/warp/warp_scan.cuh",
    "WarpExchange": "cub/warp/warp_exchange.cuh",
    "WarpLoad": "cub/warp/warp_load.cuh",
    "WarpStore": "cub/warp/warp_store.cuh",
    "WarpMergeSort": "cub/warp/warp_merge_sort.cuh",
    "BaseTraits": "cub/util_type.cuh",
    "Traits": "cub/util_type.cuh",
    "ThreadLoad": "cub/thread/thread_load.cuh",
    "ThreadStore": "cub/thread/thread_store.cuh",
    "KeyValuePair": "cub/util_type.cuh",
    "Uninitialized": "cub/util_type.cuh",
    "LaneId": "cub/util_ptx.cuh",
    "ShuffleIndex": "cub/util_ptx.cuh",
    "ArgMax": "cub/thread/thread_operators.cuh",
    "ArgMin": "cub/thread/thread_operators.cuh",
}
_CUB_OPERATORS = {  # what cub had before it took those of libcu++
    "Sum": "::cuda::std::plus<>",
    "Max": "::cuda::maximum<>",
    "Min": "::cuda::minimum<>",
}

_DRIVER_TEXT = """#pragma once
#ifndef CUDA_VERSION
#define CUDA_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#endif
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef int CUresult;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
"""
_EMPTY = (  # headers of C++ that device libraries include for their functions of the host
    *("chrono", "cstdarg", "ctime", "exception", "fstream", "iomanip", "ios", "iosfwd", "iostream", "istream", "list"),
    *("map", "memory", "mutex", "new", "ostream", "queue", "random", "ratio", "regex", "set", "sstream", "stdexcept"),
    *("string", "string_view", "thread", "typeinfo", "unordered_map", "unordered_set", "vector"),
)
HEADERS = {
    _DRIVER: _DRIVER_TEXT,
    _BLAS: "#include <cuComplex.h>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n",
    _TORCH: TORCH,
    _PHILOX: PHILOX.replace("#include", f'#include "{_TORCH}"\n#include', 1),
    **dict.fromkeys(_EMPTY, ""),
}
"""Texts of the headers that ``stub_for`` names, and of headers of the host that device libraries include."""

_BOTH = frozenset({"__host__", "__device__"})
ANNOTATING: dict[str, frozenset[str]] = {
    **dict.fromkeys(("CUTLASS_DEVICE", "CUTE_DEVICE", "C10_DEVICE", "GPU_LAMBDA"), frozenset({"__device__"})),
    **dict.fromkeys(("CUTLASS_HOST_DEVICE", "CUTE_HOST_DEVICE", "C10_HOST_DEVICE", "_CCCL_HOST_DEVICE"), _BOTH),
    "CUTLASS_GLOBAL": frozenset({"__global__"}),
}
"""Macros of libraries whose headers are not read here, and what they say of a function."""

_TORCH_FOLDERS = ("torch", "ATen", "c10", "THC", "TH", "caffe2")
_HOST_FOLDERS = ("pybind11", "thrust", "cub", "mpi", "nccl", "opencv2", "Eigen", "boost", "sys", "gtest", "absl")
_OF_SYSTEM = frozenset(
    {"ctype.h", "dirent.h", "dlfcn.h", "errno.h", "fcntl.h", "getopt.h", "inttypes.h", "libgen.h", "locale.h"}
    | {"malloc.h", "memory.h", "pthread.h", "signal.h", "stdarg.h", "strings.h", "time.h", "unistd.h", "windows.h"}
)
_KNOWN_MACROS = ("cuda.h", "cudaTypedefs.h", "cub/", "thrust/", "sys/")
_HOST_FILES = _OF_SYSTEM | frozenset(
    {"cuda.h", "cudaTypedefs.h", "cuda_profiler_api.h", "cuda_gl_interop.h", "nvml.h", "nvrtc.h", "nccl.h", "mpi.h"}
    | {"cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "cudnn.h", "cufft.h", "curand.h", "cusparse.h"}
    | {"cusolverDn.h", "nvToolsExt.h", "nvtx3/nvToolsExt.h", "helper_cuda.h", "helper_functions.h", "helper_string.h"}
    | {"helper_timer.h", "Python.h", "omp.h"}
)
_FOR_DEVICES_TOO = frozenset(  # of cutlass/util, whose other headers are for the host
    f"cutlass/util/{name}"
    for name in ("debug.h", "device_dump.h", "device_utils.h", "packed_stride.hpp", "type_traits.h")
)
_DEVICE_LIBRARIES = ("cutlass/", "cute/", "cub/", "thrust/", "cuda/", "nv/", "cooperative_groups/", "crt/")

_ALLOCA = {"alloca", "_alloca", "__builtin_alloca"}
"""Names by which nvcc knows what NVRTC does not."""

_OF_ALLOCA = """\
__device__ __forceinline__ void* alloca(decltype(sizeof 0) bytes) {
    void* found;
    asm volatile("{ .reg .b64 at; alloca.u64 at, %1, 16; cvta.local.u64 %0, at; }" : "=l"(found) : "l"(bytes));
    return found;
}"""


def implicit_header(words: Collection[str]) -> tuple[str, str]:
    """Name and text of what nvcc gives for free, as far as a source uses these words: constants, types, std."""
    used = set(words)
    lines = ["#pragma once"]
    for header, names in (("cstdint", _INTEGERS), ("climits", _LIMITS), ("cfloat", _FLOATS)):
        if used & names:
            lines.append(f"#include <{header}>")
    for macro in sorted(used & _MACROS.keys()):
        lines.append(f"#ifndef {macro}\n#define {macro} {_MACROS[macro]}\n#endif")
    lines += [f"typedef {_TYPES[name]} {name};" for name in sorted(used & _TYPES.keys())]
    lines += [
        f"__device__ __forceinline__ void {name}() {{ {_FUNCTIONS[name]}; }}"
        for name in sorted(used & _FUNCTIONS.keys())
    ]
    if used & _ALLOCA:
        lines.append(_OF_ALLOCA)
        lines += [f"#define {name} alloca" for name in sorted(_ALLOCA - {"alloca"})]
    return PRELUDE, "\n".join(lines) + "\n"


def header_of(name: str) -> str | None:
    """The header that declares a constant or type that nvcc has without an include, or that kernels often use."""
    return _DECLARING.get(name)


def standard_includes(words: Collection[str]) -> list[str]:
    """Headers of the C++ library that declare these members of ``std``."""
    used = set(words) & _HEADER_OF.keys()
    return [f"<{header}>" for header in dict.fromkeys(_HEADER_OF[word] for word in sorted(used))]


def is_device_library(name: str) -> bool:
    """Whether a header is one of a library that NVRTC reads as it is."""
    return name.startswith(_DEVICE_LIBRARIES)


def is_host_library(name: str) -> bool:
    """Whether a header is one that only a host compiler needs, or can read."""
    if name.startswith("cutlass/util/"):
        return name not in _FOR_DEVICES_TOO
    return name in _HOST_FILES or name.partition("/")[0] in (*_TORCH_FOLDERS, *_HOST_FOLDERS)


def may_define_macros(name: str) -> bool:
    """Whether a header of a library of the host may define macros that kernels read."""
    return is_host_library(name) and name not in _OF_SYSTEM and not name.startswith(_KNOWN_MACROS)


def stub_for(name: str) -> str:
    """Text in place of ``#include`` of a header of the host: other headers on the same line, or nothing."""
    if name.partition("/")[0] in _TORCH_FOLDERS:
        has_generator = any(part in name for part in ("Philox", "CUDAGenerator", "CUDAGraphsUtils", "UnpackRaw"))
        return f'#include "{_PHILOX if has_generator else _TORCH}"'
    if name.startswith("cublas"):
        return f'#include "{_BLAS}"'
    if name in ("cuda.h", "cudaTypedefs.h"):
        return f'#include "{_DRIVER}"'
    return ""


def cub_header(words: Collection[str]) -> str:
    """A header with what a source uses of cub, whose own list of everything does not compile without a host."""
    used = set(words)
    lines = ["#pragma once"]
    lines += [f"#include <{header}>" for header in dict.fromkeys(_CUB[word] for word in sorted(used & _CUB.keys()))]
    operators = sorted(used & _CUB_OPERATORS.keys())
    if operators:
        lines.append("#include <cuda/functional>\n#include <cuda/std/functional>\nnamespace cub {")
        lines += [f"using {name} = {_CUB_OPERATORS[name]};" for name in operators]
        lines.append("}")
    return "\n".join(lines) + "\n"
