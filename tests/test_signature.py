"""What a launch passes is compared with the kernel's parameters before it is made, on a GPU as in the emulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench import emulator
from workbench.catalogue import registry
from workbench.devices import Fault, base, open_device
from workbench.emulator.program import Signature
from workbench.model.launch import Launch, Plan
from workbench.model.results import Verdict
from workbench.model.tensor_map import TensorMap
from workbench.toolchain.compiler import compile_source

(STAGE,) = registry.select(["vector_add:naive"])
PROBLEM = registry.operations()["vector_add"].problem.parse("n=100,dtype=fp32")
POINTERS = {"a": 1 << 20, "b": 2 << 20, "c": 3 << 20}
N = np.int64(100)


@pytest.fixture(params=["gpu", "emulator"])
def refused(request: pytest.FixtureRequest) -> Any:
    """What a changed launch of vector_add:naive is refused with, '' where it is not."""
    compiled = compile_source(STAGE.path, STAGE.defines(PROBLEM))
    (launch,) = STAGE.plan(PROBLEM).launches
    assert isinstance(launch, Launch)

    def refused_with(**changes: Any) -> str:
        changed = dataclasses.replace(launch, **changes)
        try:
            if request.param == "gpu":
                base.check(compiled, changed, PROBLEM.arrays(), POINTERS, emulator.H200)
            else:
                storage = {name: array.poisoned() for name, array in PROBLEM.arrays().items()}
                open_device("emulator").bind(compiled, Plan((changed,)), PROBLEM.arrays(), storage).run()
        except Fault as fault:
            assert fault.verdict is Verdict.LAUNCH_ERROR
            return str(fault)
        return ""

    return refused_with


def test_the_right_launch_is_taken(refused: Any) -> None:
    assert refused() == ""


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("a", "b", "c"), ["4 parameters (u64, u64, u64, u64)", "3 arguments"]),
        (("a", "b", "c", np.int32(100)), ["parameter 3", "int32 has 4 bytes"]),
        (("a", "b", "c", np.float64(100)), ["parameter 3", "float64 is given for an integer"]),
        (("a", "b", "d", N), ["there is no array 'd'", "a, b, c"]),
        ((TensorMap("a", (1, 32)), "b", "c", N), ["parameter 0", "a tensor map has 128 bytes"]),
        ((TensorMap("a", (1, 4096)), "b", "c", N), ["the tensor map of a", "256"]),
        ((TensorMap("a", (1, 32), promotion=512), "b", "c", N), ["the tensor map of a", "128 or 256 bytes, not 512"]),
    ],
)
def test_wrong_arguments_name_the_parameter(refused: Any, args: tuple[Any, ...], parts: list[str]) -> None:
    message = refused(args=args)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"block": (512, 1, 1)}, ["512 threads", "at most 256", "__launch_bounds__"]),
        ({"shared_bytes": 300_000}, ["300000", "232448"]),
        ({"cluster": (2, 1, 1), "grid": (2, 1, 1)}, ["clusters of (2, 1, 1)", "__cluster_dims__(2, 1, 1)"]),
        ({"kernel": "vector_ad"}, ["no kernel vector_ad", "vector_add_naive"]),
    ],
)
def test_what_the_device_has_not_is_refused_with_its_limit(
    refused: Any, changes: dict[str, Any], parts: list[str]
) -> None:
    message = refused(**changes)
    for part in parts:
        assert part in message


def test_registers_are_counted() -> None:
    compiled = compile_source(STAGE.path, STAGE.defines(PROBLEM))
    (launch,) = STAGE.plan(PROBLEM).launches
    few = dataclasses.replace(emulator.H200, registers_per_sm=1024)
    with pytest.raises(Fault, match="registers; a multiprocessor of NVIDIA H200 has 1024"):
        base.check(compiled, launch, PROBLEM.arrays(), POINTERS, few)


def test_limits_are_those_of_the_device() -> None:
    properties = {
        "multiProcessorCount": 20,
        "maxThreadsPerBlock": 512,
        "maxThreadsDim": (512, 512, 64),
        "maxGridSize": (2**31 - 1, 65535, 65535),
        "sharedMemPerBlockOptin": 101_376,
        "sharedMemPerMultiprocessor": 102_400,
        "regsPerBlock": 65_536,
    }
    limits = base.limits_of("a small GPU", 86, properties)
    assert (limits.max_threads_per_block, limits.shared_per_block, limits.arch) == (512, 101_376, "sm_86")


def test_without_the_engine_the_driver_is_left_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(emulator, "DeviceLimits")
    assert base.limits_of("any", 90, {}) is None


OF_ALL_KINDS = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__noinline__ __device__ float turned(float x) {
  __shared__ float own[64];
  own[threadIdx.x] = x;
  __syncthreads();
  return own[63 - threadIdx.x];
}
__noinline__ __device__ float turned_twice(float x) { return turned(turned(x)); }
extern "C" __global__ void __launch_bounds__(64) turn(float* x) {
  extern __shared__ __align__(128) float tile[];
  __shared__ double sums[3];
  tile[threadIdx.x] = turned_twice(x[threadIdx.x]);
  sums[threadIdx.x % 3] = 0;
  x[threadIdx.x] = tile[threadIdx.x] + sums[0];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __block_size__((32, 2, 1)) wait(float* x, char y, int n) {
  x[n] += y;
  cg::this_grid().sync();
}
extern "C" __global__ void sum(int* x) {
  __shared__ cg::block_tile_memory<128> scratch;
  auto tile = cg::tiled_partition<64>(cg::this_thread_block(scratch));
  x[threadIdx.x] = tile.any(x[threadIdx.x]);
}
"""


