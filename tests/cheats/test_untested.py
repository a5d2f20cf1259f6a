"""Kernels that are wrong under a condition that hardly a problem meets: `--strict` names each, and no honest one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from workbench import Launch, Operation, simple_operation
from workbench.devices import IsolatedDevice, open_device
from workbench.devices.emulated import EmulatedDevice
from workbench.emulator.coverage import outcomes
from workbench.emulator.program import Program, kernel_line
from workbench.emulator.ptx import parse
from workbench.harness import verify
from workbench.judge.draw import Problems
from workbench.judge.reaching import Reaching
from workbench.model.results import Verdict, Verification
from workbench.model.stage import Stage
from workbench.report import evidence

EXAMPLES = 12

HEAD = """
__constant__ float last[8] = {1, 1, 1, 1, 1, 1, 1, 1};
__device__ bool is(int a, int b) { return a == b; }
extern "C" __global__ void shifted(const float* x, float* y, int m, int n, int mode) {
  const int k = blockIdx.x * 64 + threadIdx.x;
  if (k < m * n) {
    float v = x[k] + 3;
"""
TAIL = "\n    y[k] = v;\n  }\n}\n"

CHEATS = {
    "the size of the grid": "if (gridDim.x % 61 == 60) v = 0;",
    "two parameters": "if (n == 12345 && m % 7 == 3) v = 0;",
    "a select without a branch": "v = n == 54321 ? 0 : v;",
    "an instruction under a predicate": "if (m * 3 + n == 100003) y[0] = 0;",
    "a factor": "v *= n != 54321;",
    "a division": "if (m / 1009 == 5) v = 0;",
    "a call beside another one": "if (is(n, 5) || is(n, 12345)) v = v + (n != 5) - 1;",
    "a condition on data": "if (x[k] == 1234.5f) v = 0;",
    "a sum of data": "if (x[k] + x[0] == 777.25f) v = 0;",
    "several numbers of data": "if (x[k] == x[0] && x[k] == 2.125f) v = 0;",
    "a table that ends": "v = n < 100000 ? v * last[n & 7] : 0;",
    "a combination of remainders": "if (n % 1009 == 96 && m % 1009 == 95) v = 0;",
    "one case of many": "switch (m / 999) { case 1: v = sqrtf(v); break; case 2: v = expf(v); break; case 3: v *= v; "
    "break; case 4: v = 1 / v; break; case 5: v = logf(v); break; case 6: v = sinf(v); break; }",
    "a range": "if (n == 50001 || n == 50002) v = 0;",
    "a small remainder": "if (m % 1009 < 2 && n % 1013 < 3) v = 0;",
    "beside a bound": "if (k < m * n && n != 54321) v = v; else v = 0;",
    "a combination of a field": "if (mode == 2 && m % 1009 == 8) v = 0;",
    "a clock": "if (clock64() % 1000003 == 5) v = 0;",
    "a number of the launch": 'int id; asm("mov.u32 %0, %%gridid;" : "=r"(id)); if (id == 77) v = 0;',
    "a thread far away": "if (k == 987654) v = 0;",
    "two caps": "if (min(n, 54322) - min(n, 54321) > 0) v = 0;",
}
"""By what the condition is about: a line that makes the kernel wrong."""

HONEST = {
    "nothing": "",
    "a role": "if (threadIdx.x == 0) v += 0;",
    "a loop": "for (int j = 0; j < n; ++j) v += j < m ? 0 : 0 * j;",
    "an even number": "if (n % 2 == 0) v += 0; else v -= 0;",
    "a sign": "if (x[k] > 0) v = fabsf(x[k]) + 3;",
    "a cap": "const int cut = max(0, min(n, 4096)); if (cut == 0) v = 0; *(volatile float*)(y + k) = cut;",
}


shifted: Operation[Any] = simple_operation("shifted", "x: m n fp32 -> y: m n fp32")(lambda x: x + 3)


def stage(text: str, name: str) -> Stage[Any]:
    """The kernel with a line of its own, a thread an element."""

    def plan(p: Any, size: Any) -> Launch:
        blocks, numbers = -(-p.m * p.n // 64), (p.m, p.n, p.m % 3)
        return Launch("shifted", (blocks, 1, 1), (64, 1, 1), ("x", "y", *map(np.int32, numbers)))

    made: Stage[Any] = shifted.stage(name, code=HEAD + text + TAIL, idea=name, track=name)(plan)
    return made


def verified(text: str, name: str, strict: bool = True) -> Verification:
    return verify(stage(text, name), open_device("emulator"), examples=EXAMPLES, seed=1, strict=strict)


LINE = HEAD.count("\n") + 1


@pytest.mark.parametrize("about", CHEATS)
def test_a_condition_that_no_problem_has_tried_both_ways_is_named_and_fails_where_strict(about: str) -> None:
    result = verified(CHEATS[about], f"cheat_{about.replace(' ', '_')}")
    if result.verdict is not Verdict.MISMATCH:  # a problem has met it
        assert result.verdict is Verdict.UNTESTED
        assert any(one.line == LINE and not one.is_bound for one in result.untested)
        assert f":{LINE}: `" in result.failure.message  # type: ignore[union-attr]


@pytest.mark.parametrize("about", ["the size of the grid", "two parameters", "a factor"])
def test_problems_are_drawn_that_meet_what_no_other_problem_has_met(about: str) -> None:
    result = verified(CHEATS[about], f"drawn_{about.replace(' ', '_')}", strict=False)
    assert result.verdict is Verdict.MISMATCH


def test_no_problems_are_drawn_for_a_condition_that_has_come_out_both_ways() -> None:
    """A kernel may have others on the line, in another body of the same function."""
    made, device = stage("if (m > 3) v += 0; else v -= 0;", "both"), open_device("emulator")
    drawing = Problems(shifted, [made], "emulator", EXAMPLES, 1)
    solved = [trial.problem for trial in drawing.trials()]
    assert drawing.so_far and {problem.m > 3 for problem in solved} == {True, False}
    reaching = Reaching(made, lambda problem: device.compile(made, problem).ptx, drawing.so_far)
    (ptx, alike), *_ = reaching.codes(solved)
    kernel = parse(ptx).functions["shifted"]
    places = {(at.file, at.line) for at in map(kernel_line, kernel.instructions) if at.line == LINE}
    assert places and reaching.problems(ptx, alike, places) == []


@pytest.mark.parametrize("about", HONEST)
def test_an_honest_kernel_passes_where_strict(about: str) -> None:
    result = verified(HONEST[about], f"honest_{about.replace(' ', '_')}")
    assert result.verdict is Verdict.PASS
    assert not [one for one in result.untested if not one.is_bound]


def test_inputs_are_drawn_that_meet_a_condition_on_data_where_strict() -> None:
    made, device = stage("if (x[k] == -1.f / 0) v = 0;", "infinite"), open_device("emulator")
    found = [verify(made, device, examples=2, seed=1, strict=strict).verdict for strict in (False, True)]
    assert found == [Verdict.PASS, Verdict.MISMATCH]


def test_a_remainder_that_is_made_of_a_quotient_is_the_same_condition() -> None:
    head = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry f(.param .u32 n)\n{\n.reg .u32 %r<6>;\n"
    head += ".reg .pred %p;\nmov.u32 %r1, %ctaid.x;\nld.param.u32 %r2, [n];\n"
    quotient, found = "div.u32 %r3, %r1, %r2; mul.lo.u32 %r4, %r3, %r2; sub.u32 %r5, ", set()
    for text in ("rem.u32 %r5, %r1, %r2;", f"{quotient}%r1, %r4;", f"{quotient}%r4, %r1;"):
        entry = Program.from_ptx(f"{head}{text}\nsetp.eq.u32 %p, %r5, 0;\n@%p trap;\nret;\n}}").entries["f"]
        found |= {*outcomes(entry, np.full(entry.decoded.instructions.size, 1, np.uint8))}
    assert len(found) == 2


ALTERNATES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 n) {
  .reg .pred %p<4>;
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [n];
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r1, 1;
loop:
  not.pred %p3, %p1;
  xor.pred %p1, %p3, %p2;
  sub.u32 %r1, %r1, 1;
  setp.gt.u32 %p2, %r1, 1;
  @%p1 bra loop;
  ret;
}
"""


def test_a_predicate_that_a_loop_writes_from_itself_is_followed_to_an_end() -> None:
    program = Program.from_ptx(ALTERNATES)
    (entry,) = program.entries.values()
    found = outcomes(entry, np.full(entry.decoded.instructions.size, 1, np.uint8))
    assert {condition.line for condition in found} == {8, 9, 11, 12, 14}


def test_a_pass_lists_what_is_untested_in_a_few_lines() -> None:
    text = "".join(f"if (x[k] == {number}.25f) v = {number};" for number in (51, 61, 71, 81))
    result = verified(text, "many", strict=False)
    assert result.verdict is Verdict.PASS
    said = evidence.untested("shifted:many", result).splitlines()
    assert len(said) == 2 + evidence.MOST_UNTESTED
    assert "`a loaded value == 51.25` was never true in" in said[1]
    assert said[-1] == "  and 1 more, which --json lists"
    result.problems = evidence.TELLING - 1
    assert evidence.untested("shifted:many", result) == ""


def test_another_process_tells_of_its_conditions_too() -> None:
    with closing(IsolatedDevice(EmulatedDevice)) as device:
        found = verify(stage("if (x[k] == 54.25f) v = 0;", "far"), device, examples=3, seed=1, strict=True)
    assert found.verdict is Verdict.UNTESTED
