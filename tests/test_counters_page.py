"""tools/counters.py: what it reads from ncu, and the page that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from refresh import script

counters = script("tools/counters.py")

RAW = """==PROF== Connected to process 7
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Grid Size","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","smsp__inst_executed.sum"
"","","","","","inst"
"0","7","gemm_naive","(16, 16, 1)","1,048,576","n/a"
"1","7","shared_load_4","(1, 1, 1)","1","20"
"""


def test_the_raw_page_of_ncu_is_read() -> None:
    assert counters.ncu.parse(RAW) == [
        {
            "kernel": "gemm_naive",
            "grid": "(16, 16, 1)",
            "metrics": {"l1tex__t_requests_pipe_lsu_mem_global_op_ld": 1048576.0},
        },
        {
            "kernel": "shared_load_4",
            "grid": "(1, 1, 1)",
            "metrics": {"l1tex__t_requests_pipe_lsu_mem_global_op_ld": 1.0, "smsp__inst_executed": 20.0},
        },
    ]
    assert counters.ncu.parse("==ERROR== something else") == []


def test_every_pattern_lies_in_memory_and_has_a_kernel() -> None:
    source = counters.PATTERNS.read_text()
    for kernel, _, places in counters.pattern_places():
        stem, _, size = kernel.rpartition("_")
        assert f"PATTERN({kernel})" in source or f"({stem}, " in source
        width = 16 if stem.startswith("matrix") else int(size)
        assert len(places) == 32
        assert all(place < 0 or (place % width == 0 and place + width <= counters.PATTERN_BYTES) for place in places)


def test_a_missing_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.ncu, "run", lambda command, seconds: (1, "==ERROR== ERR_NVGPUCTRPERM - no permission"))
    kernels, trouble = counters.collect("ncu", ["m.sum"], "^gemm", tmp_path / "memory.csv", tmp_path / "l.json", 1)
    assert kernels == []
    assert "ERR_NVGPUCTRPERM" in trouble[0]
