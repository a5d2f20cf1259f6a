"""The pages of `benchmarks/` say what their records have: which row is as declared, and which kernel is faster."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import gemm_limits
import matvec_limits
import pytest
import recorded
import template

from workbench import registry


@pytest.mark.parametrize("script", [gemm_limits, matvec_limits, template], ids=lambda script: script.__name__)
def test_the_page_is_made_of_its_record(script: ModuleType) -> None:
    record = json.loads(script.RECORD.read_text())
    assert script.page(record) == script.RECORD.with_suffix(".md").read_text()


@pytest.mark.parametrize("text", matvec_limits.PROBLEMS)
def test_one_row_of_a_product_is_marked_as_declared_and_is_compiled_so(text: str) -> None:
    page = matvec_limits.RECORD.with_suffix(".md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(f"| {matvec_limits._short(text)} ")]
    (marked,) = (line for line in rows if "(as declared)" in line)
    problem = registry.operations()["matvec"].problem.parse(text)
    once = matvec_limits.streamed().defines(problem)["READ_ONCE"]
    assert marked.split("|")[2].strip() == ("B leaves first", "B stays in the L2")[once == 0] + " (as declared)"


def test_rows_of_old_and_new_records_have_the_same_names() -> None:
    old = {
        "as declared": "B stays in the L2",
        "as declared, B leaves first": "B leaves first",
        "256 threads": "256 threads, B stays in the L2",
        "2 loads in flight, twice as many threads": "2 loads in flight, twice as many threads, B stays in the L2",
        "cuBLAS": "cuBLAS",
    }
    assert [matvec_limits.renamed(name) for name in old] == list(old.values())
    new = {matvec_limits.titled(variant, of_b) for variant in matvec_limits.VARIANTS for of_b in matvec_limits.ONCE}
    assert {matvec_limits.renamed(name) for name in new} == new
    assert {matvec_limits.renamed(row["name"]) for row in _record(matvec_limits)["times"]} == new | {"cuBLAS"}


def test_what_a_record_says_is_declared_is_marked_whatever_is_declared_now() -> None:
    record = _record(matvec_limits)
    for row in record["times"]:
        row["declared"] = row["name"] == "256 threads"
    page = matvec_limits.page(record)
    assert page.count("(as declared)") == page.count("256 threads, B stays in the L2 (as declared)") == 4


def test_the_page_on_the_template_says_beside_which_kernel_it_is_slower() -> None:
    record = _record(template)
    assert "**faster than** `plain`" in template.reading(record)
    assert "**slower than** `vectorized`" in template.reading(record)
    assert "- cold, 1.06 to 1.07 on 4096x4096; 1.07 to 1.08 on 16384x8192; 1.49 to 1.51" in template.reading(record)
    first = next(row for row in record["rows"] if row["name"].startswith("template"))
    first["cold_us"] = [1.0]
    assert "**not always slower than** `vectorized`" in template.reading(record)


def _record(script: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(script.RECORD.read_text())
    return found


@pytest.mark.parametrize("operation", registry.operations())
def test_the_stages_of_the_bench_are_in_ladder_order(operation: str) -> None:
    ladder = [stage.name for stage in registry.operations()[operation].stages]
    found = [result.stage for result, _ in recorded.bench(operation)]
    assert found == [name for name in ladder if name in found]


def test_a_product_whose_clock_is_the_same_on_zeros_is_not_said_to_be_held_back_by_power() -> None:
    record = json.loads(gemm_limits.RECORD.read_text())
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
