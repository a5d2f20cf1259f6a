"""Devices of other architectures: their instructions and limits."""

import numpy as np
import pytest
from emulation import line_of, module

from workbench.emulator import (
    ARCHITECTURES,
    ArchitectureError,
    CompileError,
    LaunchError,
    Program,
    UnsupportedInstruction,
    launch,
    load,
)
from workbench.emulator.architectures import limits_of, missing

# the first architecture that ptxas takes them for
SINCE = {
    "sm_75": """ldmatrix.sync.aligned.m8n8.x4.shared.b16 atom.add.noftz.f16x2 red.global.add.f64 fence.acq_rel.gpu
        fence.proxy.alias set.lt.u32.f16x2 fma.rn.f16x2 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
        mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 shfl.sync.bfly.b32 tanh.approx.f32 ex2.approx.f16""",
    "sm_80": """cvt.rn.bf16.f32 cvt.rn.bf16x2.f32 cvt.f32.bf16 cvt.rna.tf32.f32 fma.rn.bf16x2 min.NaN.bf16
        cp.async.cg.shared.global mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 createpolicy.fractional.L2::evict_first.b64
        redux.sync.add.u32 mbarrier.arrive.shared.b64 mbarrier.test_wait.b64 max.f16x2""",
    "sm_86": "min.NaN.xorsign.abs.f32 max.xorsign.abs.bf16",
    "sm_89": """cvt.rn.satfinite.e4m3x2.f32 cvt.rn.f16x2.e5m2x2
        mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32""",
    "sm_90": """cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes cp.async.bulk.commit_group
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 stmatrix.sync.aligned.m8n8.x4.b16 elect.sync
        mbarrier.arrive.expect_tx.shared.b64 mbarrier.try_wait.parity.shared.b64 barrier.cluster.arrive mapa.u64
        mbarrier.arrive.shared.b64,count fence.proxy.async fence.mbarrier_init.release.cluster fence.acquire.gpu
        fence.acq_rel.cluster ld.shared::cluster.u32 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32
        add.bf16 set.lt.u32.bf16 setp.lt.bf16x2 ex2.approx.ftz.bf16 tanh.approx.bf16x2 atom.add.noftz.bf16x2
        cvt.f64.bf16 cvt.rn.bf16.s32 cvt.ftz.f32.bf16 cvt.rn.tf32.f32 add.u16x2 min.relu.s32 atom.global.add.v2.f32
        mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 griddepcontrol.wait prefetch.tensormap""",
    "sm_100": "add.rn.f32x2 sub.f32x2 mul.ftz.f32x2 fma.rn.ftz.f32x2 max.f32,three",
}
ORDER = ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_architecture_has_the_instructions_that_ptxas_takes_for_it(arch: str) -> None:
    for since, opcodes in SINCE.items():
        has = ORDER.index(arch.rstrip("af")) >= ORDER.index(since)
        for opcode in opcodes.split():
            assert (missing(opcode, arch) is None) == has, opcode
            assert has or f"needs {since} or later" in str(missing(opcode, arch))
    assert (missing("wgmma.fence.sync.aligned", arch) is None) == (arch == "sm_90a")
    assert (missing("setmaxnreg.inc.sync.aligned.u32", arch) is None) == arch.endswith(("a", "f"))
    tensor = arch[:6] in ("sm_100", "sm_103", "sm_110") and arch[-1] in "af"
    assert (missing("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", arch) is None) == tensor


BULK = "mov.b64 %d, 0; cp.async.bulk.commit_group; ret;"


def test_ptx_chooses_the_architecture_by_its_target() -> None:
    text = module(BULK, "", ".reg .b64 %d;")
    plain = module("ret;")
    same = ("sm_75", "sm_90", "sm_90a", "sm_100f", "sm_103a", "sm_121a")
    nearest = {"sm_52": "sm_80", "sm_88": "sm_87", "sm_120, debug": "sm_120", "compute_89": "sm_89"}
    nearest |= {name: name for name in same}
    for target, arch in nearest.items():
        assert Program.from_ptx(plain.replace("sm_90a", target)).arch == arch
    with pytest.raises(UnsupportedInstruction, match=r"commit_group`: sm_80 does not have it, it needs sm_90 or later"):
        load(text.replace("sm_90a", "sm_80"))
    with pytest.raises(UnsupportedInstruction, match="sm_80 does not have it"):  # as ptxas has it
        load(text.replace("sm_90a", "sm_80"), arch="sm_120")
    assert load(plain.replace("sm_90a", "sm_80"), arch="sm_120").arch == "sm_120"
    with pytest.raises(ArchitectureError, match="for sm_90a and runs there alone, not on sm_120"):
        load(text, arch="120")
    with pytest.raises(ArchitectureError, match="for sm_90 and does not run on one before it, not on sm_89"):
        load(text.replace("sm_90a", "sm_90"), arch="sm_89")
    plain = plain.replace(".version 8.5", ".version 9.0")
    family = plain.replace("sm_90a", "sm_100f")
    assert [load(family, arch=arch).arch for arch in ("sm_100a", "sm_103f")] == ["sm_100a", "sm_103f"]
    for arch in ("sm_100", "sm_110a", "sm_120f"):
        with pytest.raises(ArchitectureError, match="for sm_100f and runs on sm_100f and later ones of its family"):
            load(family, arch=arch)
    with pytest.raises(ArchitectureError, match=r"no architecture 'sm_91' here; there are sm_75, sm_80"):
        load(text, arch="sm_91")


