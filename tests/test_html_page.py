"""`workbench report --html`: one file with everything in it, and nothing of a record becomes markup."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from synthetic import MISMATCH, emulated_run, timed_run, verification

from workbench.cli.main import main
from workbench.model.results import Run, Verdict, WrongCells
from workbench.records.store import Folder
from workbench.report import html_page

EVIL = "</svg></title></style><script>alert(1)</script><img src=http://evil/x onerror=alert(2)> \" ' & ]](http://evil/)"
EVIL += " ![x](http://evil/) [y](javascript:1) `c` | \x1b[31m \0 \u202e"
VOID = {"meta", "br", "hr"}


class Seen(HTMLParser):
    """What is in a page; raises AssertionError for tags that do not close in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(page: str) -> Seen:
    """The page, which loads, runs and links to nothing outside of itself."""
    seen = Seen(page)
    assert not seen.tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "foreignobject"}
    for name, value in seen.attributes:
        assert not name.startswith("on") and name not in {"src", "srcset", "action", "data"}
        if name in {"href", "xlink:href"}:
            assert value.startswith(("#", "data:image/png;base64,")), value
        assert not re.search(r"url\((?!#)", value)
    assert not re.search(r"url\(|@import", page.partition("</style>")[0])
    assert "default-src 'none'" in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    return seen


def small(operation: str = "vector_add", stages: int = 2) -> Run:
    """Few stages on one problem: a chart of that takes a moment."""
    run = timed_run(operation)
    run = dataclasses.replace(run, stages=run.stages[:stages])
    for stage in run.stages:
        del stage.measurements[1:]
    return run


def test_a_page_has_the_ladder_with_gains_its_charts_and_the_environment() -> None:
    run = small()
    page = html_page.page([run])
    seen = checked(page)
    found = re.findall(r'<figure[^>]* aria-label="([^"]+)"><svg', page)
    assert found == ["vector_add ladder", "vector_add heat map", "vector_add roofline", "vector_add spread"]
    naive, vectorized = (s.measurements[0].timing.cold_us for s in run.stages)
    gain = sorted(naive)[len(naive) // 2] / sorted(vectorized)[len(vectorized) // 2]
    assert f"{gain:.2f}x" in seen.text
    assert '<td class="pass">pass</td>' in page
    assert "AMD EPYC 9554, 16 cores" in seen.text and "0123456789ab" in seen.text
    assert re.search(r'class="card pass".*\d % of cuBLAS</p>', page)
    assert page == html_page.page([run])


def test_a_failure_is_open_with_its_map_of_wrong_elements() -> None:
    run = emulated_run("vector_add")
    cells = WrongCells("n=4", "C", [2, 2], [1, 1], 2, 0, [".9", "9."])
    run.stages[0].verification = verification(Verdict.MISMATCH, dataclasses.replace(MISMATCH, cells=cells))
    page = html_page.page([run])
    checked(page)
    assert re.search(r"<details open><summary><code>vector_add:naive</code> failed: mismatch</summary>", page)
    assert page.count('<figure class="paper" aria-label="vector_add naive wrong elements"><svg') == 1
    assert '<td class="fail">mismatch</td>' in page
    assert '<a class="card fail"' in page and "failed: naive" in page


def test_a_record_full_of_markup_gives_a_page_without_it(tmp_path: Path) -> None:
    run = small(stages=1)
    run.device = dataclasses.replace(run.device, name=EVIL, driver=EVIL, peak_formulas=dict.fromkeys(["fp32"], EVIL))
    run.environment = dataclasses.replace(run.environment, host=EVIL, python=EVIL, cuda=EVIL, packages={EVIL: EVIL})
    run.environment.commit = "`<b>`" + EVIL
    stage = run.stages[0]
    stage.operation = stage.stage = stage.idea = stage.source = stage.source_sha256 = EVIL
    stage.untimed = {EVIL: EVIL}
    failure = dataclasses.replace(MISMATCH, message=f"```\n{EVIL}", looks_like=EVIL, problem=EVIL, replay=EVIL)
    failure.cells = WrongCells(EVIL, EVIL, [2, 2], [1, 1], 2, 0, [".9", "9."])
    stage.verification = verification(Verdict.MISMATCH, failure)
    stage.verification.covered, stage.verification.unsupported = {EVIL: {EVIL: 1}}, {EVIL: 1}
    for measurement in stage.measurements:
        measurement.label = measurement.roofline_by = EVIL
        for baseline in measurement.baselines:
            baseline.name = baseline.version = EVIL
    trace = {"traceEvents": [slice_(EVIL)], "otherData": {"title": EVIL}}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    seen = checked(html_page.page([run], [tmp_path / "trace.json"]))
    assert seen.text.count("alert(1)") > 20


def slice_(name: str, **changes: object) -> dict[str, object]:
    """A slice of a timeline."""
    return {
        "ph": "X",
        "pid": 1,
        "tid": 0,
        "ts": 0,
        "dur": 5,
        "cat": name,
        "name": name,
        "args": {"line": name},
    } | changes


def test_a_timeline_has_a_row_for_each_warp_and_a_mark_for_each_slice(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = CliRunner().invoke(main, ["trace", "vector_add:naive", "-o", str(path)])
    assert result.exit_code == 0, result.output
    title, (block, *others) = html_page.load(path)
    assert title.startswith("vector_add:naive on ") and not others
    assert [name for name, _ in block.rows.values()] == [f"warp {n}" for n in range(len(block.rows))]
    picture = html_page.picture(block)
    assert checked(html_page.page([small(stages=1)], [path])).text.count("warp 0") == 1
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) >= picture.count("<title>") - 1 > 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"traceEvents": []}',
        '{"traceEvents": [1]}',
        json.dumps({"traceEvents": [slice_("run", ts="x")]}),
        json.dumps({"traceEvents": [slice_("run", dur=float("inf"))]}),
        json.dumps({"traceEvents": [slice_("run", args=3)]}),
    ],
)
def test_what_is_no_timeline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(
        html_page.NoTimeline, match=r"trace\.json has no timeline: it is not what `workbench trace` writes"
    ):
        html_page.load(tmp_path / "trace.json")


def test_without_matplotlib_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "_drawn", lambda page: {})
    page = html_page.page([small()])
    assert "There are no charts: matplotlib was not installed" in checked(page).text


def test_report_writes_a_page_for_each_device_or_the_one_that_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Folder(tmp_path / name).save(emulated_run("vector_add"))
    assert html_page.write(tmp_path) == [tmp_path / "a/report.html", tmp_path / "b/report.html"]

    def report(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["report", *arguments])
        return result.exit_code, result.output

    target = tmp_path / "page.html"
    assert report("--html", "--output", str(tmp_path / "b"), "-o", str(target)) == (0, f"{target}\n")
    assert target.read_text() == (tmp_path / "b/report.html").read_text()
    code, said = report("--html", "--output", str(tmp_path), "-o", str(target))
    assert code != 0 and "results of several devices" in said
    code, said = report("-o", str(target))
    assert code == 2 and "-o is for the page of --html; add it" in said
