"""Nothing that a record says becomes markup, a link or a formula on a page."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from synthetic import MISMATCH, emulated_run, timed_run, verification

from workbench.model.results import Run, Verdict
from workbench.records.store import Folder
from workbench.report import pages
from workbench.report.markdown import code, escaped, text

EVIL = "<script>alert(1)</script> <!-- ![x](http://evil/) [y](javascript:1) &lt;b&gt; `c` $x^{2$"
EVIL += " a\nb\r# heading\x1b[31m\0"


def _page(run: Run, folder: Path) -> str:
    Folder(folder / "device").save(run)
    pages.write(folder)
    return (folder / "device" / "gemm.md").read_text() + (folder / "README.md").read_text()


def _timed() -> Run:
    """Two stages, which are charts enough."""
    run = timed_run()
    return dataclasses.replace(run, stages=run.stages[:2])


def _outside_of_code(page: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^(`{3,})text\n.*?^\1$", "", page, flags=re.DOTALL | re.MULTILINE))


def test_a_record_full_of_markup_gives_a_page_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "write_charts", lambda page, folder: [])  # with such labels they take seconds
    run = _timed()
    run.device = dataclasses.replace(run.device, name=EVIL, driver=EVIL, peak_formulas=dict.fromkeys(["fp32"], EVIL))
    run.environment = dataclasses.replace(run.environment, host=EVIL, python=EVIL, cuda=EVIL, packages={EVIL: EVIL})
    run.environment.commit = "`<b>`" + EVIL
    stage = run.stages[0]
    stage.idea, stage.source, stage.source_sha256 = EVIL, EVIL, "`<i>`" + EVIL
    stage.untimed = {EVIL: EVIL}
    stage.verification.covered, stage.verification.unsupported = {EVIL: {EVIL: 1}}, {EVIL: 1}
    for measurement in stage.measurements:
        measurement.roofline_by = EVIL
        for baseline in measurement.baselines:
            baseline.name = baseline.version = EVIL
    page = _outside_of_code(_page(run, tmp_path))
    assert "alert(1)" in page
    assert not re.search(r"<[A-Za-z/!?]", page)
    assert not re.search(r"(?<!\\)\]\((?:http|javascript)", page)
    assert not re.search(r"^# heading", page, re.MULTILINE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", page)


def test_a_failure_full_of_markup_stays_in_its_block(tmp_path: Path) -> None:
    run = emulated_run("gemm")
    failure = dataclasses.replace(MISMATCH, message=f"```\n{EVIL}", looks_like=EVIL, problem=EVIL, replay=EVIL)
    run.stages[0].verification = verification(Verdict.MISMATCH, failure)
    page = _outside_of_code(_page(run, tmp_path))
    assert "Looks like: &lt;script>" in page
    assert not re.search(r"<[A-Za-z/!?]", page) and not re.search(r"(?<!\\)\]\((?:http|javascript)", page)


def test_an_ordinary_record_is_left_alone() -> None:
    for run in (timed_run(), emulated_run()):
        assert escaped(run) == run


@pytest.mark.parametrize("ordinary", ["a < b and c > d", "m <= 8", "R&D", "A[i] + B[j](k", "x_y *z*", "2^10", "größer"])
def test_ordinary_text_stays_as_it_is(ordinary: str) -> None:
    assert text(ordinary).replace("\\]", "]") == ordinary
    assert code("Vector<float, 4>") == "Vector<float, 4>"


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    plots = pytest.importorskip("workbench.report.plots")
    run = _timed()
    for stage in run.stages:
        for measurement in stage.measurements:
            measurement.label = r"$\frac{1$ $"
    page = _page(run, tmp_path)
    assert r"$\frac{1$" in page and plots.STYLE["text.parse_math"] is False
    assert list((tmp_path / "device").glob("*.png"))
