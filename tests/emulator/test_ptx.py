"""The parser reads what NVRTC writes, and says where it does not understand."""

from __future__ import annotations

import time

import pytest
from emulation import module, ptx_of

from workbench.emulator import Program, ptx
from workbench.emulator.ptx import Address, Group, Immediate, Negated, Pair, Register, Sink, Special, Symbol, Vector

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<20>; .reg .b16 %rs<9>;"


def instructions(body: str, registers: str = REGISTERS) -> list[ptx.Instruction]:
    return ptx.parse(module(body, ".param .u64 p0, .param .u32 p1", registers)).functions["k"].instructions


def operands(statement: str) -> tuple[ptx.Operand, ...]:
    return instructions(statement)[0].operands


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("0x1F", 31),
        ("0XfF", 255),
        ("010", 8),
        ("0b101", 5),
        ("42U", 42),
        ("-2147483648", -(2**31)),
        ("0xffffffffffffffff", 2**64 - 1),
    ],
)
def test_integer_literals(text: str, value: int) -> None:
    assert operands(f"mov.u64 %rd1, {text};")[1] == Immediate(value)


@pytest.mark.parametrize(
    ("text", "type_name", "bits"),
    [
        ("0f3F800000", "f32", 0x3F800000),
        ("0F3f800000", "b32", 0x3F800000),
        ("0d3FF0000000000000", "f64", 0x3FF0000000000000),
        ("0f3F800000", "f64", 0x3FF0000000000000),
        ("0d3FF0000000000000", "f32", 0x3F800000),
        ("1.5", "f32", 0x3FC00000),
        ("-1.5e0", "f64", 0xBFF8000000000000),
        ("2", "f32", 0x40000000),
        ("-1", "u16", 0xFFFF),
        ("-1", "b64", 2**64 - 1),
    ],
)
def test_literals_take_the_width_of_their_instruction(text: str, type_name: str, bits: int) -> None:
    literal = operands(f"mov.b64 %rd1, {text};")[1]
    assert isinstance(literal, Immediate)
    assert literal.bits(type_name) == bits


def test_addresses() -> None:
    base, offset = operands("ld.global.u32 %r1, [%rd3+-1024];")[1], -1024
    assert isinstance(base, Address)
    assert isinstance(base.base, Register)
    assert (base.base.name, base.offset) == ("%rd3", offset)
    assert operands("ld.param.u32 %r1, [p1+4];")[1] == Address(Symbol("p1"), 4)
    assert operands("ld.shared.u32 %r1, [tile+8+4];")[1] == Address(Symbol("tile"), 12)
    assert operands("ld.shared.u32 %r1, [ tile ];")[1] == Address(Symbol("tile"))
    assert operands("ld.shared.u32 %r1, [64];")[1] == Address(Immediate(0), 64)
    tensor = operands("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r1, %r2}];")[0]
    assert isinstance(tensor, Address)
    assert [str(c) for c in tensor.coordinates] == ["%r1", "%r2"]


def test_compound_operands() -> None:
    pair, *_ = operands("shfl.sync.idx.b32 %r1|%p1, %r2, %r3, 31, -1;")
    assert isinstance(pair, Pair)
    assert [str(pair.first), str(pair.second)] == ["%r1", "%p1"]
    elect, _ = operands("elect.sync _|%p1, 0xffffffff;")
    assert isinstance(elect, Pair)
    assert elect.first == Sink()
    vector, _ = operands("ld.global.v4.f32 {%f1, _, %f3,%f4}, [%rd1];")
    assert isinstance(vector, Vector)
    assert vector.elements[1] == Sink()
    assert [str(e) for e in vector.elements[2:]] == ["%f3", "%f4"]
    negated = operands("selp.b32 %r1, %r2, %r3, !%p2;")[3]
    assert isinstance(negated, Negated)
    assert operands("mov.u32 %r1, %ctaid.x;")[1] == Special("%ctaid.x")
    assert operands("mov.u32 %r1, WARP_SZ;")[1] == Immediate(32)
    assert operands("mov.b64 %rd1, tile+16;")[1] == Symbol("tile", 16)


def test_guards() -> None:
    plain, negated, free = instructions("@%p1 add.s32 %r1, %r2, 1;\n@!%p2 bra $L;\n$L: ret;")
    assert (plain.guard.name, plain.guard_negated) == ("%p1", False)
    assert (negated.guard.name, negated.guard_negated) == ("%p2", True)
    assert free.guard is None