SOURCE = """
extern "C" __global__ void k(int* x) {
    extern __shared__ int s[];
    s[threadIdx.x] = __CUDA_ARCH__;
    unsigned sms, warps;
    asm("mov.u32 %0, %%nsmid;" : "=r"(sms));
    asm("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    x[0] = s[threadIdx.x], x[1] = sms, x[2] = warps;
}
"""


def test_cuda_is_compiled_for_the_architecture_that_is_wanted() -> None:
    for arch, found in (
        ("75", [750, 40, 32]),
        ("sm_80", [800, 108, 64]),
        ("86", [860, 82, 48]),
        ("sm_90", [900, 132, 64]),
    ):
        x = np.zeros(3, np.int32)
        assert launch(SOURCE, "k", 1, 1, [x], shared=4, arch=arch).ok
        assert x.tolist() == found
    for options in (["-arch=sm_120"], ["--gpu-architecture=compute_120a"]):
        assert load(SOURCE, options=options).arch == ("sm_120a" if "a" in options[0][-1] else "sm_120")
    assert load(SOURCE).arch == "sm_90a"
    with pytest.raises(ArchitectureError, match="the program is for sm_90a: give arch='sm_80' to load"):
        launch(load(SOURCE), "k", 1, 1, [x], arch="sm_80")
    wgmma = """extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }"""
    with pytest.raises((CompileError, UnsupportedInstruction), match="wgmma"):
        load(wgmma, arch="sm_90")
    load(wgmma, arch="sm_90a")


INLINED = """
__device__ void wait_for_all() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // in the wrapper
}
__global__ void old(float* x) { x[threadIdx.x] = 1; }
__global__ void bulk(float* x) {
    wait_for_all();  // in the kernel
}
int main() { bulk<<<1, 1>>>(nullptr); }
"""


def test_an_instruction_that_ptxas_refuses_is_named_at_its_line_of_the_source() -> None:
    wrapper, kernel = line_of(INLINED, "// in the wrapper"), line_of(INLINED, "// in the kernel")
    with pytest.raises(CompileError) as error:
        load(INLINED, arch="sm_80", entry="bulk")
    named = f"kernel.cu({wrapper}): error: ptxas: "
    assert named in str(error.value)
    assert f"(inlined at line {kernel} of kernel.cu)" in str(error.value)
    assert "application ptx input" not in str(error.value)
    x = np.zeros(32, np.float32)
    assert launch(load(INLINED, arch="sm_80", entry="old"), "old", 1, 32, [x]).ok
    assert x.all()


@pytest.mark.parametrize("sources", ["%a, %b, %c", "%x, %b, %c", "%a, %x, %c", "%a, %b, %x", "%x, %a, %x"])
@pytest.mark.parametrize("name", ["max", "max.NaN", "min", "min.ftz"])
def test_the_largest_of_three(name: str, sources: str) -> None:
    values = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    values[np.random.default_rng(1).random((4, 32)) < 0.2] = np.nan
    loads = "".join(f"ld.global.f32 %{r}, [%p + {128 * i}];\n" for i, r in enumerate("abcx"))
    body = "mov.u32 %t, %tid.x; ld.param.u64 %p, [p]; mad.wide.u32 %p, %t, 4, %p;\n" + loads
    body += f"{name}.f32 %x, {sources};\nst.global.f32 [%p], %x;\nret;"
    registers = ".reg .b32 %t; .reg .b64 %p; .reg .f32 %a, %b, %c, %x;"
    text = module(body, ".param .u64 p", registers)
    with pytest.raises(UnsupportedInstruction, match="needs sm_100 or later"):
        Program.from_ptx(text)
    given = values.copy()
    assert launch(Program.from_ptx(text.replace("sm_90a", "sm_120a")), "k", 1, 32, [given]).ok
    taken = [values["abcx".index(source[1])] for source in sources.split(", ")]
    choose = {"max": np.fmax, "max.NaN": np.maximum}.get(name, np.fmin)
    np.testing.assert_array_equal(given[0], choose(choose(taken[0], taken[1]), taken[2]))


@pytest.mark.parametrize(
    ("arch", "shared", "held"),
    [
        ("sm_80", 166_912, 8),
        ("sm_86", 101_376, 6),
        ("sm_89", 101_376, 6),
        ("sm_90", 232_448, 8),
        ("sm_120", 101_376, 6),
    ],
)
def test_the_limits_of_a_launch_are_the_architecture_s(arch: str, shared: int, held: int) -> None:
    program, x = load(SOURCE, arch=arch), np.zeros(3, np.int32)
    assert launch(program, "k", 1, 1, [x], shared=shared).ok
    with pytest.raises(LaunchError, match=f"{shared} are allowed on NVIDIA"):
        launch(program, "k", 1, 1, [x], shared=shared + 16)
    limits = limits_of(arch)
    assert limits.blocks_per_sm(256, 1024) == held
    assert limits.blocks_per_sm(32, 0) == {"sm_86": 16, "sm_89": 24, "sm_120": 24}.get(arch, 32)
    clusters = ORDER.index(arch) >= ORDER.index("sm_90")
    if clusters:
        assert launch(program, "k", 2, 1, [np.zeros(3, np.int32)], shared=4, cluster=2).findings
    else:
        with pytest.raises(LaunchError, match=rf"\({arch}\) has no clusters of blocks; they need sm_90 or later"):
            launch(program, "k", 2, 1, [x], shared=4, cluster=2)


def test_tensor_memory_is_refused_where_there_is_none() -> None:
    text = module("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; ret;").replace("sm_90a", "sm_120a")
    with pytest.raises(
        UnsupportedInstruction, match=r"sm_120a does not have it, it needs sm_100a or sm_100f or sm_103a"
    ):
        load(text)
