"""Races and barriers of the source that the compiler has optimised away are reported beside what is executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from emulation import line_of

from workbench.emulator import FindingKind, Output, Report, Session, Severity, launch, load, unoptimised

BLOCK = 96


def judged(source: str, *, beside: bool = True, **options: object) -> Report:
    """The report on a kernel ``k`` of 96 threads that has an input and an output of 128 elements."""
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    return Session(load(source)).launch("k", 1, BLOCK, [x, y], unoptimised=beside, **options)  # type: ignore[arg-type]


OVERWRITTEN = """
extern "C" __global__ void k(const int* x, int* y) {
    __shared__ int widest;
    widest = x[threadIdx.x] * 3;  // lost
    BETWEEN
    widest = 11;  // kept
    __syncthreads();
    y[threadIdx.x] = widest;
}
"""
UNREAD = """
extern "C" __global__ void k(const int* x, int* y) {
    __shared__ int row[96];
    int t = threadIdx.x;
    row[t] = x[t];  // store
    BETWEEN
    int unused = row[95 - t];  // load
    __syncthreads();
    row[t] = 2 * t;
    __syncthreads();
    y[t] = row[t];
}
"""
IN_GLOBAL = """
extern "C" __global__ void k(const int* x, int* y) {
    int t = threadIdx.x;
    y[ELEMENT] = t;  // first
    y[ELEMENT] = 5;
}
"""
PROMISED = """
extern "C" __global__ void k(const int* x, int* y) {
    int t = threadIdx.x, v = x[t] - FIRST;
    __builtin_assume(v >= 0);
    if (v < 0) __syncthreads();  // here
    y[t] = v;
}
"""


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (OVERWRITTEN.replace("BETWEEN", ""), {"// lost"}),
        (UNREAD.replace("BETWEEN", ""), {"// store", "// load"}),
        (IN_GLOBAL.replace("ELEMENT", "t / 2"), {"// first"}),
    ],
)
def test_a_race_of_what_the_compiler_has_removed_is_named_with_a_code_of_its_own(source: str, lines: set[str]) -> None:
    assert judged(source, beside=False).ok
    report = judged(source)
    assert not report.ok
    for finding in report.findings:
        assert (finding.kind, finding.code) == (FindingKind.RACE, "race_optimised_away")
        assert finding.severity is Severity.ERROR
        assert "this compiler has optimised it away" in finding.message
    named = {place.line for f in report.findings for place in (f.location, f.other) if place}
    assert {line_of(source, text) for text in lines} <= named


@pytest.mark.parametrize(
    "source",
    [
        OVERWRITTEN.replace("BETWEEN", "__syncthreads();").replace("widest = x[threadIdx.x] * 3", "widest = 4"),
        UNREAD.replace("BETWEEN", "__syncthreads();"),
        IN_GLOBAL.replace("ELEMENT", "t"),
    ],
)
def test_a_source_without_a_race_has_no_finding(source: str) -> None:
    report = judged(source)
    assert report.ok
    assert not report.notes


def test_a_barrier_in_a_branch_that_the_compiler_has_removed_for_a_broken_promise_is_named() -> None:
    source = PROMISED.replace("FIRST", "9")
    assert judged(source, beside=False).ok
    (finding,) = judged(source).failures
    assert finding.kind is FindingKind.DIVERGENT_COLLECTIVE
    assert finding.code == "barrier_optimised_away"
    assert finding.location.line == line_of(source, "// here")
    assert judged(PROMISED.replace("FIRST", "0")).ok


def test_a_race_that_the_device_executes_is_reported_once_and_as_it_is() -> None:
    source = """
    extern "C" __global__ void k(const int* x, int* y) {
        __shared__ int row[96];
        row[threadIdx.x] = x[threadIdx.x];  // store
        int unused = row[0];  // lost
        y[threadIdx.x] = row[95 - threadIdx.x];  // load
    }
    """
    report = judged(source)
    assert [f.code for f in report.findings] == ["race", "race_optimised_away"]
    pairs = [{f.location.line, f.other.line} for f in report.findings if f.location and f.other]
    store = line_of(source, "// store")
    assert pairs == [{store, line_of(source, "// load")}, {store, line_of(source, "// lost")}]


@pytest.mark.parametrize(
    "body",
    [
        "int old = *y, seen; do { seen = old; old = atomicCAS(y, seen, max(seen, x[t])); } while (old != seen);",
        "volatile int* v = y; v[t] = x[t]; v[t] = v[t] + 1;",
        "__shared__ int s[96]; s[t] = x[t]; int one = s[t], two = s[t]; y[t] = one + two;",
        "int mine[4] = {t, x[t]}; mine[t % 4] = 7; y[t] = mine[1];",
        "__shared__ int s; if (t == 0) s = 1; __syncthreads(); s = 1; __syncthreads(); y[t] = s;",
    ],
)
def test_correct_kernels_whose_accesses_change_without_optimisation_are_not_blamed(body: str) -> None:
    report = judged(f'extern "C" __global__ void k(const int* x, int* y) {{ int t = threadIdx.x; {body} }}')
    assert report.ok, str(report)
    assert not any("optimised" in finding.code for finding in report.findings)


def test_other_launches_and_variables_are_as_the_device_has_left_them() -> None:
    source = """
    __device__ int turns[4];
    __constant__ int limit;
    extern "C" __global__ void count(int* y) { turns[threadIdx.x] += 1; y[threadIdx.x] = 0; }
    extern "C" __global__ void k(int* y) {
        __shared__ int s;
        s = turns[0] == 2 && limit == 9 ? threadIdx.x : 3;  // lost
        s = 3;
        __syncthreads();
        y[threadIdx.x] = s + y[threadIdx.x];
    }
    """
    session, y = Session(load(source)), np.zeros(4, np.int32)
    session.set("limit", 9)
    for _ in range(2):
        assert session.launch("count", 1, 4, [Output(y)], unoptimised=True).ok
    report = session.launch("k", 1, 4, [Output(y)], unoptimised=True)
    assert [f.location.line for f in report.findings if f.location] == [line_of(source, "// lost")]
    assert report.findings[0].code == "race_optimised_away"
    assert y.tolist() == [3, 3, 3, 3]


def test_asynchronous_kernels_are_left_out_with_a_note() -> None:
    source = """
    extern "C" __global__ void k(const int* x, int* y) {
        __shared__ unsigned long long bar;
        __shared__ int a;
        unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");
        a = threadIdx.x;
        a = 7;
        __syncthreads();
        y[threadIdx.x] = a;
    }
    """
    report = judged(source)
    assert report.ok
    assert report.notes == ("the source without optimisation was not judged beside this: the kernel has mbarriers",)
    assert f"note: {report.notes[0]}" in str(report)


def test_a_source_that_needs_optimisation_to_compile_is_left_out_with_a_note() -> None:
    source = """
    #ifdef __CUDACC_DEBUG__
    #error "only with optimisation"
    #endif
    extern "C" __global__ void k(const int* x, int* y) { y[threadIdx.x] = 4; }
    """
    report = judged(source)
    assert report.ok
    assert len(report.notes) == 1
    assert "not judged beside this" in report.notes[0]


def test_memory_that_is_too_large_to_be_copied_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unoptimised, "_MOST_BYTES", 100)
    report = judged(OVERWRITTEN.replace("BETWEEN", ""))
    assert report.ok
    assert report.notes[0].endswith("its arrays are too large to be copied")


def test_what_is_allowed_at_a_line_is_not_reported() -> None:
    source = OVERWRITTEN.replace("BETWEEN", "").replace("// lost", "// workbench: allow race")
    assert judged(source).ok
    assert judged(OVERWRITTEN.replace("BETWEEN", ""), suppress="race_optimised_away").ok


CONSTANT = """
__constant__ float table[8];
extern "C" __global__ void k(const float* x) {
    if (x[0] > 0)
        const_cast<float*>(table)[threadIdx.x] = x[threadIdx.x];  // store
}
"""


@pytest.mark.parametrize("condition", ["if (x[0] > 0)", ""])
def test_a_store_to_constant_memory_is_named_where_the_compiler_has_put_a_trap(condition: str) -> None:
    source = CONSTANT.replace("if (x[0] > 0)", condition)
    (finding,) = launch(source, "k", 1, 8, [np.ones(8, np.float32)]).findings
    assert finding.kind is FindingKind.READ_ONLY
    assert finding.location.line == line_of(source, "// store")
    assert "constant memory" in finding.message
    assert "a trap in its place" in finding.message


def test_a_trap_of_the_source_stays_one() -> None:
    source = 'extern "C" __global__ void k(const float* x) {\n    if (x[0] > 0) __trap();\n}'
    (finding,) = launch(source, "k", 1, 8, [np.ones(8, np.float32)]).findings
    assert finding.kind is FindingKind.TRAP
    assert str(finding.location) == "kernel.cu:2"


def test_the_remedy_for_a_tail_that_the_compiler_has_copied_is_that_of_the_source() -> None:
    source = """
    extern "C" __global__ void k(const int* x, int* y) {
        __shared__ int base, row[96];
        int t = threadIdx.x, v = x[t];
        if (t == 40) base = atomicAdd(y + 100, v);  // store
        int place = v - base;  // load
        row[t] = place;
        __syncthreads();
        y[t] = place + row[95 - t];
    }
    """
    finding = judged(source, beside=False).findings[0]
    lines = [line_of(source, text) for text in ("// store", "// load")]
    assert finding.advice == f"__syncthreads() is missing between kernel.cu:{lines[0]} and kernel.cu:{lines[1]}"


def test_the_command_judges_the_source_too_unless_it_is_told_not_to(tmp_path: Path) -> None:
    file = tmp_path / "hidden.cu"
    file.write_text(OVERWRITTEN.replace("BETWEEN", ""))
    words = ["emulate", str(file), "--grid", "1", "--block", "96", "--arg", "i32[96]=ones", "--arg", "i32[96]"]
    found = invoke(*words)
    assert found.exit_code == 1
    assert "hidden.cu:4: race:" in found.output
    assert "1 hazard" in found.output or "2 hazards" in found.output
    assert invoke(*words, "--as-compiled").exit_code == 0
