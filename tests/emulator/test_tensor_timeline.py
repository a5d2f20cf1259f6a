"""Tensor memory on a timeline and in counters: operations until their commit ends, loads and stores, the waits."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_tensor_hazards import KERNEL

from workbench.emulator import Report, Traced, chrome_trace, launch, load


def run(**options: Any) -> Report:
    arrays = [np.ones((128, 16), np.float16), np.ones((64, 16), np.float16), np.zeros((128, 64), np.float32)]
    result = launch(load(KERNEL, arch="sm_100a"), "k", 1, 128, arrays, **options)
    assert result.ok
    return result


def test_operations_last_until_their_commit_and_end_the_waits_for_it() -> None:
    timeline = run(trace=Traced()).statistics.timeline
    assert timeline
    trace = chrome_trace([timeline])
    events = trace["traceEvents"]
    slices = {kind: [e for e in events if e["ph"] == "X" and e["cat"] == kind] for kind in ("tensor", "moves", "wait")}
    assert [e["name"] for e in slices["tensor"]] == ["group of 1"] * 2  # two products, a commit each
    assert {e["args"]["commit to"] for e in slices["tensor"]} == {"bar"}
    product = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "setp.ne.b32 p, %4, 0" in text)
    assert {e["args"]["line"].rpartition(":")[2] for e in slices["tensor"]} == {str(product)}
    moves = [e["name"] for e in slices["moves"]]
    # each of four warps: 16 loads before each wait, 64 stores before one wait, 16 loads again
    assert moves.count("group of 1") == 2 * 4 * 16 and moves.count("group of 64") == 4
    tracks = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"warp 0: tensor memory", "warp 3: tcgen05.ld and st"} <= tracks
    starts = [e for e in events if e["ph"] == "s"]
    ends = {(e["pid"], e["tid"], e["ts"]) for e in starts}
    assert ends == {(e["pid"], e["tid"], e["ts"] + e["dur"] - 0.5) for e in slices["tensor"]}
    waiting = {(e["pid"], e["tid"]) for e in slices["wait"] if e["name"] == "wait: bar"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "f"} == waiting and waiting


def test_tensor_memory_is_counted() -> None:
    statistics = run(counters=True).statistics
    assert statistics.counters
    counts = statistics.counters.totals()
    assert counts["tensor_operations"] == 2 * 2 * 128 * 64 * 16  # two products
    assert statistics.counters.tensor_operations() == {"tcgen05.kind::f16": 2 * 2 * 128 * 64 * 16}
    assert counts["tensor_memory_load_requests"] == 2 * 4 * 16
    assert counts["tensor_memory_load_bytes"] == 2 * 128 * 64 * 4
    assert counts["tensor_memory_store_requests"] == 4 * 64
    assert counts["tensor_memory_store_bytes"] == 128 * 64 * 4