def test_a_statement_may_span_lines_and_hold_comments() -> None:
    (mma,) = instructions(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32\n  {%f1,%f2, // half\n%f3,%f4},\n"
        "/* A; */ {%r1,%r2,%r3,%r4},\n{%r5,%r6}, {%f1,%f2,%f3,%f4};"
    )
    assert [len(v.elements) for v in mma.operands if isinstance(v, Vector)] == [4, 4, 2, 4]


def test_scopes_shadow_registers_and_labels() -> None:
    body = """
    mov.u32 %r1, 1;
    { .reg .b32 %r1; .reg .pred P; LOOP: mov.u32 %r1, 2; @P bra LOOP; @P bra DONE; DONE: }
    { .reg .pred P; LOOP: @P bra LOOP; bra DONE; { mov.u32 %r1, 4; } DONE: }
    mov.u32 %r1, 3;
    """
    code = instructions(body)
    written = [i.operands[0] for i in code if i.opcode == "mov.u32"]
    assert written[0] is written[2] is written[3]
    assert written[1] is not written[0]
    branches = [i.operands[0] for i in code if i.opcode == "bra"]
    assert [b.target for b in branches if isinstance(b, ptx.Label)] == [1, 4, 4, 7]
    assert code[2].guard is not code[4].guard


def test_inner_braces_may_redeclare_what_they_have_used() -> None:
    code = instructions("{ mov.u32 %r1, 1; .reg .b32 %r1; mov.u32 %r1, 2; }")
    assert code[0].operands[0] is not code[1].operands[0]


def test_entry_attributes() -> None:
    text = HEAD + (
        ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global .align 16 a, .param .f32 x,"
        ".param .u8 c, .param .align 8 .b8 s[12])\n.maxntid 256, 2, 1\n.minnctapersm 2\n"
        ".explicitcluster\n.reqnctapercluster 2\n{ ret; }"
    )
    entry = ptx.parse(text).functions["k"]
    assert [(p.name, p.size, p.align, p.type, p.offset) for p in entry.parameters] == [
        ("map", 128, 64, "b8", 0),
        ("a", 8, 8, "u64", 128),
        ("x", 4, 4, "f32", 136),
        ("c", 1, 1, "u8", 140),
        ("s", 12, 8, "b8", 144),
    ]
    assert entry.directives["maxntid"] == (256, 2, 1)
    assert entry.directives["minnctapersm"] == (2,)
    assert entry.directives["reqnctapercluster"] == (2,)
    assert "explicitcluster" in entry.directives


def test_module_variables_and_their_initial_values() -> None:
    text = HEAD + (
        ".global .align 4 .b8 table[8] = {1, 0, 0, 0, 255};\n.const .f32 pi = 0f40490FDB;\n"
        ".visible .global .align 8 .u64 pointers[2] = {generic(table), table+4};\n"
        ".extern .shared .align 1024 .b8 dynamic[];\n.global .align 4 .u32 matrix[2][3];\n"
        ".shared .align 8 .b64 barrier;\n"
    )
    variables = ptx.parse(text).variables
    assert variables["table"].initial == bytes([1, 0, 0, 0, 255, 0, 0, 0])
    assert variables["pi"].initial == bytes.fromhex("db0f4940")
    assert variables["pointers"].relocations == ((0, "table", 0, 8), (8, "table", 4, 8))
    assert (variables["dynamic"].external, variables["dynamic"].align, variables["dynamic"].size) == (True, 1024, 0)
    assert variables["matrix"].size == 24
    assert (variables["barrier"].space, variables["barrier"].size) == ("shared", 8)


def test_variables_of_a_body_and_of_call_sequences_have_their_own_names() -> None:
    body = """
    .shared .align 16 .b8 _ZZ1kE4tile[64];
    .local .align 8 .b8 __local_depot0[32];
    { .param .b32 param0; st.param.b32 [param0+0], %r1; call.uni (param0), f, (param0); }
    { .param .b64 param0; st.param.b64 [param0+0], %rd1; }
    """
    function = ptx.parse(module(body, "", REGISTERS)).functions["k"]
    spaces = {(v.space, v.readable_name.partition(".")[0], v.size) for v in function.variables.values()}
    assert spaces == {
        ("shared", "tile", 64),
        ("local", "__local_depot0", 32),
        ("param", "param0", 4),
        ("param", "param0", 8),
    }
    call = function.instructions[1]
    assert [type(o) for o in call.operands] == [Group, Symbol, Group]


def test_branch_tables() -> None:
    body = "T: .branchtargets $A, $B;\n@%p1 brx.idx %r1, T;\n$A: mov.u32 %r1, 1;\n$B: ret;"
    function = ptx.parse(module(body, "", REGISTERS)).functions["k"]
    assert [label.target for label in function.branch_tables["T"]] == [1, 2]


def test_locations_follow_chains_of_inlining() -> None:
    source = """
    __device__ __forceinline__ float third(float* x, int i) {
        return x[i] * x[i + 1];                                   // innermost
    }
    __device__ __forceinline__ float second(float* x, int i) {
        return third(x, i) + 1.f;                                 // middle
    }
    extern "C" __global__ void k(float* x) {
        x[0] = second(x, threadIdx.x);                            // outermost
    }
    """
    lines = {
        word: number
        for number, line in enumerate(source.splitlines(), 1)
        for word in [line.partition("// ")[2]]
        if word
    }
    code = ptx.parse(ptx_of(source, name="chain.cu")).functions["k"].instructions
    load = next(i for i in code if i.opcode.startswith("ld.global"))
    assert load.location.file.endswith("chain.cu")
    assert load.location.line == lines["innermost"]
    assert load.location.function == "third"
    assert [(p.line, p.function) for p in load.location.inlined_at] == [
        (lines["middle"], "second"),
        (lines["outermost"], None),
    ]
    store = next(i for i in code if i.opcode.startswith("st.global"))
    assert (store.location.line, store.location.inlined_at) == (lines["outermost"], ())


def test_a_call_within_a_macro_is_inlined_once() -> None:
    source = """
    #define READ(name, type) \\
        __device__ __forceinline__ type name##_of(const type* x, int i) { \\
            type y; \\
            asm volatile("ld.global.f32 %0, [%1];" : "=f"(y) : "l"(x + i)); \\
            return y; \\
        } \\
        __device__ __forceinline__ type name(const type* x, int i) { return name##_of(x, i); }
    READ(element, float)                                          // macro
    extern "C" __global__ void k(float* x) {
        float sum = 0.f;
    #pragma unroll
        for (int i = 0; i < 4; ++i) sum += element(x, i);         // call
        x[0] = sum;
    }
    """
    lines = {word: number for number, line in enumerate(source.splitlines(), 1) for word in [line.partition("// ")[2]]}
    code = ptx.parse(ptx_of(source, name="macro.cu")).functions["k"].instructions
    loads = [i.location for i in code if i.opcode.startswith("ld.global")]
    assert len(loads) == 4
    for load in loads:
        assert [p.line for p in (load, *load.inlined_at)] == [lines["macro"], lines["macro"], lines["call"]]


def test_line_zero_keeps_the_line_before() -> None:
    text = (
        HEAD
        + ".entry k()\n{\n.reg .b32 r;\n.loc 1 7 1\nmov.u32 r, 0;\n.loc 1 0 3\nmov.u32 r, 1;\nret;\n}\n"
        + '.file 1 "x//y.cu"\n'
    )
    code = ptx.parse(text).functions["k"].instructions
    assert [(i.location.file, i.location.line) for i in code] == [("x//y.cu", 7)] * 3


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no .version"),
        (HEAD + ".entry k()\n{\n  ret\n}", 6, "semicolon"),
        (HEAD + ".entry k()\n{\n  ret;\n", 7, "closing brace"),
        (HEAD + ".entry k()\n{\n  mov.u32 %r1, 0;\n}", 6, "%r1 is not declared"),
        (HEAD + ".entry k()\n{\n  .reg .b32 %r<2>;\n  mov.u32 %r2, 0;\n}", 7, "%r2 is not declared"),
        (HEAD + ".entry k()\n{\n\n  bra $nowhere;\n}", 7, "no label $nowhere"),
        (HEAD + ".entry k()\n{\nA: ret;\nA: ret;\n}", 7, "defined twice"),
        (HEAD + "\n\nhello;\n", 6, "directive was expected"),
        (HEAD + ".entry k()\n{\n .reg .b32 a;\n mov.u32 a, 12x;\n}", 7, "'12x' is not an operand"),
    ],
)
def test_errors_name_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=words.replace("$", r"\$")) as error:
        ptx.parse(text)
    assert error.value.line == line
    assert f"PTX line {line}" in str(error.value)


