"""`workbench emulate`: the kernels that it lists, and the orders of warps that it tries."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import invoke, said

SEVERAL = """
#include <cuda_fp16.h>
namespace a { template <class T, int N>
__global__ void scale(const T* __restrict__ x,  // what is read
                      T* y, float factor) { y[threadIdx.x] = x[threadIdx.x]; } }
extern "C" __global__ __launch_bounds__(128) void half_sum(const __half *x, unsigned long long n, int2 pair) {}
__global__ void declared(int);
__global__ void declared(int n) {}
void host(const float* x) {}
"""
RARE = """
__global__ void first(int* count, int* y) {
    __shared__ int order;
    if (threadIdx.x == 0) order = 0;
    __syncthreads();
    int mine = 1;
    if (threadIdx.x % 32 == 0) mine = atomicAdd(&order, 1);
    mine = __shfl_sync(~0u, mine, 0);
    if (mine == 0 && threadIdx.x / 32 == 7) asm volatile("barrier.sync 1, 512;" ::: "memory");
}
"""


pytestmark = pytest.mark.usefixtures("here")


def test_without_a_grid_the_kernels_are_listed_as_the_source_has_them_with_launches() -> None:
    Path("s.cu").write_text(SEVERAL)
    shown = invoke("emulate", "s.cu")
    assert shown.exit_code == 2
    assert "a::scale(const T* __restrict__ x, T* y, float factor)" in shown.stderr
    assert "half_sum(const __half *x, unsigned long long n, int2 pair)" in shown.stderr
    assert shown.stderr.count("declared(int n)") == 1 and "declared(int)" not in shown.stderr
    assert "host" not in shown.stderr
    command = next(line for line in shown.stderr.splitlines() if "--entry half_sum" in line)
    assert "--arg 'x:f16[1024]=random' --arg n:u64=1024 --arg pair:TYPE=1" in command
    failed = invoke("emulate", "s.cu", "--grid", "1", "--json")
    assert '"missing_parameter"' in failed.stdout and "half_sum(" in failed.stdout


def test_a_launch_that_is_listed_runs() -> None:
    Path("s.cu").write_text("__global__ void f(const float* x, float* y, int n) { y[threadIdx.x] = x[n - 1]; }")
    command = next(line for line in invoke("emulate", "s.cu").stderr.splitlines() if "--entry" in line)
    done = invoke(*shlex.split(command)[1:], "--block", "8", "--grid", "1")
    assert done.exit_code == 0, done.output


def test_the_kernels_of_ptx_have_the_types_of_their_names() -> None:
    Path("s.ptx").write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry _Z5scalePKfPfi(.param .u64 a, .param .u64 b, .param .u32 c) { ret; }\n"
        ".visible .entry plain(.param .u64 a) { ret; }\n"
    )
    shown = invoke("emulate", "s.ptx").stderr
    assert "scale(const float*, float*, int)" in shown and "plain(u64)" in shown
    assert "--arg 'a0:f32[1024]=random' --arg 'a1:f32[1024]' --arg a2:i32=1024" in shown


def test_a_source_without_kernels_says_so() -> None:
    Path("s.cu").write_text("void f() {}")
    assert "has no kernel: no function is __global__" in invoke("emulate", "s.cu").stderr


def test_a_hang_that_needs_an_order_of_warps_is_found_by_more_seeds() -> None:
    Path("rare.cu").write_text(RARE)
    launch = ("emulate", "rare.cu", "--grid", "1", "--block", "256", "--arg", "i32[1]=zeros", "--arg", "i32[1]=zeros")
    clean = next(seed for seed in range(100) if invoke(*launch, "--seed", str(seed), "--seeds", "3").exit_code == 0)
    found = invoke(*launch, "--seed", str(clean), "--seeds", "100")
    assert found.exit_code == 1 and "deadlock" in found.stdout
    seed = int(re.findall(r"^seed (\d+) is the first that finds it", found.stdout, re.MULTILINE)[0])
    assert seed > clean + 2
    assert invoke(*launch, "--seed", str(seed), "--seeds", "1").exit_code == 1
    assert said(invoke(*launch, "--seed", str(clean), "--json"))["seeds"] == 3
