"""Modules of many kernels: each is read, decoded and refused by itself."""

import re

import numpy as np
import pytest

from workbench.emulator import (
    CompileError,
    LaunchError,
    Memory,
    Program,
    PtxSyntaxError,
    UnsupportedInstruction,
    execute,
    launch,
    load,
    ptx,
)
from workbench.emulator.source import _assembler

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
GOOD = """
.visible .entry good{n}(.param .u64 x) {{
    .reg .b64 %d; .reg .b32 %r;
    ld.param.u64 %d, [x];
    mov.u32 %r, {n};
    st.global.u32 [%d], %r;
    ret;
}}
"""
BAD = ".visible .entry {name}(.param .u64 x) {{ .reg .b32 %r; {body} ret; }}\n"


def stored(program: str | Program, kernel: str) -> int:
    x = np.zeros(1, np.int32)
    assert launch(program, kernel, 1, 1, [x]).ok
    return int(x[0])


def test_what_is_wrong_with_a_kernel_refuses_that_kernel_alone() -> None:
    unknown = BAD.format(name="unknown", body="\nfrobnicate.b32 %r, %r;")
    broken = BAD.format(name="broken", body="mov.u32 %r %r %r;")
    undeclared = BAD.format(name="undeclared", body="mov.u32 %r, %s;")
    refused = BAD.format(name="refused", body="cvt.rna.relu.tf32.f32 %r, 0f3F800000;")  # by ptxas
    text = HEAD + unknown + broken + undeclared + refused + GOOD.format(n=7)
    program = load(text)
    assert list(program.entries) == ["unknown", "broken", "undeclared", "refused", "good7"]
    assert stored(program, "good7") == stored(text, "good7") == 7
    with pytest.raises(UnsupportedInstruction, match="frobnicate") as error:
        program.entries["unknown"]
    assert error.value.ptx_line == 5
    for name, words in (("broken", "not an operand"), ("undeclared", "%s is not declared")):
        for _ in range(2):
            with pytest.raises(PtxSyntaxError, match=words):
                launch(program, name, 1, 1, [None])
    if _assembler() is not None:
        line = 1 + text.count("\n", 0, text.index("cvt.rna"))
        with pytest.raises(CompileError, match=f"kernel.ptx:{line}: ptxas refuses it: .*relu"):
            program.entries["refused"]
    with pytest.raises(LaunchError, match="there is no kernel 'other'; the source has: broken, good7, refused"):
        launch(program, "other", 1, 1, [None])


def test_a_block_has_the_shared_variables_of_a_module_that_its_kernel_names_or_what_that_calls() -> None:
    text = (
        HEAD
        + """
.shared .align 4 .b8 large[40000];
.shared .align 4 .b8 small[16];
.extern .shared .align 16 .b8 dynamic[];
.func helper() { .reg .b32 r; ld.shared.b32 r, [small]; ret; }
.visible .entry one() { .reg .b32 r; ld.shared.b32 r, [large]; ret; }
.visible .entry two() { call helper; ret; }
.visible .entry none() { ret; }
.visible .entry any() { .reg .b64 %p; mov.b64 %p, helper; call %p, (), kind; kind: .callprototype _ (); ret; }
"""
    )
    program, wanted = load(text), {"one": 40000, "two": 16, "none": 0}
    assert {name: program.entries[name].static_shared_bytes for name in wanted} == wanted
    signatures = Program.signatures(text)
    assert {name: signatures[name].static_shared_bytes for name in wanted} == wanted
    assert signatures["any"].static_shared_bytes == 40000 + 16  # through the pointer


def test_a_program_of_one_kernel_is_decoded_at_once() -> None:
    with pytest.raises(UnsupportedInstruction):
        load(HEAD + BAD.format(name="unknown", body="frobnicate.b32 %r, %r;"))


def test_only_the_kernel_that_is_wanted_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    called = ".func helper{n}() {{ ret; }}\n"
    text = HEAD + "".join(called.format(n=n) for n in range(300))
    text += "".join(GOOD.format(n=n).replace("ret;", f"call helper{n}; ret;") for n in range(300))
    read: list[str] = []
    plain = ptx.Module.read

    def reading(module: ptx.Module, function: ptx.Function) -> None:
        read.append(function.name)
        plain(module, function)

    monkeypatch.setattr(ptx.Module, "read", reading)
    assert stored(text, "good17") == 17
    assert sorted(read) == ["good17", "helper17"]


POINTER = """
typedef int (*Function)(int);
__device__ Function chosen;
__device__ __noinline__ int twice(int x) { return 2 * x + clock() * 0; }
__device__ __noinline__ int square(int x) { return x * x + clock() * 0; }
extern "C" __global__ void choose(int n) { chosen = n ? twice : square; }
extern "C" __global__ void use(int* x) { x[0] = chosen(x[0]); }
"""


@pytest.mark.parametrize(("choice", "wanted"), [(1, 10), (0, 25)])
def test_a_pointer_from_one_kernel_is_called_by_another(choice: int, wanted: int) -> None:
    program, memory = load(POINTER), Memory()
    x = memory.upload(np.array([5], np.int32), "x")
    execute(program.entries["choose"], 1, 1, [choice], memory=memory)
    execute(program.entries["use"], 1, 1, [x], memory=memory)
    assert memory.read(x, np.int32, (1,)).tolist() == [wanted]


def test_a_kernel_alone_keeps_its_lines_and_what_it_reaches() -> None:
    text = HEAD + ".func pointed();\n.func more();\n.global .u64 table = pointed;\n"
    text += ".func named() { ret; } // {\n.func pointed() { call more; ret; }\n"
    text += ".func more() { ret; }\n.func other() {\n ret; }\n" + GOOD.format(n=1)
    text += GOOD.format(n=2).replace("ret;", "call named; ret;")
    module = ptx.parse(text, bodies=False)
    alone = module.text_of(module.functions["good2"])
    assert re.findall(r"\.(?:func|entry) (\w+)", alone) == ["pointed", "more", "named", "pointed", "more", "good2"]
    assert alone.count("\n") == text.count("\n")
    line = text.splitlines().index(".visible .entry good2(.param .u64 x) {")
    assert alone.splitlines()[line] == text.splitlines()[line]
    if _assembler() is not None:
        assert stored(text, "good2") == 2
