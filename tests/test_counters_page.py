"""tools/counters.py: what it reads from ncu, and the page that it writes."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "tools/counters.py"

RAW = """==PROF== Connected to process 7
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Grid Size","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","smsp__inst_executed.sum"
"","","","","","inst"
"0","7","gemm_naive","(16, 16, 1)","1,048,576","n/a"
"1","7","shared_load_4","(1, 1, 1)","1","20"
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("counters_page", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


def test_the_raw_page_of_ncu_is_read(script: ModuleType) -> None:
    assert script.ncu.parse(RAW) == [
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
    assert script.ncu.parse("==ERROR== something else") == []


def test_the_page_shows_both_counts_and_their_difference(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    naive, pattern = (
        script.Launched("gemm:naive", "8x8x8", "gemm_naive"),
        script.Launched("pattern", "p", "shared_load_4"),
    )
    monkeypatch.setattr(
        script,
        "emulated",
        lambda: iter(
            [
                (pattern, Counter({"shared_load_wavefronts": 2, "global_load_requests": 1})),
                (naive, Counter({"global_load_requests": 990, "global_store_requests": 5})),
            ]
        ),
    )
    load, store = (f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}" for op in ("ld", "st"))
    measured = {
        "ncu": "Version 1",
        "environment": {"commit": "0123456789abcdef", "date": "2026-01-02T03:04:05Z"},
        "launches": [vars(pattern), vars(naive)],
        "groups": {
            "memory": [{"kernel": "gemm_naive", "metrics": {load: 1000, store: 5}}],
            "patterns": [
                {
                    "kernel": "shared_load_4",
                    "metrics": {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld": 3, load: 1},
                }
            ],
        },
    }
    page = script.page(measured)
    assert "| gemm:naive `gemm_naive` 8x8x8 | global load requests | 990 | 1,000 | -1.0 % |" in page
    assert "| global store requests | 5 | 5 | = |" in page
    assert "| `shared_load_4` p | shared load wavefronts | 2 | 3 |" in page
    assert "1 quantities of patterns are the same" in page
    measured["groups"]["memory"][0]["kernel"] = "gemm_other"  # type: ignore[index]
    with pytest.raises(ValueError, match="memory"):
        script.page(measured)


def test_every_pattern_lies_in_memory_and_has_a_kernel(script: ModuleType) -> None:
    source = script.PATTERNS.read_text()
    for kernel, _, places in script.pattern_places():
        stem, _, size = kernel.rpartition("_")
        assert f"PATTERN({kernel})" in source or f"({stem}, " in source
        width = 16 if stem.startswith("matrix") else int(size)
        assert len(places) == 32
        assert all(place < 0 or (place % width == 0 and place + width <= script.PATTERN_BYTES) for place in places)


def test_a_missing_permission_is_said(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.ncu, "run", lambda command, seconds: (1, "==ERROR== ERR_NVGPUCTRPERM - no permission"))
    kernels, trouble = script.collect("ncu", ["m.sum"], "^gemm", tmp_path / "memory.csv", tmp_path / "l.json", 1)
    assert kernels == []
    assert "ERR_NVGPUCTRPERM" in trouble[0]
