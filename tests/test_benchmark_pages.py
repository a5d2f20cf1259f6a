"""The pages of `benchmarks/` say what their records have: which row is as declared, and which kernel is faster."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import gemm_limits
import matvec_limits
import numpy as np
import pytest
import recorded
import template

from workbench.catalogue import registry
from workbench.devices import BoundPlan, open_device
from workbench.harness import Case
from workbench.toolchain.compiler import Compiled


@pytest.mark.parametrize("script", [gemm_limits, matvec_limits, template], ids=lambda script: script.__name__)
def test_the_page_is_made_of_its_record(script: ModuleType) -> None:
    record = json.loads(script.RECORD.read_text())
    assert script.page(record) == script.RECORD.with_suffix(".md").read_text()


@pytest.mark.parametrize("text", matvec_limits.PROBLEMS)
def test_one_row_of_a_product_is_marked_as_declared_and_is_compiled_so(text: str) -> None:
    page = matvec_limits.RECORD.with_suffix(".md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(f"| {matvec_limits._short(text)} ")]
    (marked,) = (line for line in rows if "(as declared)" in line)
    once = matvec_limits.streamed().defines(matvec_limits.parsed(text))["READ_ONCE"]
    assert marked.split("|")[2].strip() == ("B leaves first", "B stays in the L2")[once == 0] + " (as declared)"


def test_every_variant_is_on_the_page_of_matvec() -> None:
    names = {
        matvec_limits.titled(name, of_b) for name, variant in matvec_limits.VARIANTS.items() for of_b in variant.of_b
    }
    assert {row["name"] for row in _record(matvec_limits)["times"]} == names | {"cuBLAS"}


CHANGED = {name: variant for name, variant in matvec_limits.VARIANTS.items() if variant.changes}


def _launched(code: Compiled, case: Case) -> BoundPlan:
    """A variant with the parameters that are declared, after it ran in the emulator."""
    plan = matvec_limits.streamed().plan(case.problem)
    bound = open_device("emulator").bind(code, plan, case.arrays, case.storage())
    bound.run()
    return bound


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_matvec_is_another_kernel_and_solves_a_problem(name: str) -> None:
    problem = matvec_limits.parsed("300x16384,dtype=bf16,out=bf16")
    code = matvec_limits.compiled(CHANGED[name], matvec_limits.LEAVES, problem)
    assert code.ptx != matvec_limits.compiled(matvec_limits.Variant(), matvec_limits.LEAVES, problem).ptx
    case = Case.of(problem)
    failure, _ = case.judge(_launched(code, case).read)
    assert failure is None, failure


def test_a_clocked_matvec_stores_when_each_row_was_done() -> None:
    problem = matvec_limits.parsed("40x4096,dtype=bf16,out=fp32")
    code = matvec_limits.compiled(matvec_limits.CLOCK, matvec_limits.STAYS, problem)
    clocks = _launched(code, Case.of(problem)).read("c")
    assert (clocks == clocks.astype(np.int64)).all()
    assert clocks.max() > clocks.min() >= 0
    assert sum(matvec_limits.done(clocks)) == 40


def test_rows_are_counted_by_microsecond_where_the_clock_begins_again() -> None:
    clocks = np.array([(1 << 24) - 500, (1 << 24) - 700, 300, 1400, 3350], np.float32)
    assert matvec_limits.done(clocks) == [2, 1, 1, 0, 1]


def test_rates_are_of_whole_stretches_and_of_the_median_launch() -> None:
    rows = [[1] * 25, [3] * 26, [2] * 21]
    assert matvec_limits.arriving({"rows_each_us": rows, "row_bytes": 500_000}) == [1000.0, 1000.0]


def test_what_a_record_says_is_declared_is_marked_whatever_is_declared_now() -> None:
    record = _record(matvec_limits)
    for row in record["times"]:
        row["declared"] = row["name"] == "256 threads, B stays in the L2"
    page = matvec_limits.page(record)
    assert page.count("(as declared)") == page.count("256 threads, B stays in the L2 (as declared)") == 4


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
