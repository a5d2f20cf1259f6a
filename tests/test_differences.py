"""`workbench diff`: two stages, or versions of one, side by side."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from command_line import invoke, said
from synthetic import H200
from test_versions import record

from workbench.catalogue import registry
from workbench.model.stage import Stage
from workbench.records import versions
from workbench.records.versions import Snapshot
from workbench.report.differences import ptx_counts, sass_counts
from workbench.toolchain import disassembly

Diff = Callable[..., Result]

SPEC = "vector_add:naive"

NVDISASM = """
        .headerflags    @"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0060*/              @P0 EXIT ;
        /*0070*/             @!PT LDS.U.128 R4, [R2+0x10] ;
        /*0080*/            @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;
        /*00a0*/                   LDG.E.128.CONSTANT R8, desc[UR4][R2.64] ;
        /*00b0*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;
        /*00c0*/                   LDG.E.128.CONSTANT R12, desc[UR4][R2.64+0x10] ;
.L_x_0:
        /*00d0*/                   BRA `(.L_x_0);
"""

CUOBJDUMP = """
	code for sm_90a
        /*0000*/                   LDC R1, c[0x0][0x28] ;    /* 0x00000a00ff017b82 */
                                                             /* 0x000fe20000000800 */
        /*0010*/               @P0 EXIT ;                    /* 0x000000000000094d */
"""

PTX = """
//
.version 8.5
.target sm_90a
.visible .entry k(
	.param .u64 k_param_0
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<9>;
	.loc	1 32 5
	ld.param.u64 	%rd1, [k_param_0];
	mov.u32 	%r1, %ctaid.x;   // mov.u32 in a comment;
	// begin inline asm
	{ cvt.f32.bf16 %f1, %rs1;}
	{ .reg .pred p; setp.ne.b32 p, %r1, 0; @p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
      [%r2], [%r3], 8, [%r4]; }
	// end inline asm
	ld.global.v2.f32 	{%f2, %f3}, [%rd1];
	@%p1 bra 	$L__BB0_2;
	bar.sync 	0;
$L__BB0_2:
	ld.param.u64 	%rd2, [k_param_0];
	ret;

}
"""


def test_instructions_of_sass_are_counted_with_their_modifiers() -> None:
    once = ["LDC", "S2R", "EXIT", "LDS.U.128", "UIADD3", "HMMA.16816.F32.BF16", "BRA"]
    assert sass_counts(NVDISASM) == Counter({**dict.fromkeys(once, 1), "LDG.E.128.CONSTANT": 2})
    assert sass_counts(CUOBJDUMP) == Counter(["LDC", "EXIT"])


def test_instructions_of_ptx_are_counted_and_directives_are_not() -> None:
    bulk = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    once = ["mov.u32", "cvt.f32.bf16", "setp.ne.b32", bulk, "ld.global.v2.f32", "bra", "bar.sync", "ret"]
    assert ptx_counts(PTX) == Counter({**dict.fromkeys(once, 1), "ld.param.u64": 2})


@pytest.fixture
def diff(here: Path, monkeypatch: pytest.MonkeyPatch) -> Diff:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(disassembly, "find", lambda: None)

    def run(*arguments: str) -> Result:
        return invoke("diff", *arguments)

    return run


def stage() -> Stage:
    (found,) = registry.select([SPEC])
    return found


def test_a_stage_alone_is_set_beside_its_parent(diff: Diff) -> None:
    found = said(diff("matvec:streamed", "--json"))
    assert (found["before"], found["after"]) == ("matvec:vectorized", "matvec:streamed")
    alone = diff("gemm:tensor_core")
    assert alone.exit_code == 2
    assert "gemm:tensor_core is the first of track mma, so it has no parent" in alone.stderr


def test_two_stages(diff: Diff) -> None:
    found = said(diff("gemm:naive", "gemm:smem_tiling", "--problem", "64x64x64", "--json"))
    assert "m=64,n=64,k=64" in found["problem"]
    assert any(line.startswith("+") and "__shared__" in line for line in found["source"])
    rows = {r["name"]: (r["before"], r["after"]) for r in found["instructions"]}
    assert rows["bar.sync"][0] == 0
    assert rows["bar.sync"][1] > 0
    assert all(one != other for one, other in rows.values())
    assert rows["all"][1] - rows["all"][0] == sum(b - a for name, (a, b) in rows.items() if name != "all")
    resources = {r["name"]: (r["before"], r["after"]) for r in found["resources"]}
    assert resources["static shared"][0] == 0
    assert resources["static shared"][1] > 0
    assert {r["name"]: r["after"] for r in found["parameters"]}["BLOCK_K"] == 32
    assert found["times"] == []


def test_an_operation_without_a_suite_is_compared_on_a_moderate_problem(
    diff: Diff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.operations()["vector_add"], "suite", ())
    assert "n=128" in said(diff("vector_add:vectorized", "--json"))["problem"]


def test_two_versions_with_their_sources_parameters_and_times(diff: Diff) -> None:
    before, slow, fast = Snapshot.of(stage()), record(), record()
    text = before.files[before.source]
    for m in fast.stages[0].measurements:
        m.timing.cold_us = [x / 2 for x in m.timing.cold_us]
    store = versions.of(stage())
    store.keep(before, slow)
    changed = text.replace(b"to_float(b[i])", b"to_float(b[i]) + to_float(a[i])")
    after = dataclasses.replace(before, files={**before.files, before.source: changed}, parameters={"THREADS": 64})
    store.keep(after, fast)
    found = said(diff(f"{SPEC}@1", f"{SPEC}@2", "--json"))
    added = [line for line in found["source"] if line.startswith("+") and not line.startswith("+++")]
    assert [line.count("to_float(a[i])") for line in added] == [2]
    assert found["parameters"] == [{"name": "THREADS", "before": 256, "after": 64}]
    assert {r["name"]: (r["before"], r["after"]) for r in found["resources"]}["threads a block"] == (256, 64)
    assert [t["device"] for t in found["times"]] == [H200.name] * 3
    assert [t["gain"] for t in found["times"]] == pytest.approx([2, 2, 2])
    shown = diff(f"{SPEC}@1", f"{SPEC}@2").stdout
    assert "2.00x" in shown
    assert "PTX instructions that differ" in shown
    now = said(diff(SPEC, f"{SPEC}@1", "--json"))  # the stage as it is is version 1
    assert (now["source"], [t["gain"] for t in now["times"]]) == ([], [1, 1, 1])


def test_times_of_two_devices_are_not_compared(diff: Diff) -> None:
    before = Snapshot.of(stage())
    versions.of(stage()).keep(before, record())
    other = dataclasses.replace(before, parameters={"THREADS": 64})
    versions.of(stage()).keep(other, record(device=dataclasses.replace(H200, name="NVIDIA B200")))
    found = said(diff(f"{SPEC}@1", f"{SPEC}@2", "--json"))["times"]
    assert [t["gain"] for t in found] == [None] * 6


def test_sass_is_counted_where_there_is_a_disassembler(diff: Diff, monkeypatch: pytest.MonkeyPatch) -> None:
    (other,) = registry.select(["vector_add:vectorized"])
    monkeypatch.setattr(disassembly, "sass", lambda path: NVDISASM if path.name.startswith("1_") else CUOBJDUMP)
    found = said(diff(SPEC, other.spec, "--json"))
    assert (found["instructions_of"], found["parameters"]) == ("SASS", [])
    assert found["instructions"][:2] == [
        {"name": "all", "before": 9, "after": 2},
        {"name": "LDG.E.128.CONSTANT", "before": 2, "after": 0},
    ]


def test_a_version_whose_kernel_had_another_name_still_has_resources(diff: Diff) -> None:
    before = Snapshot.of(stage())
    renamed = before.files[before.source].replace(b"vector_add_naive", b"add_them")
    versions.of(stage()).keep(dataclasses.replace(before, files={**before.files, before.source: renamed}), record())
    found = said(diff(SPEC, f"{SPEC}@1", "--json"))
    after = {r["name"]: r["after"] for r in found["resources"]}
    assert after["registers"] > 0
    assert after["threads a block"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("gemm:naive", SPEC), 2, f"gemm:naive and {SPEC} are of different operations"),
        (("gemm:naive", "gemm:naive@3"), 1, "has no version 3"),
        (("gemm:naive", "gemm:tma_pipeline", "--problem", "m=3,n=3,k=3"), 2, "there is no problem that both take"),
        ((SPEC, "naive"), 2, "naive names "),
    ],
)
def test_what_cannot_be_compared(diff: Diff, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = diff(*arguments)
    assert (result.exit_code, result.stderr.count("Error: ")) == (code, 1)
    assert message in result.stderr
