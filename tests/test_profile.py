"""`workbench profile`: exact counts by source line and by kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from command_line import invoke, said

from workbench.catalogue import registry
from workbench.emulator import Output, launch
from workbench.emulator.statistics import KINDS, instruction_kind, profile
from workbench.inspect.profile import short

SOURCE = """
__device__ __forceinline__ float square(float x) {
    return x * x * x;  // inner
}
__device__ __forceinline__ float both(float x, float y) {
    return square(x) + square(y);  // middle
}
__global__ void k(const float* x, float* y, int n) {
    __shared__ float kept[32];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // wait
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) sum += both(kept[i], kept[31 - threadIdx.x]);  // loop
    y[threadIdx.x] = sum;
}
"""


def line(marker: str) -> int:
    (found,) = [number for number, text in enumerate(SOURCE.splitlines(), 1) if marker in text]
    return found


def workbench(*arguments: str) -> Result:
    return invoke("profile", *arguments)


def test_inlined_instructions_count_once_as_own_and_in_the_total_of_each_caller() -> None:
    x, y = np.ones(32, np.float32), np.empty(32, np.float32)
    report = launch(SOURCE, "k", 1, 32, [x, Output(y), 20])
    found = profile(report.statistics)
    assert found.warp_instructions == report.statistics.warp_instructions
    assert sum(each.own.total() for each in found.lines.values()) == found.warp_instructions
    counts = {number: each for (_, number), each in found.lines.items()}
    inner, middle, loop = (counts[line(marker)] for marker in ("// inner", "// middle", "// loop"))
    assert inner.own["arithmetic"] >= 20  # at least one product each time round
    assert middle.total == middle.own + inner.total
    assert loop.total == loop.own + middle.total
    assert loop.own["shared"] in (20 + 1, 20 + 20)  # one of the two loads may be hoisted
    assert counts[line("// wait")].own["barrier"] == 1


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("ld.global.nc.v4.f32", "global"),
        ("st.shared::cluster.b32", "shared"),
        ("ld.param.u64", "other memory"),
        ("ld.u32", "other memory"),
        ("atom.shared.add.u32", "shared"),
        ("red.global.add.f32", "global"),
        ("cp.async.cg.shared.global", "global"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "global"),
        ("cp.async.commit_group", "barrier"),
        ("cp.async.wait_all", "barrier"),
        ("cp.async.bulk.wait_group.read", "barrier"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "barrier"),
        ("mbarrier.try_wait.parity.shared.b64", "barrier"),
        ("bar.sync", "barrier"),
        ("fence.proxy.async", "barrier"),
        ("wgmma.wait_group.sync.aligned", "barrier"),
        ("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16", "tensor"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "shared"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "shared"),
        ("shfl.sync.bfly.b32", "warp"),
        ("bra.uni", "control"),
        ("fma.rn.f32", "arithmetic"),
        ("cvta.to.global.u64", "arithmetic"),
    ],
)
def test_an_instruction_is_of_one_kind(opcode: str, kind: str) -> None:
    assert instruction_kind(opcode) == kind


def test_the_source_of_a_stage_is_printed_with_counts_and_json_agrees() -> None:
    arguments = ("gemm:cp_async", "--problem", "128x128x64,dtype=bf16,layout=nt")
    text = workbench(*arguments).stdout
    found = said(workbench(*arguments, "--json"))
    assert sum(entry["own"] for entry in found["lines"]) == found["warp_instructions"]
    assert sum(found["by_kind"].values()) == found["warp_instructions"]
    assert set(found["by_kind"]) <= set(KINDS)
    assert found["by_kind"]["tensor"] == 128 * 128 * 64 / (16 * 8 * 16)  # in steps of 16 x 8 x 16
    assert f"{found['warp_instructions']:,} warp instructions" in text
    (stage,) = registry.select(("gemm:cp_async",))
    for source in Path(stage.path).read_text().splitlines():
        assert source.rstrip() in text
    assert "mma.cuh" in text


@pytest.mark.parametrize("spec", [stage.spec for stage in registry.stages()])
def test_every_stage_can_be_profiled_on_a_problem_of_its_own(spec: str) -> None:
    found = said(workbench(spec, "--json"))
    assert found["warp_instructions"] > 0
    assert all(Path(entry["file"]).suffix in (".cu", ".cuh", ".hpp", ".h") for entry in found["lines"])


def test_memory_and_tensor_cores_are_counted_by_line() -> None:
    m, n, k = 128, 128, 64
    arguments = ("gemm:cp_async", "--problem", f"{m}x{n}x{k},dtype=bf16,layout=nt")
    found = said(workbench(*arguments, "--json"))
    counters = found["counters"]
    assert counters["tensor_operations"] == 2 * m * n * k
    assert counters["global_copy_bytes"] == 2 * (m + n) * k  # one block: A and B once
    assert counters["global_store_bytes"] == 4 * m * n
    assert counters["shared_load_wavefronts"] == 4 * counters["shared_load_requests"]  # ldmatrix.x4, swizzled
    for name in counters:
        assert counters[name] == sum(line["own_counters"].get(name, 0) for line in found["lines"]), name
    (at,) = [line for line in found["lines"] if "ldmatrix_x4(a[i]" in line["source"]]
    assert 0 < at["total_counters"]["shared_load_requests"] < counters["shared_load_requests"]
    text = workbench(*arguments).stdout
    assert f"tensor cores: {2 * m * n * k:,} operations" in text
    assert "shared load: " in text


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (7, "7"), (999, "999"), (999.6, "1k"), (1536, "1.54k"), (2**40, "1.1T")]
)
def test_large_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gemm",), "choose one"),
        (("gemm:none",), "none"),
        (("gemm:naive", "--problem", "8"), "mxnxk"),
        ((), "Missing argument 'SPEC'"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_message(arguments: tuple[str, ...], message: str) -> None:
    result = workbench(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("Error: ") == 1
    assert message in result.stderr
