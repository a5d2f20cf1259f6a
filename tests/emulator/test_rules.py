"""Severities, suppressions, and what a report makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.emulator import LaunchError, Output, Report, Severity, launch
from workbench.emulator.explain import CAUSES, KINDS, SEVERITIES

RACE = """
extern "C" __global__ void race(float* y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;COMMENT
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def run(comment: str = "", **options: object) -> Report:
    return launch(RACE.replace("COMMENT", comment), "race", 1, 64, [np.zeros(64, np.float32)], **options)  # type: ignore[arg-type]


def test_every_cause_has_a_kind_and_a_severity() -> None:
    assert {KINDS[cause].value for cause in CAUSES[1:]}
    assert {SEVERITIES[cause] for cause in CAUSES[1:]} <= set(Severity)


def test_finding_says_its_code_and_severity() -> None:
    report = run()
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("race", Severity.ERROR)
    assert not report.ok
    assert report.as_dict()["findings"][0]["code"] == "race"


@pytest.mark.parametrize("suppress", ["race", "race@kernel.cu", "race@kernel.cu:5", "race@kernel.cu:4"])
def test_suppressed_race_is_counted_and_not_reported(suppress: str) -> None:
    report = run(suppress=suppress)
    assert report.ok
    assert not report.findings
    assert [finding.code for finding in report.statistics.suppressed] == ["race"]
    assert "1 suppressed" in str(report)
    (hidden,) = report.as_dict()["suppressed_findings"]
    assert "race" in hidden and f"suppressed: {hidden}\n" in f"{report}\n"


@pytest.mark.parametrize("suppress", ["race@kernel.cu:3", "race@other.cu", "out_of_bounds"])
def test_suppression_that_matches_nothing_is_said(suppress: str) -> None:
    report = run(suppress=suppress)
    assert not report.ok
    assert str(report).endswith(f"note: the suppression {suppress} matched nothing")


@pytest.mark.parametrize("comment", ["  // workbench: allow race", "\n// workbench: allow in_flight, race"])
def test_comment_on_the_line_or_alone_above_suppresses(comment: str) -> None:
    assert run(comment).ok


def test_comment_elsewhere_suppresses_nothing() -> None:
    assert not run("\n\n// workbench: allow race\n").ok


def test_unknown_kind_is_one_clear_error() -> None:
    with pytest.raises(LaunchError, match=r"'rase' names no kind of finding; .*race.*finer ones .*budget"):
        run(suppress="rase")
    with pytest.raises(LaunchError, match=r"kernel.cu:4: the comment `workbench: allow rase` names no kind"):
        run("  // workbench: allow rase")


def test_a_line_that_is_no_number_is_one_clear_error() -> None:
    with pytest.raises(LaunchError, match=r"the line in the suppression 'race@kernel\.cu:x' is no number"):
        run(suppress="race@kernel.cu:x")


SEVERAL = """
extern "C" __global__ void k(const int* x, int* y, const int* z, int n) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = t;
    int other = tile[63 - t];  // races with the line before
    int past = x[n + (t == 0)];  // reads out of bounds
    int empty = z[t];
    y[t] = other + past;
    y[64 + t] = empty;  // stores what was never written
    y[128 + t] = empty + 1;
    y[192 * (1 + t / 60) + t] = past;  // writes out of bounds
}
"""


def test_run_goes_on_behind_a_finding_and_names_each_once() -> None:
    x, y, z = np.arange(10, dtype=np.int32), np.zeros(256, np.int32), np.zeros(64, np.int32)
    args = {"x": x, "y": y, "z": Output(z), "n": 9}
    report = launch(SEVERAL, "k", 1, 64, args)
    found = {(f.code, min(at.line for at in (f.location, f.other) if at)) for f in report.failures}
    assert found == {("race", 5), ("out_of_bounds", 7), ("uninitialised", 8), ("out_of_bounds", 12)}, str(report)
    assert not report.statistics.stopped
    assert "4 hazards" in str(report)
    assert y[:32].tolist() == [63, *(72 - t for t in range(1, 32))]  # 0 is read out of bounds
    assert y[192:252].tolist() == [0] + [9] * 59  # what is written out of bounds is lost
    report = launch(SEVERAL, "k", 1, 64, args, max_findings=2)
    assert len(report.failures) == 2
    assert report.statistics.stopped


SAME = """
extern "C" __global__ void k(int* y) { y[threadIdx.x % 32] = VALUE; }
"""


def test_equal_values_stored_twice_are_strict_and_different_ones_a_race() -> None:
    report = launch(SAME.replace("VALUE", "threadIdx.x % 32"), "k", 1, 64, [np.full(32, -1, np.int32)])
    assert report.ok
    assert [(f.code, f.severity) for f in report.findings] == [("race_same_value", Severity.STRICT)]
    assert not launch(SAME.replace("VALUE", "threadIdx.x % 32"), "k", 1, 64, [np.zeros(32, np.int32)], strict=True).ok
    report = launch(SAME.replace("VALUE", "threadIdx.x"), "k", 1, 64, [np.zeros(32, np.int32)])
    assert [f.code for f in report.failures] == ["race"]


HANDED = """
extern "C" __global__ void k(volatile int* value, int* turn, int* y) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        WRITE;
        FENCE;
        atomicExch(turn, 1);
    } else if (atomicAdd(turn, 0)) {
        FENCE;
        y[0] = READ;
    } else {
        y[0] = 0;
    }
}
"""


STORED, UPDATED = "*value = 1", "atomicExch((int*)value, 1)"


@pytest.mark.parametrize(
    ("write", "then", "named"),
    [
        (STORED, "(*value = 2)", True),
        (STORED, "atomicAdd((int*)value, 0)", True),
        (UPDATED, "*value", True),
        (STORED, "*value", True),
        (STORED, "*value ? 1 : 2", True),
        (STORED, "1; while (*value != 1) {}", False),  # how a flag is polled
        (STORED, "1; if (*value == 1) y[1] = 1", False),
        ("while (*value) {} *value = 1", "1; while (*value != 1) {} *value = 2", False),
        ("*value += 1", "1; *value += 1", True),
        (UPDATED, "atomicAdd((int*)value, 0)", False),
    ],
)
def test_volatile_in_no_order_is_strict_but_where_a_flag_is_polled(write: str, then: str, named: bool) -> None:
    seen = set()
    for fence in ("", "__threadfence()"):
        text = HANDED.replace("WRITE", write).replace("READ", then).replace("FENCE", fence)
        for seed in range(12):
            value, turn, y = (np.zeros(2, np.int32) for _ in range(3))
            report = launch(text, "k", 2, 32, [value, turn, y], seed=seed)
            assert report.ok
            if y[0]:
                seen.add(fence)
                wanted = ["race_volatile"] if named and not fence else []
                assert [f.code for f in report.findings] == wanted, str(report)
    assert seen == {"", "__threadfence()"}


TILES = """
extern "C" __global__ void k(int* y) {
    __shared__ __align__(16) int tile[32];
    int t = threadIdx.x, v = VALUE;
    unsigned at = (unsigned)__cvta_generic_to_shared(tile) + t % 8 * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(at), "r"(v) : "memory");
    __syncthreads();
    y[t] = tile[t % 32];
}
"""


def test_so_are_tiles_that_two_warps_store_at_once() -> None:
    for value, severity, code in ("t % 32", Severity.STRICT, "race_same_value"), ("t", Severity.ERROR, "race"):
        report = launch(TILES.replace("VALUE", value), "k", 1, 64, [np.zeros(64, np.int32)])
        assert [(f.code, f.severity) for f in report.findings] == [(code, severity)]


LEFT = """
extern "C" __global__ void k(int* x, unsigned mask) {
    if (threadIdx.x < 4) return;
    x[threadIdx.x] = __shfl_xor_sync(mask, threadIdx.x, 1);
}
"""


def test_mask_with_exited_lanes_is_strict_and_one_without_the_own_lane_an_error() -> None:
    x = np.zeros(32, np.int32)
    report = launch(LEFT, "k", 1, 32, [x, 0xFFFFFFFF])
    assert report.ok
    assert [(f.code, f.severity) for f in report.findings] == [("exited_member", Severity.STRICT)]
    assert "kernel.cu:4: strict: divergent collective: " in str(report)
    assert "names the lanes 0-3, which have exited" in str(report)
    assert x[4:].tolist() == [t ^ 1 for t in range(4, 32)]
    report = launch(LEFT, "k", 1, 32, [x, 0x0000FFF0])
    assert [f.code for f in report.failures] == ["not_member"] and "not in its own mask 0x0000fff0" in str(report)


def test_what_ends_a_launch_is_reported_behind_a_race_of_lanes_that_may_be_suppressed() -> None:
    source = """extern "C" __global__ void k(int* y) {
        y[threadIdx.x] = threadIdx.x;
        y[threadIdx.x / 2] = -1;
        if (threadIdx.x == 0) __trap();
    }"""
    for suppress, kinds in ((), ["race", "trap"]), (("race",), ["trap"]):
        report = launch(source, "k", 1, 32, [np.zeros(32, np.int32)], suppress=suppress)
        assert [finding.kind.value for finding in report.findings] == kinds, str(report)
        assert report.statistics.stopped
