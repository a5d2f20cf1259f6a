"""The pages of `benchmarks/` say what their records have: which row is as declared, and which kernel is faster."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import gemm_limits
import pytest
import recorded
import template

from workbench.catalogue import registry


def test_the_page_on_the_template_says_beside_which_kernel_it_is_slower() -> None:
    record = _record(template)
    assert "**faster than** `plain`" in template.reading(record)
    assert "**slower than** `vectorized`" in template.reading(record)
    for row in record["rows"]:
        row["cold_us"] = [{"plain": 20.0, "vectorized": 10.0}.get(row["name"], 11.0)]
    assert "- cold, 1.10 on 4096x4096; 1.10 on 16384x8192; 1.10 on 20000x13704" in template.reading(record)
    first = next(row for row in record["rows"] if row["name"].startswith("template"))
    first["cold_us"] = [1.0]
    assert "**not always slower than** `vectorized`" in template.reading(record)


def _record(script: ModuleType) -> dict[str, Any]:
    return recorded.read(script.RECORD)


@pytest.mark.parametrize("operation", registry.operations())
def test_the_stages_of_the_bench_are_in_ladder_order(operation: str) -> None:
    ladder = [stage.name for stage in registry.operations()[operation].stages]
    found = [result.stage for result, _ in recorded.bench(operation)]
    assert found == [name for name in ladder if name in found]


def test_a_product_whose_clock_is_the_same_on_zeros_is_not_said_to_be_held_back_by_power() -> None:
    record = recorded.read(gemm_limits.RECORD)
    clock = gemm_limits.METRICS["SM clock, GHz"]
    last = record["times"][-1]["problem"]

    def not_held_back() -> list[str]:
        return re.findall(r"Power does not hold back (.*?): the clock", gemm_limits.page(record))

    assert last.split(",")[0] not in " ".join(not_held_back())
    for (problem, data), row in zip(gemm_limits.launches(record), gemm_limits.counted_launches(record), strict=True):
        if problem == last and data == "random":
            row["metrics"][clock] = 1.8e9
    (found,) = not_held_back()
    assert last.split(",")[0] in found.split(", ")
