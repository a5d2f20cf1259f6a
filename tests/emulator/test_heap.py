"""malloc, new and alloca in kernels: right programs get their memory, wrong ones are named at their lines."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import line_of

from workbench.emulator import FindingKind, Output, Report, Session, Severity, launch, load

N = 64


def run(body: str) -> tuple[np.ndarray, Report]:
    """64 threads that have ``t``, ``x`` and ``y``."""
    source = (
        "struct Pair { int a, b; __device__ Pair(int v) : a(v), b(v + 1) {} };\n"
        f'extern "C" __global__ void k(const int* x, int* y) {{\n    int t = threadIdx.x;\n    {body}\n}}\n'
    )
    y = np.zeros(N, np.int32)
    return y, launch(source, "k", 1, N, [np.arange(N, dtype=np.int32), Output(y)])


@pytest.mark.parametrize(
    "body",
    [
        "int* p = (int*)malloc(16 + 16 * t); "
        "for (int i = 0; i < 4 + 4 * t; ++i) p[i] = i; y[t] = p[3 + 4 * t]; free(p);",
        "int* p = new int[t + 9]; p[t + 8] = 4 * t + 3; y[t] = p[t + 8]; delete[] p;",
        "Pair* p = new Pair(4 * t + 2); y[t] = p->b; delete p;",
        "int* p = (int*)malloc(4); *p = 1; atomicAdd(p, 4 * t + 2); y[t] = *p; free(p); free(nullptr);",
        "__shared__ int* s; if (t == 0) s = new int[64]; __syncthreads(); s[t] = 4 * t + 3; __syncthreads(); "
        "y[63 - t] = s[63 - t]; __syncthreads(); if (t == 0) delete[] s;",
    ],
)
def test_a_kernel_that_takes_and_frees_memory_is_right_and_clean(body: str) -> None:
    y, report = run(body)
    assert not report.findings, str(report)
    assert (y == 4 * np.arange(N) + 3).all()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("int* p = new int[4]; p[4] = t; y[t] = 1; delete[] p;", FindingKind.OUT_OF_BOUNDS, "from byte 16 on of"),
        ("int* p = new int[4]; p[1] = t; delete[] p; y[t] = p[1];", FindingKind.OUT_OF_BOUNDS, "that was freed at"),
        ("int* p = new int[4]; delete[] p; y[t] = 1; if (t == 5) delete[] p;", FindingKind.HEAP_MISUSE, "was freed at"),
        ("int* p = new int[4]; y[t] = 1; free(p + 1);", FindingKind.HEAP_MISUSE, "inside a block"),
        ("y[t] = 1; if (t == 3) free(y);", FindingKind.HEAP_MISUSE, "which no malloc or new"),
        ("int* p = new int[4]; y[t] = p[2]; delete[] p;", FindingKind.UNINITIALISED, "nothing has been written"),
        ("int* p = (int*)malloc(1 << 27); p[0] = t; y[t] = p[0];", FindingKind.OUT_OF_BOUNDS, "0x0"),
    ],
)  # fmt: skip
def test_a_wrong_use_of_the_heap_is_named(body: str, kind: FindingKind, message: str) -> None:
    _, report = run(body)
    kinds = [finding.kind for finding in report.failures]
    assert kinds[:1] == [kind], str(report)
    assert message in report.failures[0].message, str(report)


def test_what_is_not_freed_is_noted_at_its_line_with_its_size_and_is_no_failure() -> None:
    _, report = run("int* p = new int[3]; p[0] = t; y[t] = p[0];")
    (finding,) = report.findings
    assert report.ok and finding.severity is Severity.NOTE and finding.code == "heap_leak"
    assert "64 blocks of 768 bytes" in finding.message
    assert str(finding.location) == "kernel.cu:4"


def test_memory_of_the_heap_outlives_a_launch() -> None:
    source = (
        'extern "C" __global__ void take(long long* p) { int* q = new int[2]; q[0] = 7; p[0] = (long long)q; }\n'
        'extern "C" __global__ void use(long long* p, int* y) { y[0] = *(int*)p[0]; delete[] (int*)p[0]; }\n'
        'extern "C" __global__ void late(long long* p, int* y) { y[0] = *(int*)p[0]; }\n'
    )
    p, y = np.zeros(1, np.int64), np.zeros(1, np.int32)
    session = Session(load(source))
    assert session.launch("take", 1, 1, [p]).ok
    report = session.launch("use", 1, 1, [p, y])
    assert not report.findings and y[0] == 7
    (finding,) = session.launch("late", 1, 1, [p, y]).failures
    assert "that was freed at" in finding.message or "an earlier launch has freed" in finding.message
    assert str(finding.location) == f"kernel.cu:{line_of(source, 'void late')}"


def test_alloca_gives_each_thread_memory_of_the_size_that_it_asks_for() -> None:
    body = (
        "int n = x[t] % 7 + 1; int* p = (int*)alloca(4 * n); for (int i = 0; i < n; i++) p[i] = i * t; "
        "int* q = (int*)alloca(8); q[x[0]] = 5; y[t] = p[n - 1] + q[x[0]];"
    )
    y, report = run(body)
    assert report.ok, str(report)
    t = np.arange(N)
    assert (y == t % 7 * t + 5).all()
