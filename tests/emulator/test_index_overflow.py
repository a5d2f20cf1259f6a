"""An index of 32 bits that overflows is named where it becomes an address; what is meant to wrap is not."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import line_of

from workbench.emulator import FindingKind, Report, launch

N = 4096


def found(statement: str, x: np.ndarray | None = None, a: int = 3, b: int = 5, **options: object) -> Report:
    """The report on one block of 64 threads that have ``t``, numbers ``a`` and ``b``, and arrays ``x`` and ``y``."""
    source = (
        'extern "C" __global__ void k(const int* x, int* y, int a, int b, unsigned c) {\n'
        f"    int t = threadIdx.x;\n    {statement}\n}}\n"
    )
    values = np.arange(N, dtype=np.int32) if x is None else x
    arguments = [values, np.zeros(N, np.int32), a, b, a % 2**32]
    return launch(source, "k", 1, 64, arguments, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statement", "a", "b"),
    [
        ("int i = a * b; y[t] = x[i + t];", 1 << 16, 1 << 16),  # 2^32 wraps to 0, which is valid
        ("int i = a * b + t; y[t] = x[i];", 1 << 16, 1 << 16),
        ("int i = a * 65536; if (t == 0) y[i] = t;", 1 << 16, 0),
        ("y[t] = x[(a << 8) + t];", 1 << 24, 0),
        ("unsigned i = c * 65536u; y[t] = x[i + t];", 1 << 16, 0),
        ("long long i = a * b; y[t] = x[i];", 1 << 16, 1 << 16),
        ("if (t < 9) atomicAdd(y + a * b + t, 1);", 1 << 16, 1 << 16),
    ],
)
def test_an_index_that_overflows_is_named_also_where_its_address_is_valid(statement: str, a: int, b: int) -> None:
    report = found(statement, a=a, b=b)
    assert [finding.kind for finding in report.findings] == [FindingKind.INDEX_OVERFLOW], str(report)
    (finding,) = report.findings
    assert str(finding.location) == "kernel.cu:3"
    assert str(finding.other) == "kernel.cu:3"
    assert "does not fit into 32 bits" in finding.message
    assert "64 bits" in finding.advice


@pytest.mark.parametrize(
    ("statement", "a", "b"),
    [
        ("int i = a * b + t; y[t] = x[i];", 50, 60),
        ("unsigned h = c * 2654435761u; y[t] = x[h % 4096];", 77777, 0),
        ("unsigned h = c * 2654435761u + t; y[t] = x[h & 1023];", 77777, 0),
        ("unsigned h = c; for (int i = 0; i < 9; ++i) h = h * 1664525u + 1013904223u; y[t] = x[h >> 20];", 99, 0),
        ("int i = a * b; if (i >= 0 && i < 9 && a < 9) y[t] = x[i]; else y[t] = a * b;", 1 << 16, 1 << 15),
        ("int i = a * b; y[t] = x[max(0, min(i, 7))];", 1 << 16, 1 << 15),
        ("unsigned i = t - 1u; y[t] = x[i + 1u];", 0, 0),
        ("unsigned i = c * -4u; y[t] = x[t + 40 + (int)i];", 3, 0),
        ("y[t] = x[(long long)a * b % 4096];", 1 << 16, 1 << 16),
        ("y[t] = a * b + (a << 16);", 1 << 16, 1 << 16),
        ("int i = (t - 1) * a; if (t) y[t] = x[i];", 9, 0),
    ],
)
def test_what_is_masked_guarded_or_meant_to_wrap_is_not_blamed(statement: str, a: int, b: int) -> None:
    report = found(statement, a=a, b=b)
    assert report.ok, str(report)
    assert not report.findings


def test_only_the_lanes_whose_index_overflows_are_blamed_and_the_rest_goes_on() -> None:
    y = np.zeros(N, np.int32)
    source = """
    extern "C" __global__ void k(int* y, int width) {
        int row = threadIdx.x;
        int place = row * width;  // product
        if (row % 32 == 16) y[place] = row;  // store
        if (row && row < 8) y[row] = row;
    }
    """
    (finding,) = launch(source, "k", 1, 32, [y, 1 << 28]).findings
    assert finding.kind is FindingKind.INDEX_OVERFLOW
    lines = [finding.location.line, finding.other.line]
    assert lines == [line_of(source, "// store"), line_of(source, "// product")]
    assert (finding.lane, y[:8].tolist()) == (16, [16, *range(1, 8)])


def test_a_value_that_overflowed_before_and_is_set_again_is_sound() -> None:
    statement = "int i = a * b; if (i == 0) i = 3; y[t] = x[i];"
    assert found(statement, a=1 << 16, b=1 << 16).ok


def test_it_can_be_allowed_at_its_line() -> None:
    statement = "int i = a * b; y[t] = x[i + t];  // workbench: allow index_overflow"
    assert found(statement, a=1 << 16, b=1 << 16).ok
