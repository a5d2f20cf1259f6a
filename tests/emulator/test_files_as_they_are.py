"""Files as people have them: grid barriers, races between lanes, function pointers, launches from kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulation import line_of
from public_launches import headers

from workbench.emulator import CompileError, FindingKind, LaunchError, Session, Struct, launch, load
from workbench.emulator.mangled import kernel_name_of

GRID = """
#include <cooperative_groups.h>
extern "C" __global__ void k(int* y) {
    if (blockIdx.x == LEFT) return;  // exit
    if (threadIdx.x == 0) y[blockIdx.x] = 1;
    cooperative_groups::this_grid().sync();  // barrier
}
"""
SPIN = """
extern "C" __global__ void k(int* y, volatile int* flag) {
    if (blockIdx.x == 2) { OTHER return; }  // exit
    while (*flag == 0) {}  // wait
    y[blockIdx.x] = 1;
}
"""


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
def test_a_grid_barrier_that_a_block_does_not_reach_is_named_with_the_block_at_once(threads: int) -> None:
    session = Session(load(GRID, include=headers(), defines={"LEFT": 3}))
    report = session.launch("k", 5, 64, [np.zeros(5, np.int32)], threads=threads)
    (finding,) = report.findings
    assert finding.kind is FindingKind.LIVELOCK
    assert finding.location.line == line_of(GRID, "// barrier")
    assert finding.message.endswith("block (3, 0, 0) has exited")
    assert "let all blocks of the grid come to its barrier" in finding.advice
    assert report.statistics.warp_instructions < 10**7
    assert launch(GRID, "k", 5, 64, [np.zeros(5, np.int32)], include=headers(), defines={"LEFT": 9}).ok


def test_a_flag_that_no_block_sets_is_named_at_once_and_one_that_a_later_block_sets_is_waited_for() -> None:
    y, flag = np.zeros(4, np.int32), np.zeros(1, np.int32)
    report = launch(SPIN, "k", 4, 32, [y, flag], defines={"OTHER": ""})
    (finding,) = report.findings
    assert finding.location.line == line_of(SPIN, "// wait")
    assert "block (2, 0, 0) has exited" in finding.message
    assert report.statistics.warp_instructions < 10**7
    late = "for (int i = 0; i < 200000; ++i) y[2] += i; __threadfence(); *flag = 1;"
    assert launch(SPIN, "k", 4, 32, [y, flag], defines={"OTHER": late}, suppress="race").ok


LANES = """
extern "C" __global__ void k(const int* p, int* out, int n) {
    __shared__ int row[32];
    int t = threadIdx.x, sum = 0;
    row[t] = 3 * t;
    __syncthreads();
    for (int i = 0; i < n; ++i) {
        sum -= row[i];  // all read
        BETWEEN
        if (t == i) row[t] = row[t] + p[t];  // one stores
        __syncthreads();
    }
    out[t] = sum;
}
"""


def test_a_race_between_lanes_names_the_line_of_the_lanes_that_read_and_where_a_syncwarp_helps() -> None:
    arguments = [np.arange(32, dtype=np.int32), np.zeros(32, np.int32), 31]
    (finding,) = launch(LANES.replace("BETWEEN", ""), "k", 1, 32, arguments).findings
    read, store = line_of(LANES, "// all read"), line_of(LANES, "// one stores")
    assert {finding.location.line, finding.other.line} == {read, store}
    assert finding.advice == f"__syncwarp() is missing between kernel.cu:{read} and kernel.cu:{store}"
    assert launch(LANES.replace("BETWEEN", "__syncwarp();"), "k", 1, 32, arguments).ok


POINTERS = """
typedef float (*unary)(float, int);
using table_t = unary[2];
__device__ float shift(float x, int n) { return x + n; }
__device__ unary chosen = shift;
__global__ void apply(float* y, unary f) { y[threadIdx.x] = f ? f(1.f, 2) : chosen(3.f, 4); }
__global__ void twice(float* y, float (*f)(float), void (**g)(int)) { y[0] = f(y[0]); }
__global__ void other(float* y) { y[0] = 1; }
"""


@pytest.mark.parametrize("name", ["apply", "apply(float*, unary)", "apply(float*, float (*)(float, int))"])
def test_a_kernel_with_a_function_pointer_as_parameter_is_found_as_it_is_written(name: str) -> None:
    y = np.zeros(4, np.float32)
    assert launch(POINTERS, name, 1, 4, [y, None]).ok
    assert y.tolist() == [7.0] * 4


def test_a_name_with_other_parameters_is_no_kernel() -> None:
    with pytest.raises(LaunchError, match=r"there is no kernel 'apply\(float\*\)'"):
        launch(POINTERS, "apply(float*)", 1, 1, [np.zeros(1, np.float32), None])


def test_a_call_of_what_is_no_function_is_a_trap_also_where_the_module_has_no_functions() -> None:
    source = "__global__ void k(float* y, float (*f)(float)) { y[0] = f(2.f); }"
    (finding,) = launch(source, "k", 1, 1, [np.zeros(1, np.float32), 64]).findings
    assert finding.kind is FindingKind.TRAP
    assert "not the address of a function" in finding.message


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_Z5twicePfPFffEPPFviE", "twice(float*, float (*)(float), void (**)(int))"),
        ("_Z1kRFivE", "k(int (&)())"),
        ("_Z1kPFfPFffEES0_", "k(float (*)(float (*)(float)), float (*)(float))"),
        ("_Z1kPfUlvE_", "k"),
        ("_Z7ptr_retIfEPKT_RKN2at6native3VecIS2_Li2EEE", "ptr_ret<float>(const at::native::Vec<const float*, 2>&)"),
        ("_Z4packIJiPfPKcEEvDpT_", "pack<int, float*, const char*>(int, float*, const char*)"),
    ],
)
def test_names_of_kernels_with_function_pointers_are_read(mangled: str, expected: str) -> None:
    assert str(kernel_name_of(mangled)) == expected


LAUNCHES = """
__global__ void child(int* y) { y[threadIdx.x] += 1; }
__global__ void parent(int* y) {
    if (threadIdx.x == 0)
        child<<<1, 32>>>(y);  // here
}
int main() { parent<<<1, 32>>>(0); }
"""


def test_a_launch_from_a_kernel_is_refused_in_one_sentence_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "nested.cu"
    file.write_text(LAUNCHES)
    for entry in ("parent", None):
        with pytest.raises(CompileError) as raised:
            load(file, entry=entry)
        said = str(raised.value)
        assert said.startswith(f"nested.cu:{line_of(LAUNCHES, '// here')}: a kernel launches another one here")
        assert "\n" not in said
    y = np.zeros(32, np.int32)
    assert launch(file, "child", 1, 32, [y]).ok
    assert y.all()


TEMPLATES = """
enum class Mode { copy, add };
template <int TILE, typename T, bool FAST, Mode M, class Index = long long, unsigned N = TILE * 2>
__global__ void tiled(T* y) { if (FAST) y[0] = TILE + N + (M == Mode::add); }
template <class T> __global__ void plain(T* y) { y[0] = 1; }
"""


def test_a_template_that_no_host_code_launches_is_told_of_an_instance_that_compiles() -> None:
    y = np.zeros(1, np.float32)
    with pytest.raises(LaunchError, match=r"such as tiled<32, float, true, Mode\(0\)>") as raised:
        launch(TEMPLATES, "tiled", 1, 1, [y])
    assert "plain" not in str(raised.value)
    with pytest.raises(LaunchError, match="such as plain<float>"):
        launch(TEMPLATES, "plain", 1, 1, [y])
    assert launch(TEMPLATES, "tiled<32, float, true, Mode(0)>", 1, 1, [y]).ok
    assert y == 96


PHILOX = """
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/detail/UnpackRaw.cuh>
__global__ void k(at::PhiloxCudaState state, unsigned long long* y) {
    auto [seed, offset] = at::cuda::philox::unpack(state);
    auto seeds = at::cuda::philox::unpack(state);
    y[0] = seed + std::get<0>(seeds);
    y[1] = offset;
}
void host(at::PhiloxCudaState s) { k<<<1, 1>>>(s, nullptr); }
"""


@pytest.mark.long
def test_the_state_of_pytorchs_generators_is_passed_as_a_struct() -> None:
    y = np.zeros(2, np.uint64)
    numbers = Struct(seed=np.uint64(21), offset=np.uint64(4), within=np.uint64(0), captured=np.bool_(False))
    assert launch(PHILOX, "k", 1, 1, [numbers, y]).ok
    assert y.tolist() == [42, 4]
    seed, offset = np.full(1, 5, np.int64), np.full(1, 6, np.int64)
    pointers = Struct(seed=seed, offset=offset, within=np.uint64(3), captured=np.bool_(True))
    assert launch(PHILOX, "k", 1, 1, [pointers, y]).ok
    assert y.tolist() == [10, 9]
