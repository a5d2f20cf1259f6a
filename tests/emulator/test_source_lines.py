"""Which line of the CUDA source a finding names, whatever line the compiler gives to asm statements."""

from __future__ import annotations

import pytest

from workbench.emulator import ptx
from workbench.emulator.program import Program

SOURCE = """
__global__ void k(float* x, const int* index) {
  asm volatile("{ mov.b32 %0, 1; }  // a \\") of the text, and (
               : "=r"(one)
               : "r"(at(
                   index[0]))  /* ) */
               : "memory");
  x[0] = one;
}
"""

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b32 %r<4>;
.loc 1 6 20
mov.u32 %r1, %tid.x;
.loc 1 5 20{inlined}
// begin inline asm
mov.b32 %r2, %r1;
// end inline asm
.loc 1 8 3
add.s32 %r3, %r2, 1;
ret;
}
.file 1 "a folder/k.cu"
"""


def lines(text: str, sources: dict[str, str]) -> list[int]:
    entry = Program.from_ptx(text, sources=sources).entries["k"]
    return [instruction.location.line for instruction in entry.instructions]


@pytest.mark.parametrize("inlined", ["", ", function_name $L__info_string0, inlined_at 1 8 3"])
def test_an_asm_statement_has_the_line_on_which_it_begins_and_its_operands_have_their_own(inlined: str) -> None:
    # as NVRTC 13.0 writes it: the place before the asm is that of an operand
    text = PTX.replace("{inlined}", inlined)
    assert lines(text, {}) == [6, 5, 8, 8]
    assert lines(text, {"k.cu": SOURCE}) == [6, 3, 8, 8]
    assert lines(text, {"k.cu": SOURCE.replace("asm volatile", "plasma")}) == [6, 5, 8, 8]


def test_errors_of_ptx_keep_their_lines_where_an_asm_statement_is_given_its_first() -> None:
    text = PTX.replace("{inlined}", "").replace("add.s32 %r3, %r2, 1;", "add.s32 %r3, %r2, 1")
    for sources in ({}, {"k.cu": SOURCE}):
        with pytest.raises(ptx.PtxSyntaxError) as error:
            Program.from_ptx(text, sources=sources)
        assert "14" in str(error.value)
