"""Launches that overlap: programmatic ones, streams, events, copies and the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.emulator import ArgumentError, LaunchError, Output, Program, Session, Traced, chrome_trace, load

SOURCE = """
extern "C" __global__ void producer(float* y, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i;
}
extern "C" __global__ void early(const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? y[n - 1 - i] : 0;
    cudaGridDependencySynchronize();
    if (i < n) z[i] = v;
}
extern "C" __global__ void waiting(const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cudaGridDependencySynchronize();
    if (i < n) z[i] = y[n - 1 - i];
}
extern "C" __global__ void add(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1;
}
"""
N = 1000


@pytest.fixture(scope="module")
def program() -> Program:
    return load(SOURCE)


def run(program: Program, second: str, seed: int = 0, **options: Any) -> tuple[list[str], np.ndarray[Any, Any]]:
    """The findings of a consumer behind `producer`, and what the consumer stored."""
    y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    session = Session(program)
    first = session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1, seed=seed)
    then = session.launch(second, 8, 128, {"y": y, "z": Output(z), "n": N}, seed=seed, **options)
    session.synchronize()
    assert first.ok
    return [str(finding) for finding in then.findings], z


@pytest.mark.parametrize("seed", range(4))
def test_read_before_the_wait_races_and_sees_old_values_in_every_order(program: Program, seed: int) -> None:
    (finding,), z = run(program, "early", seed, stream=1, programmatic=True)
    assert finding.startswith("kernel.cu:9: race: early reads y[")
    assert "which producer writes at kernel.cu:5" in finding
    assert "move cudaGridDependencySynchronize() from kernel.cu:10 to a place before kernel.cu:9" in finding
    assert (z != np.arange(N)[::-1]).any()


@pytest.mark.parametrize(
    ("second", "options"),
    [
        ("waiting", {"stream": 1, "programmatic": True}),  # though the trigger comes before the stores
        ("early", {"stream": 1}),
        ("early", {"stream": 0}),  # which waits for all streams
    ],
)
def test_a_launch_behind_the_end_of_the_one_before_is_right(program: Program, second: str, options: Any) -> None:
    for seed in range(4):
        findings, z = run(program, second, seed, **options)
        assert not findings and np.array_equal(z, np.arange(N)[::-1])


def test_a_copy_triggers_nothing_so_that_a_programmatic_launch_behind_it_waits_for_it(program: Program) -> None:
    y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    session = Session(program)
    session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1)
    session.copy(y, 0, stream=1)
    then = session.launch("early", 8, 128, {"y": y, "z": Output(z), "n": N}, stream=1, programmatic=True)
    session.synchronize()
    assert then.ok and not session.findings and not z.any()


def test_the_host_that_waits_for_a_programmatic_event_does_not_wait_for_the_end(program: Program) -> None:
    y = np.zeros(N, np.float32)
    for programmatic in (True, False):
        session = Session(program)
        session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1)
        session.synchronize(session.event(1, programmatic=programmatic))
        session.access(y)
        session.synchronize()
        assert bool(session.findings) == programmatic


def test_launches_of_two_streams_race_unless_an_event_orders_them(program: Program) -> None:
    (finding,), _ = run(program, "early", stream=2)
    assert "they are in streams 1 and 2; record an event behind producer and let early wait for it" in finding
    y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    session = Session(program)
    session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1)
    event = session.event(1)
    then = session.launch("early", 8, 128, {"y": y, "z": Output(z), "n": N}, stream=2, after=[event])
    assert then.ok and np.array_equal(z, np.arange(N)[::-1])  # a report that is looked at has been executed


def test_default_stream_waits_for_all_streams_and_they_wait_for_it(program: Program) -> None:
    y = np.zeros(N, np.float32)
    session = Session(program)
    reports = [session.launch("add", 8, 128, {"y": y, "n": N}, stream=stream) for stream in (0, 3, 0)]
    session.synchronize()
    assert all(report.ok for report in reports) and (y == 3).all()


def test_programmatic_launch_without_a_stream_is_behind_the_one_before(program: Program) -> None:
    y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    session = Session(program)
    assert session.launch("producer", 8, 128, {"y": Output(y), "n": N}).ok
    then = session.launch("early", 8, 128, {"y": y, "z": Output(z), "n": N}, programmatic=True)
    assert [finding.code for finding in then.findings] == ["race"]
    assert session.launch("early", 8, 128, {"y": y, "z": z, "n": N}).ok  # what has ended is forgotten


def test_copy_in_another_stream_races_with_the_kernel_that_writes_its_source(program: Program) -> None:
    for stream, raced in ((2, True), (1, False)):
        y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
        session = Session(program)
        session.copy(y, 0, stream=1)
        session.launch("add", 8, 128, {"y": y, "n": N}, stream=1)
        session.copy(z, y, stream=stream)
        report = session.launch("add", 8, 128, {"y": z, "n": N}, stream=stream)
        session.synchronize()
        found = [str(finding) for finding in session.findings]
        assert report.ok and (y == 1).all()
        assert bool(found) == raced and (raced or (z == 2).all())
        start = "race: the copy from array 1 to array 2 reads array 1["
        assert not raced or any(
            f.startswith(start) and "which launch 2 of add writes at kernel.cu:20" in f for f in found
        )


def test_host_that_reads_pinned_memory_has_to_wait_first(program: Program) -> None:
    for waits in (False, True):
        y = np.zeros(N, np.float32)
        session = Session(program)
        session.launch("add", 8, 128, {"y": y, "n": N}, stream=1)
        if waits:
            session.synchronize(session.event(1))
        session.access(y)
        session.synchronize()
        assert [f.code for f in session.findings] == ([] if waits else ["race"])


def test_event_that_is_recorded_before_the_launch_orders_nothing_and_a_report_does(program: Program) -> None:
    for after, codes in (("event", ["race"]), ("report", [])):
        y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
        session = Session(program)
        event = session.event(1)
        first = session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1)
        behind = [event if after == "event" else first]
        then = session.launch("early", 8, 128, {"y": y, "z": Output(z), "n": N}, stream=2, after=behind)
        assert [finding.code for finding in then.findings] == codes


def test_copy_without_a_stream_has_ended_when_the_call_returns(program: Program) -> None:
    y, z = np.ones(N, np.float32), np.zeros(N, np.float32)
    session = Session(program)
    session.launch("add", 8, 128, {"y": y, "n": N}, stream=1)
    session.copy(z, y)
    assert (z == 2).all() and not session.findings
    with pytest.raises(ArgumentError, match="has 4000 bytes, and array 3 40: copy as many"):
        session.copy(np.zeros(10, np.float32), y)
    with pytest.raises(LaunchError, match="the stream"):
        session.launch("add", 8, 128, {"y": y, "n": N}, stream=-1)


def test_trace_shows_a_dependent_launch_beside_the_one_before_and_its_wait_for_the_end(program: Program) -> None:
    y, z = np.zeros(N, np.float32), np.zeros(N, np.float32)
    session, traced = Session(program), Traced(blocks=tuple(range(8)))
    first = session.launch("producer", 8, 128, {"y": Output(y), "n": N}, stream=1, trace=traced)
    then = session.launch(
        "waiting", 8, 128, {"y": y, "z": Output(z), "n": N}, stream=1, programmatic=True, trace=traced
    )
    timelines = [report.statistics.timeline for report in (first, then)]
    shown = [e for e in chrome_trace([t for t in timelines if t is not None])["traceEvents"] if e["ph"] == "X"]
    before, after = ([e for e in shown if (e["pid"] >= 1 << 32) == later] for later in (False, True))
    triggered, ended = min(e["ts"] for e in before), max(e["ts"] + e["dur"] for e in before)
    assert triggered < min(e["ts"] for e in after) < ended
    waits = [e for e in after if e["name"] == "wait: the launches before"]
    assert waits and all(e["ts"] + e["dur"] == ended for e in waits)
    assert min(e["ts"] for e in after if e["name"].startswith("16: ")) >= ended


@pytest.mark.long
def test_cooperative_and_cluster_launches_wait_as_others_do() -> None:
    source = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) first(float* y) {
    cudaTriggerProgrammaticLaunchCompletion();
    cg::this_cluster().sync();
    y[blockIdx.x * 32 + threadIdx.x] = 1;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) by_cluster(const float* y, float* z) {
    if (cg::this_cluster().block_rank() == 0 && threadIdx.x == 0) cudaGridDependencySynchronize();
    BARRIER
    z[blockIdx.x * 32 + threadIdx.x] = y[127 - blockIdx.x * 32 - threadIdx.x];
}
extern "C" __global__ void by_grid(const float* y, float* z) {
    if (blockIdx.x == 0 && threadIdx.x == 0) cudaGridDependencySynchronize();
    GRID_BARRIER
    z[blockIdx.x * 32 + threadIdx.x] = y[127 - blockIdx.x * 32 - threadIdx.x];
}
"""
    right = load(source, defines={"BARRIER": "cg::this_cluster().sync();", "GRID_BARRIER": "cg::this_grid().sync();"})
    wrong = load(source, defines={"BARRIER": "__syncthreads();", "GRID_BARRIER": "__syncthreads();"})
    for kernel in ("by_cluster", "by_grid"):
        for given, codes in ((right, []), (wrong, [("race", True)])):
            for seed in range(3):
                y, z = np.zeros(128, np.float32), np.zeros(128, np.float32)
                session = Session(given)
                session.launch("first", 4, 32, [Output(y)], stream=1, seed=seed)
                report = session.launch(kernel, 4, 32, [y, Output(z)], stream=1, programmatic=True, seed=seed)
                assert [(f.code, "of the cluster or grid" in f.advice) for f in report.findings] == codes
                assert codes or (z == 1).all()


def test_kernels_that_add_to_one_counter_or_hand_a_flag_over_do_not_race() -> None:
    source = """
extern "C" __global__ void first(unsigned* c, unsigned* flag, float* y) {
    cudaTriggerProgrammaticLaunchCompletion();
    atomicAdd(c, 1);
    y[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) { __threadfence(); atomicExch(flag, 1); }
}
extern "C" __global__ void second(unsigned* c, volatile unsigned* flag, float* y) {
    atomicAdd(c, 1);
    if (threadIdx.x == 0) { while (*flag == 0); __threadfence(); atomicExch((unsigned*)flag, 0); }
    __syncthreads();
    y[threadIdx.x] += 1;
}
"""
    for seed in range(3):
        y, c, flag = np.zeros(32, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        session = Session(load(source))
        session.launch("first", 1, 32, [c, flag, y], stream=1, seed=seed)
        report = session.launch("second", 1, 32, [c, flag, y], stream=1, programmatic=True, seed=seed)
        assert report.ok and c[0] == 64 and flag[0] == 0 and (y == 2).all(), str(report)