def ptx_of_all_kinds(folder: Path) -> str:
    source = folder / "all_kinds.cu"
    source.write_text(OF_ALL_KINDS)
    return compile_source(source, {}).ptx


SAMPLE = ["gemm:vectorized", "gemm:multicast", "gemm:stream_k", "matvec:naive"]


@pytest.mark.parametrize("spec", ["of all kinds", *SAMPLE])
def test_signatures_are_those_of_the_decoded_program(spec: str, tmp_path: Path) -> None:
    if spec in SAMPLE:
        (stage,) = registry.select([spec])
        ptx = compile_source(stage.path, stage.defines(registry.operation_of(stage).suite[0])).ptx
    else:
        ptx = ptx_of_all_kinds(tmp_path)
    entries, signatures = emulator.Program.from_ptx(ptx).entries, emulator.Program.signatures(ptx)
    names = [field.name for field in dataclasses.fields(Signature)] + ["parameter_bytes", "dynamic_shared_offset"]
    asked = {
        kernel: [(name, getattr(entries[kernel], name), getattr(signatures[kernel], name)) for name in names]
        for kernel in entries
    }
    assert list(signatures) == list(entries)
    assert [differs for rows in asked.values() for differs in rows if differs[1] != differs[2]] == []


def test_signatures_have_what_functions_and_special_registers_ask_for(tmp_path: Path) -> None:
    kernels = emulator.Program.signatures(ptx_of_all_kinds(tmp_path))
    assert (kernels["turn"].static_shared_bytes, kernels["turn"].dynamic_shared_align) == (64 * 4 + 3 * 8, 128)
    assert (kernels["turn"].max_threads, kernels["wait"].required_block) == (64, (32, 2, 1))
    assert kernels["wait"].cluster == (2, 1, 1)
    assert [k for k, v in kernels.items() if v.cooperative] == ["wait"]
    assert [k for k, v in kernels.items() if v.uses_reserved_shared] == ["sum"]


MODULE = '.version 8.5\n.target sm_90a\n.entry k(.param .u64 x)\n{\n.pragma "}";\n// }\n%s\n}\n'


@pytest.mark.parametrize(
    ("ptx", "known"),
    [
        (MODULE % "ret;", True),
        (MODULE % "{ frobnicate.u32 {a, b}; }", True),  # what it does is of no interest
        (MODULE % "{ ret;", False),
        (MODULE % "ret;" + "hello", False),
        ((MODULE % "ret;").replace(".u64", ".what"), False),
        (MODULE % ".shared .align 3 .b8 x[4];", False),
        ("", False),
    ],
)
def test_a_module_that_cannot_be_read_is_left_to_the_driver(ptx: str, known: bool) -> None:
    kernels = base._kernels(ptx, ptx)
    assert (kernels is not None) is known
    assert not known or list(kernels) == ["k"]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], 'the source has none: it begins as extern "C" __global__ void negate('),
        (["_Z6negatePKfPfi"], 'the source has _Z6negatePKfPfi: declare it extern "C", so that it keeps its name'),
        (["other"], "the source has other"),
    ],
)
def test_a_kernel_that_is_not_there_is_said_with_what_to_write(there: list[str], said: str) -> None:
    assert str(base.no_kernel("negate", there)) == f"there is no kernel negate; {said}"