@pytest.mark.parametrize(
    ("symbol", "readable"),
    [
        ("_ZZ10wgmma_gemmE4full", "full"),
        ("_ZZN3fooEvE3bar_0", "bar"),
        ("_Z3addPf", "add"),
        ("_ZN2ns3addEv", "ns::add"),
        ("smem", "smem"),
        ("_ZL5table", "table"),
        ("_Z", "_Z"),
    ],
)
def test_mangled_names_become_readable(symbol: str, readable: str) -> None:
    assert ptx.readable_symbol(symbol) == readable


def test_a_long_module_is_parsed_and_decoded_in_well_under_two_seconds() -> None:
    step = "{ .reg .b16 a; .reg .pred P; cvt.rn.f16.f32 a, %f1;\n"
    step += "fma.rn.f32 %f2, %f1, 0f3F800000, %f2;\n setp.lt.f32 P, %f1, %f2;\n}\n"
    text = module((".loc 1 3 4\n" + step + "st.global.v2.f32 [%rd1+8], {%f1, %f2};\n") * 4000, "", REGISTERS)
    started = time.process_time()
    parsed = ptx.parse(text)
    assert len(parsed.functions["k"].instructions) == 16_000
    assert time.process_time() - started < 1
    assert Program.from_ptx(text).entries["k"].register_count > 8_000
    assert time.process_time() - started < 3
