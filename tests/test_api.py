"""The public interface: all of it is on its page, its examples run, and outcomes show themselves."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import NumpyDevice
from synthetic import timed_run

import workbench
from workbench import emulator, ops
from workbench.kernels.vector_add import VECTOR_ADD, VectorAddProblem
from workbench.measure import timing
from workbench.run import api

DOCS = Path(__file__).parent.parent / "docs"

NEGATION = """
extern "C" __global__ void vector_add_naive(const IN* a, const IN* b, IN* c, long long n) {
  long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < n) c[i] = a[i] SIGN b[i];
}
"""


@pytest.mark.parametrize("function", [api.verify, api.bench])
def test_not_one_example_is_refused(function):
    with pytest.raises(ValueError, match="examples is 0; it has to be at least 1"):
        function("vector_add:naive", device="emulator", examples=0)


@pytest.mark.parametrize("package", [workbench, ops, emulator])
def test_everything_public_is_on_the_page_and_explained(package):
    page = (DOCS / f"api{package.__name__.removeprefix('workbench').replace('.', '-')}.md").read_text()
    shown = re.findall(rf"^## `{re.escape(package.__name__)}\.(\w+)`$", page, re.MULTILINE)
    assert sorted(shown) == sorted(package.__all__)
    for name in package.__all__:
        value = getattr(package, name)
        assert not callable(value) or inspect.getdoc(value), name
        functions = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
        for member, function in functions:
            own = function.__module__.startswith("workbench.") and member in vars(value)
            field = member in getattr(value, "__dataclass_fields__", ())
            assert not own or field or member.startswith("_") or function.__doc__, f"{name}.{member}"


@pytest.mark.parametrize("name", workbench.__all__)
def test_its_examples_do_what_they_say(name):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=options)
    for example in doctest.DocTestFinder().find(getattr(workbench, name), name, module=workbench, globs={}):
        runner.run(example)
    assert runner.failures == 0


def test_importing_it_imports_nothing_else():
    code = "import sys, workbench; print([m for m in sys.modules if m.startswith('workbench.') or m == 'numpy'])"
    root = DOCS.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
    assert set(workbench.__all__) <= set(dir(workbench))
    with pytest.raises(AttributeError, match="Operaton"):
        workbench.Operaton  # noqa: B018


def test_a_kernel_given_as_a_string_is_verified_in_the_place_of_a_source():
    right = workbench.verify(
        "vector_add:naive", code=NEGATION.replace("SIGN", "+"), device="emulator", problem="n=9,dtype=fp32"
    )
    assert right.ok
    wrong = workbench.verify(
        VECTOR_ADD.stages[0], code=NEGATION.replace("SIGN", "-"), device="emulator", problem=VectorAddProblem(n=9)
    )
    assert not wrong.ok
    assert wrong.plot().axes
    with pytest.raises(ValueError, match="3 stages"):
        workbench.verify(VECTOR_ADD, code=NEGATION, device="emulator")
    broken = workbench.verify("vector_add:naive", code=NEGATION, device="emulator", problem="n=1")
    assert "vector_add/1_naive.cu(4)" in str(broken).replace("\\", "/")


def test_an_operation_of_a_notebook_needs_neither_a_file_nor_the_registry():
    mine = dataclasses.replace(VECTOR_ADD, name="mine", stages=[], fastest=())

    @mine.stage("naive", code=NEGATION.replace("SIGN", "+"), idea="a thread an element", parameters={"THREADS": 64})
    def naive(problem, size):
        return VECTOR_ADD.stages[0].plan_for(problem, size)

    problem = "n=70,dtype=fp32"
    outcome = workbench.verify(mine, device="emulator", problem=problem)
    assert outcome.ok, outcome
    for wrong in ({}, {"source": "x.cu", "code": "y"}):
        with pytest.raises(ValueError, match=r"mine:second has to have either a source.* or code"):
            mine.stage("second", idea="", **wrong)


def test_an_outcome_is_a_table_as_text_in_markdown_and_in_html():
    run = timed_run()
    outcome = workbench.Outcome(run, {"gemm:naive": "too <slow>"}, {"gemm": "TFLOP/s"})
    assert not outcome.ok
    text, markdown, page = str(outcome), outcome._repr_markdown_(), outcome._repr_html_()
    for stage in run.stages:
        for shown in (text, markdown, page):
            assert f"{stage.operation}:{stage.stage}" in shown
    assert "| stage" in markdown
    assert "<table>" in page
    assert "too &lt;slow&gt;" in page
    assert "of vendor" in text
    assert outcome.plot().axes


@pytest.mark.long
def test_bench_times_what_has_passed(monkeypatch):
    timed = {s.stage: s.measurements[0] for s in timed_run("vector_add").stages}
    monkeypatch.setattr(api, "open_device", lambda name: NumpyDevice("cuda"))
    monkeypatch.setattr(timing, "bench", lambda stage, device, problem: timed[stage.name])
    outcome = workbench.bench(VECTOR_ADD, examples=3, problem="n=64,dtype=fp32")
    assert outcome.ok
    assert [len(s.measurements) for s in outcome.run.stages] == [1, 1, 1]
    assert "GB/s" in str(outcome)
    monkeypatch.setattr(timing, "bench", lambda stage, device, problem: "the clock was unsteady")
    refused = workbench.bench("vector_add:naive", examples=3, problem="n=64")
    assert not refused.ok
    assert "the clock was unsteady" in str(refused)


def test_nothing_to_plot_is_said():
    outcome = workbench.verify("vector_add:naive", device="emulator", problem="n=1")
    with pytest.raises(ValueError, match="nothing to plot"):
        outcome.plot()


def test_wrong_names_and_problems_are_refused():
    with pytest.raises(workbench.UnknownSpec, match="did you mean"):
        workbench.verify("vectoradd")
    with pytest.raises(workbench.ProblemError, match="fields are"):
        workbench.verify("vector_add", problem="q=1")
