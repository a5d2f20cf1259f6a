"""Headers that are replaced, left out or not found: their macros, the branches they decide, and the notes on them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cupy.cuda import nvrtc

from workbench.emulator import CompileError, Session, launch, load

MAJOR, MINOR = nvrtc.getVersion()


def chosen(source: str, **options: object) -> tuple[int, tuple[str, ...]]:
    """What a kernel ``k`` stores into its only element, and the notes of its report."""
    y = np.zeros(1, np.int32)
    report = launch(source, "k", 1, 1, [y], **options)  # type: ignore[arg-type]
    assert report.ok, str(report)
    return int(y[0]), report.notes


def branch(condition: str, include: str = "") -> str:
    kernel = f"{include}\n__global__ void k(int* y) {{\n#{condition}\n    y[0] = 1;\n#else\n    y[0] = 2;\n#endif\n}}\n"
    return kernel + "void host() { k<<<1, 1>>>(0); }\n"


@pytest.mark.parametrize("include", ["#include <cuda.h>", "#include <torch/extension.h>", "#include <ATen/ATen.h>"])
def test_headers_that_are_replaced_say_the_version_that_nvcc_has(include: str) -> None:
    version = 1000 * MAJOR + 10 * MINOR
    for condition in (
        f"if CUDA_VERSION == {version}",
        "ifdef CUDA_VERSION",
        f"if CUDART_VERSION / 10 == {version // 10}",
    ):
        value, notes = chosen(branch(condition, include))
        assert (value, notes) == (1, ()), condition
    assert chosen(branch(f"if __CUDACC_VER_MAJOR__ == {MAJOR} && __CUDACC_VER_MINOR__ == {MINOR}", include))[0] == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("ifdef __NVCC__", 1),
        ("ifndef __NVCC__", 2),
        ("if defined(__CUDACC__) && defined __NVCC__", 1),
        ("if defined(__CUDACC_RTC__)", 2),
        ("ifdef __CUDACC_RTC__", 2),
        ("ifndef __CUDACC_RTC__", 1),
        ("if !defined(__linux__)", 2),
    ],
)
def test_the_branch_of_nvcc_is_judged(condition: str, expected: int) -> None:
    assert chosen(branch(condition)) == (expected, ())
    assert chosen(branch(condition).replace("void host() { k<<<1, 1>>>(0); }", "")) == (expected, ())


def test_macros_of_a_library_of_the_host_come_from_its_header_where_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "Eigen").mkdir()
    header = (
        "#pragma once\n#include <vector>\n#define EIGEN_WORLD  3  // of it\n#define EIGEN_TWICE (EIGEN_WORLD * 2)\n"
    )
    (tmp_path / "Eigen" / "Core").write_text(header)
    source = branch("if EIGEN_WORLD >= 3", "#include <Eigen/Core>")
    assert chosen(source, include=[tmp_path]) == (1, ())
    value, (note,) = chosen(source)
    assert value == 2
    assert note.startswith("kernel.cu:3: an #if reads EIGEN_WORLD, which nothing defines here")
    assert "<Eigen/Core>" in note
    assert "--define EIGEN_WORLD=1" in note


def test_a_macro_that_a_missing_header_may_define_is_named_with_the_header() -> None:
    value, notes = chosen(branch("ifdef GADGET_IS_FAST", "#include <gadget/config.hpp>"))
    assert value == 2
    assert notes[0] == "kernel.cu:1: <gadget/config.hpp> is not found and left out: --include FOLDER names its folder"
    assert "GADGET_IS_FAST" in notes[1]
    assert "<gadget/config.hpp>" in notes[1]


@pytest.mark.parametrize(
    "text",
    [
        "#ifndef MINE_H\n#define MINE_H\n#endif\n__global__ void k(int* y) { y[0] = 1; }\n",
        "#ifdef __CUDA_ARCH__\n#endif\n__global__ void k(int* y) { y[0] = 1; }\n",
        "#ifdef GIVEN\n#endif\n__global__ void k(int* y) { y[0] = 1; }\n",
        "int main() {\n#ifdef FROM_THE_LIBRARY\nreturn 1;\n#endif\n}\n__global__ void k(int* y) { y[0] = 1; }\n",
        "#include <unistd.h>\n#include <vector>\n__global__ void k(int* y) { y[0] = 1; }\n",
    ],
)
def test_conditionals_that_no_header_decides_are_not_named(text: str) -> None:
    assert chosen(f"#include <torch/torch.h>\n{text}", defines={"GIVEN": 1}) == (1, ())


def test_headers_that_are_not_found_come_first_where_a_source_does_not_compile(tmp_path: Path) -> None:
    file = tmp_path / "vectors.cu"
    file.write_text("#include <shapes/all.hpp>\n__global__ void k(float* y) { shapes::point p; y[0] = p.x + SIDES; }\n")
    with pytest.raises(CompileError) as raised:
        load(file, entry="k")
    first, second, *_ = str(raised.value).splitlines()
    assert first == "vectors.cu:1: <shapes/all.hpp> is not found and left out: --include FOLDER names its folder"
    assert second == "vectors.cu does not compile:"


SHUFFLES = """
#include <ATen/cuda/DeviceUtils.cuh>
#include <c10/util/Half.h>
template <class T> __global__ void k(const T* x, T* y) {
    T v = WARP_SHFL_DOWN(x[threadIdx.x], 1);
    v = WARP_SHFL_XOR(v, 3, 32);
    y[threadIdx.x] = WARP_SHFL(v, (threadIdx.x + 1) % 32);
}
"""


@pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("double", np.float64), ("at::Half", np.float16)])
def test_shuffles_of_pytorch_are_there(name: str, dtype: type) -> None:
    x = np.arange(32).astype(dtype)
    y = np.zeros_like(x)
    assert launch(SHUFFLES, f"k<{name}>", 1, 32, [x, y]).ok
    lanes = (np.arange(32) + 1) % 32 ^ 3
    assert np.array_equal(y, np.append(x[1:], x[31])[lanes])


LIBRARY = """
#pragma once
#include <iostream>
#include <vector>
#include <cstdio>
namespace cute {
__host__ inline void announce(int n) { std::cout << n << std::endl; }
inline cudaError_t check(cudaError_t error) { fprintf(stderr, "%s", cudaGetErrorString(error)); return error; }
template <class T> struct Twice {
    __host__ __device__ T operator()(T x) const { return std::max(x + x, x); }
    static void run(cudaStream_t stream) { std::vector<int> v; }
};
}
"""


@pytest.mark.long
def test_headers_of_cutlass_compile_without_their_functions_for_the_host(tmp_path: Path) -> None:
    for name in ("cute/inner.hpp", "cute/all.hpp", "cutlass/util/command_line.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cute/inner.hpp").write_text(LIBRARY)
    (tmp_path / "cute/all.hpp").write_text('#pragma once\n#include "cute/inner.hpp"\n')
    (tmp_path / "cutlass/util/command_line.h").write_text("#error only for the host\n")
    source = (
        "#include <cute/all.hpp>\n#include <cutlass/util/command_line.h>\n"
        "template <class T> __global__ void k(T* y) { y[0] = cute::Twice<T>()(y[FAULT]); }\n"
        "int main() { k<<<1, 1>>>((float*)0); cute::announce(1); }\n"
    )
    program = load(source, include=[tmp_path], entry="k<float>", defines={"FAULT": 0})
    y = np.full(1, 4, np.float32)
    assert Session(program).launch("k<float>", 1, 1, [y], unoptimised=True).ok
    assert y == 8
    (tmp_path / "cute/inner.hpp").write_text(LIBRARY.replace("x + x", "x + x + unknown"))
    with pytest.raises(CompileError, match=re.escape("cute/inner.hpp(10): error")):
        load(source, include=[tmp_path], entry="k<float>", defines={"FAULT": 0})
