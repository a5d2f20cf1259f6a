"""`workbench check` proposes an emulation for each launch in a file, and asks what the file does not answer."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_line import invoke, one_message, said

EXTENSION = """
#include <torch/extension.h>
#define WIDTH 64  // threads of a block
template <typename scalar_t>
__global__ void gather_rows(const scalar_t* __restrict__ x, const int64_t* index, scalar_t* y, int rows, int columns,
                            float factor) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (c < columns && r < rows) y[r * columns + c] = x[index[r] * columns + c] * scalar_t(factor);
}
__global__ void mark(torch::PackedTensorAccessor32<float, 2> m, int* counts) {
    extern __shared__ int s[];
    if (threadIdx.x < m.size(1)) m[blockIdx.x][threadIdx.x] = 1;
    if (threadIdx.x == 0) counts[blockIdx.x] = 2;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor index, double factor) {
    const auto rows = x.size(0);
    const int columns = (int)x.size(1);
    auto y = torch::empty_like(x);
    const dim3 grid((columns + WIDTH - 1) / WIDTH, rows);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gather_rows", ([&] {
        gather_rows<scalar_t><<<grid, WIDTH, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), index.data_ptr<int64_t>(), y.data_ptr<scalar_t>(), rows, columns, (float)factor);
    }));
    return y;
}
void marks(torch::Tensor m) {
    auto counts = torch::zeros({m.size(0), 1}, torch::kInt32);
    mark<<<m.size(0), std::min(128, 2 * WIDTH), 4 * WIDTH>>>(m.packed_accessor32<float, 2>(), counts.data_ptr<int>());
    mark<<<blocks_of(m), dim3(32)>>>(m.packed_accessor32<float, 2>(), counts.data_ptr<int>());
}
"""


@pytest.fixture
def proposed(tmp_path: Path) -> list[str]:
    file = tmp_path / "extension.cu"
    file.write_text(EXTENSION)
    result = invoke("check", file)
    assert result.exit_code == 0
    return result.output.splitlines()


def commands(lines: list[str]) -> list[list[str]]:
    return [shlex.split(line) for line in lines if line.startswith("workbench emulate")]


def test_a_launch_becomes_a_command_with_its_grid_block_and_arguments(proposed: list[str]) -> None:
    first, second, _ = commands(proposed)
    assert first[3:] == shlex.split(
        "--entry gather_rows<float> --grid 2,4 --block 64 --arg x:f32[4,70]=random --arg index:i64[1000]=zeros "
        "--arg y:f32[4,70] --arg rows:i32=4 --arg columns:i32=70 --arg factor:f32=1"
    )
    assert second[3:] == shlex.split(
        "--entry mark --grid 4 --block 128 --shared 256 "
        "--arg 'm:{m:f32[4,70]=random; n0:i32=4; n1:i32=70; n2:i32=70; n3:i32=1}' --arg counts:i32[4,1]=zeros"
    )


def test_programs_get_the_same_as_a_document(proposed: list[str], tmp_path: Path) -> None:
    launches = said(invoke("check", tmp_path / "extension.cu", "--json"))["launches"]
    assert [launch["command"] for launch in launches] == [shlex.join(command) for command in commands(proposed)]
    assert any("which type?" in question for question in launches[0]["questions"])


def test_what_the_file_does_not_answer_is_asked(proposed: list[str]) -> None:
    begins = [at for at, line in enumerate(proposed) if line.startswith("workbench")]
    first = "\n".join(proposed[begins[0] : begins[1]])
    assert "which shapes do the tensors have? These are assumed: x: 4,70, index: 1000, y: 4,70" in first
    assert "which values does index hold?" in first
    assert "what is factor, `(float)factor`? 1 is proposed" in first
    assert "which type? float is proposed; the file also dispatches double, at::Half" in first
    third = "\n".join(proposed[begins[2] :])
    assert "what is the grid `blocks_of(m)`? 1 is proposed" in third


@pytest.mark.long
def test_the_proposed_commands_run_and_find_what_is_wrong(proposed: list[str], tmp_path: Path) -> None:
    for command in commands(proposed)[:2]:
        assert invoke(*command[1:]).exit_code == 0
    file = tmp_path / "extension.cu"
    file.write_text(EXTENSION.replace("if (c < columns && r < rows)", "if (c <= columns && r < rows)"))
    (command, *_) = commands(invoke("check", file).output.splitlines())
    result = invoke(*command[1:])
    assert result.exit_code == 1
    assert "out of bounds" in result.output


def test_a_file_without_a_launch_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text("__global__ void k(int* y) { y[0] = 1; }\n")
    one_message(invoke("check", file), 2, "launches no kernel", "workbench emulate")
    one_message(invoke("check", tmp_path / "none.cu"), 2, "there is no file")


HOST = """
#include "missing_helper.h"
const int N = 4096;
template <int THREADS, int EACH> __global__ void total(float* x, float* y) {
    float sum = 0;
    for (int i = 0; i < EACH; i++) sum += x[(blockIdx.x * EACH + i) * THREADS + threadIdx.x];
    atomicAdd(y + blockIdx.x, sum);
}
int main() {
    const int blocks = 8;
    const int PER_THREAD = N / blocks / 128;
    float *in, *out, *host = new float[N];
    cudaMalloc((void**)&in, N * sizeof(float));
    cudaMalloc(&out, blocks * sizeof(float));
    cudaMemcpy(in, host, N * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(out, 0, blocks * sizeof(float));
    dim3 block(128, 1);
    printf("total<<<1, 1>>>(in, out)");
    total<128, PER_THREAD><<<N / block.x / PER_THREAD, block>>>(in, out);
}
"""


def test_what_the_host_allocates_fills_and_computes_is_proposed_and_the_launch_is_clean(tmp_path: Path) -> None:
    file = tmp_path / "total.cu"
    file.write_text(HOST)
    ((*_, entry, name, grid, blocks, block, threads, first, x, second, y),) = commands(
        invoke("check", file).output.splitlines()
    )
    assert (entry, name, grid, blocks, block, threads) == (
        "--entry",
        "total<128, 4>",
        "--grid",
        "8",
        "--block",
        "128,1",
    )
    assert (first, x, second, y) == ("--arg", "x:f32[4096]=random", "--arg", "y:f32[8]=zeros")
    result = invoke("emulate", file, entry, name, grid, blocks, block, threads, first, x, second, y)
    assert result.exit_code == 0 and "no hazard found" in result.output
    assert "missing_helper.h" in result.output


AS_PEOPLE_HAVE_IT = """
#include <torch/extension.h>
#include "helpers.cuh"
#ifdef WITH_CUDA
#include "../other/only_with_cuda.cuh"
#endif
enum class Reduction { SUM, MAX };
typedef __half real;
template <typename T, Reduction HOW, int WIDTH = 4> __global__ void reduced(T* y, const real* x, int n) {
    for (int i = 0; i < WIDTH; i++) y[threadIdx.x] = at::numeric_limits<T>::max() + T(helped(STEPS, only_with_cuda()));
}
template <int N, bool EVEN> __global__ void copied(float* y) { if (threadIdx.x < N) y[threadIdx.x] = EVEN; }
#define LAUNCH(N) copied<N, N % 2 == 0> \\
    <<<1, N>>>(y);
template <int WARPS> void launch(float* y) {
    const bool EVEN = WARPS > 2 ? true : false;
    auto kernel = &copied<WARPS, EVEN>;
    kernel<<<1, WARPS * 32>>>(y);
}
void host(float* y, real* x, int n, Reduction how) {
    DISPATCH_REDUCTION(how, HOW, [&] { reduced<float, HOW><<<1, 64>>>(y, x, n); });
    reduced<<<1, 64>>>(y, x, n);
    LAUNCH(64)
    launch<4>(y);
}
"""


@pytest.mark.long
def test_macros_pointers_aliases_and_what_only_a_build_knows_are_resolved_and_all_loads(tmp_path: Path) -> None:
    for name, text in {
        "project/setup.py": "",
        "project/csrc/kernels/extension.cu": AS_PEOPLE_HAVE_IT,
        "project/csrc/shared/helpers.cuh": "__device__ int helped(int a, int b) { return a + b; }\n",
        "project/csrc/other/only_with_cuda.cuh": "__device__ int only_with_cuda() { return 1; }\n",
        "helpers.cuh": "#error of another project\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    file = tmp_path / "project/csrc/kernels/extension.cu"
    lines = invoke("check", file).output.splitlines()
    of = {tuple(words[words.index("--entry") + 1 :][:5:2]): words for words in commands(lines)}
    assert set(of) == {
        ("reduced<float, Reduction(0)>", "1", "64"),
        ("copied<64, 1>", "1", "64"),
        ("copied<4, 1>", "1", "128"),
    }
    first = of["reduced<float, Reduction(0)>", "1", "64"]
    assert first[3:7] == ["--define", "STEPS=32", "--define", "WITH_CUDA=1"] and "x:f16[1000]=random" in first
    assert any("what is STEPS, which nothing defines? 32 is proposed" in line for line in lines)
    for command in of.values():
        result = invoke(*command[1:], "--as-compiled", "--seeds", "1")
        assert result.exit_code == 0, result.output
    assert (
        "helpers.cuh is " in result.output
        and "project/csrc/shared/helpers.cuh: --include FOLDER names" in result.output
    )


def test_a_file_without_launches_names_instances_and_macros_that_its_build_defines(tmp_path: Path) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text("template <typename T, int N> __global__ void k(T* y, float* A) { y[N] = A[TILE]; }\n")
    said = invoke("emulate", file).output
    assert "--define TILE=32 --entry 'k<float, 32>' --grid" in said
