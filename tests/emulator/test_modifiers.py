"""Modifiers of opcodes, in the orders that ptxas takes them in."""

import random

import numpy as np
import pytest
from emulation import module

from workbench.emulator import Program, UnsupportedInstruction, launch
from workbench.emulator.operations import listed_name, operations

FIXED = {"global", "shared", "shared::cluster", "local", "param", "const", "row", "col", "pred", "rs"}
REGISTERS = ".reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .f32 %f<9>; .reg .f64 %e<2>; .reg .b16 %h<2>;"

# as it is, and as older compilers or people write it
SPELLINGS = [
    ("ldmatrix.sync.aligned.{}.shared.b16 {{%r0, %r1, %r2, %r3}}, [%d0];", "m8n8.x4", "x4.m8n8"),
    (
        "ldmatrix.sync.aligned.{}.b16 {{%r0, %r1, %r2, %r3}}, [%d0];",
        "m8n8.x4.trans.shared",
        "x4.trans.m8n8.shared::cta",
    ),
    ("stmatrix.sync.aligned.{}.shared.b16 [%d0], {{%r0, %r1}};", "m8n8.x2.trans", "trans.x2.m8n8"),
    ("vote.{}.b32 %r0, %p0, -1;", "sync.ballot", "ballot.sync"),
    ("vote.{}.pred %p1, !%p0, -1;", "sync.any", "any.sync"),
    ("shfl.{}.b32 %r0|%p1, %r1, 1, 31, -1;", "sync.up", "up.sync"),
    ("match.{}.b32 %r0|%p1, %r1, -1;", "all.sync", "sync.all"),
    ("redux.{}.u32 %r0, %r1, -1;", "sync.add", "add.sync"),
    ("movmatrix.sync.aligned.{}.b16 %r0, %r1;", "m8n8.trans", "trans.m8n8"),
    ("cvt{}.f32.f64 %f0, %e0;", ".rn.ftz", ".ftz.rn"),
    ("cvt.rzi{}.s32.f32 %r0, %f0;", ".ftz.sat", ".sat.ftz"),
    ("fma{}.f32 %f0, %f1, %f2, %f3;", ".rn.ftz.sat", ".sat.ftz.rn"),
    ("setp{} %p1, %f0, %f1;", ".lt.ftz.f32", ".f32.ftz.lt"),
    ("min{}.f32 %f0, %f1, %f2;", ".ftz.NaN", ".NaN.ftz"),
    ("ld{} {{%f0, %f1, %f2, %f3}}, [%d0];", ".global.nc.v4.f32", ".nc.global.f32.v4"),
    ("ld{} %r0, [%d0];", ".relaxed.gpu.global.u32", ".global.gpu.relaxed.u32"),
    ("atom{}.u32 %r0, [%d0], %r1;", ".acq_rel.gpu.global.add", ".global.add.gpu.acq_rel"),
    ("red{}.u32 [%d0], %r1;", ".relaxed.sys.global.max", ".max.global.sys.relaxed"),
    ("cp.async{} [%r0], [%d0], 16;", ".cg.shared.global", ".shared.global.cg"),
    ("cp.async{} [%r0], [%d0], 16, %p0;", ".cg.shared.global.L2::128B", ".shared.global.L2::128B.cg"),
    ("fence{};", ".acq_rel.gpu", ".gpu.acq_rel"),
    (
        "mma{}.f32.bf16.bf16.f32 {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%f4, %f5, %f6, %f7}};",
        ".sync.aligned.m16n8k16.row.col",
        ".aligned.sync.row.col.m16n8k16",
    ),
]


@pytest.mark.parametrize(("statement", "usual", "other"), SPELLINGS, ids=[s[2] for s in SPELLINGS])
def test_modifiers_may_stand_in_another_order(statement: str, usual: str, other: str) -> None:
    rows = []
    for modifiers in (usual, other):
        text = module(f"{statement.format(modifiers)} ret;", "", REGISTERS)
        rows.append(Program.from_ptx(text).entries["k"].decoded.rows.tolist())
    assert rows[0] == rows[1]


def test_every_operation_is_known_in_any_order_of_its_modifiers() -> None:
    rng = random.Random(3)
    for name in operations():
        base, *parts = name.split(".")
        if base == "mov":  # whose names say how many operands there are
            continue
        types = [p for p in parts if p in FIXED or (p[:1] in "busfet" and p[-1:].isdigit())]
        others = [p for p in parts if p not in types]
        rng.shuffle(others)
        shuffled = ".".join([base, *others, *types])
        found = listed_name(shuffled)
        assert found is not None, (name, shuffled)
        assert sorted(found.split(".")) == sorted(name.split(".")) and operations()[found][1] == operations()[name][1]


def test_the_order_of_types_and_spaces_matters() -> None:
    assert listed_name("cvt.f64.f32") == "cvt.f64.f32"
    assert listed_name("cvt.f32.f64") is None  # it has to say how it rounds
    assert listed_name("cvta.global.to.u64") == "cvta.to.global.u64"
    for statement in ("cp.async.cg.global.shared [%r0], [%d0], 16;", "cvt.f32.ftz.f64 %f0, %e0;"):
        with pytest.raises(UnsupportedInstruction):
            Program.from_ptx(module(f"{statement} ret;", "", REGISTERS))


def test_a_guard_holds_for_every_step_of_a_conversion() -> None:
    text = module(
        "ld.param.u64 %d0, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;"
        "setp.lt.u32 %p0, %r0, 3; mov.f32 %f0, 0f40A00000; @%p0 cvt.rn.sat.f32.u32 %f0, %r0;"
        "st.global.f32 [%d0], %f0; ret;",
        ".param .u64 x",
        REGISTERS,
    )
    x = np.zeros(5, np.float32)
    assert launch(text, "k", 1, 5, [x]).ok
    assert x.tolist() == [0, 1, 1, 5, 5]
