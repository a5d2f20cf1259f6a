"""Reports say what the record says, the same every time, and nothing that was not measured."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line import git
from matplotlib.colors import to_hex
from pandas import DataFrame
from synthetic import MISMATCH, emulated_run, environment, stage, timed_run, verification

from workbench.catalogue import registry
from workbench.model.results import (
    Agreement,
    AgreementRun,
    HostTiming,
    Measurement,
    PeerResult,
    ResultsError,
    Run,
    Timing,
    Verdict,
    WrongCells,
)
from workbench.records import environment as environment_module
from workbench.records import store
from workbench.report import derived, frame, plots
from workbench.report import pages as report


@pytest.fixture(autouse=True)
def _empty_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is four fifths of the work on a page: only tests that look into pictures have them drawn."""
    if request.function not in (
        test_the_same_record_gives_the_same_bytes,
        test_charts_are_independent_of_the_users_matplotlib_settings,
        test_wrong_elements_are_shown_in_a_picture_while_there_are_some,
    ):
        monkeypatch.setattr(plots, "save", lambda figure, path: (path.touch(), path)[1])


def _write(tmp_path: Path, *runs: tuple[str, Run]) -> dict[str, str]:
    """The Markdown of every page by path, written from these runs by device folder."""
    for folder, run in runs:
        store.Folder(tmp_path / folder).save(run)
    return {str(p.relative_to(tmp_path)): p.read_text() for p in report.write(tmp_path) if p.suffix == ".md"}


def _times(run: Run, operation: str, runs: Sequence[Run] = ()) -> DataFrame:
    """What was timed of an operation in a run."""
    return frame.table([(s, run) for s in run.stages], registry.tree(operation), runs=runs)


def _row(page: str, heading: str, first: str) -> list[str]:
    """The cells of the row under `heading` whose first cell is `first`, without emphasis."""
    section = page.split(heading, 1)[1].split("\n#", 1)[0]
    rows = [[cell.strip().strip("*` ") for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return next(row for row in rows if row[0] == first)


@pytest.mark.long
def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        _write(tmp_path / folder, ("nvidia-h200", timed_run("vector_add")), ("emulator", emulated_run("matvec")))
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert {p.suffix for p in files} == {".json", ".md", ".png"}
    assert [p for p in files if (tmp_path / "a" / p).read_bytes() != (tmp_path / "b" / p).read_bytes()] == []


@pytest.mark.long
def test_charts_are_independent_of_the_users_matplotlib_settings(tmp_path: Path) -> None:
    import matplotlib

    _write(tmp_path / "a", ("nvidia-h200", timed_run("vector_add")))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.dpi": 10}):
        _write(tmp_path / "b", ("nvidia-h200", timed_run("vector_add")))
    for name in (f"vector_add-{chart}.png" for chart in ("ladder", "heat-map", "roofline", "spread")):
        first, second = (tmp_path / side / "nvidia-h200" / name for side in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert struct.unpack(">I", first.read_bytes()[16:20])[0] == 1600


def test_every_link_and_picture_exists(tmp_path: Path) -> None:
    pages = _write(tmp_path, ("nvidia-h200", timed_run("vector_add")), ("emulator", emulated_run("gemm")))
    assert "README.md" in pages
    for name, text in pages.items():
        links = re.findall(r"\]\(([^)]+)\)", text)
        assert links
        assert [link for link in links if not (tmp_path / name).parent.joinpath(link).is_file()] == []


def test_the_index_has_a_table_for_each_device_and_names_the_library_of_a_share(tmp_path: Path) -> None:
    alone = timed_run("vector_add")
    for measured in (m for s in alone.stages for m in s.measurements):
        measured.baselines.clear()
    index = _write(tmp_path, ("emulator", emulated_run("gemm")), ("nvidia-h200", timed_run("vector_add")))["README.md"]
    first, second = index.partition("## Emulated ")[::2]
    assert re.search(r"^\| \[vector_add\].*\(.+\) +\| \d+\.\d % of cuBLAS +\| +3 of 3 +\|", first, re.MULTILINE)
    assert "[gemm](emulator/gemm.md)" in second and "fastest stage" not in second
    index = _write(tmp_path, ("nvidia-h200", alone))["README.md"]
    assert re.search(r"^\| \[vector_add\]\(nvidia.*\) +\| - +\| +3 of 3 +\|", index, re.MULTILINE)


def test_the_index_links_pages_that_others_have_put_beside_it(tmp_path: Path) -> None:
    (tmp_path / "faults.md").write_text("# What was planted\n\ntext\n")
    index = _write(tmp_path, ("nvidia-h200", timed_run("vector_add")))["README.md"]
    assert index.endswith("## Reports of their own\n\n- [What was planted](faults.md)\n")
    assert _write(tmp_path, ("nvidia-h200", timed_run("vector_add")))["README.md"] == index


def _run_with(cold: dict[str, float], vendor_us: float, sustained: dict[str, float]) -> Run:
    """vector_add timed with constant samples on a problem of 12 MB and 1 MFLOP whose roofline bound is 2 µs."""
    run = timed_run("vector_add")
    for s in run.stages:
        if s.stage in cold:
            back_to_back = [sustained[s.stage]] * 5 if s.stage in sustained else []
            timing = Timing(s.stage, [cold[s.stage]] * 5, back_to_back)
            library = Timing("PyTorch", [vendor_us] * 5, [vendor_us] * 5)
            s.measurements = [
                Measurement("n=1000000,dtype=fp32", "1000000 fp32", 10**6, 12 * 10**6, 2.0, "memory", timing, [library])
            ]
        else:
            s.measurements = []
    return run


def test_every_figure_of_a_row_follows_from_the_samples(tmp_path: Path) -> None:
    run = _run_with(
        {"naive": 16.0, "vectorized": 8.0, "grid_stride": 4.0},
        3.0,
        {"naive": 15.0} | dict.fromkeys(("vectorized", "grid_stride"), 5.0),
    )
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    heading = "### vector_add 1000000 fp32"
    naive = ["naive", "16.0 µs", "16.0 µs to 16.0 µs", "15.0 µs", "750", "18.8 %", "12.5 %", "-", "5"]
    best = ["grid_stride", "4.00 µs", "4.00 µs to 4.00 µs", "5.00 µs", "3,000", "75.0 %", "50.0 %", "2.00x", "5"]
    library = ["PyTorch", "3.00 µs", "3.00 µs to 3.00 µs", "3.00 µs", "4,000", "-", "66.7 %", "-", "15"]
    assert _row(page, heading, "naive") == naive
    assert _row(page, heading, "grid_stride") == best
    assert _row(page, heading, "PyTorch") == library
    assert "**`grid_stride`**" in page
    assert "**`vectorized`**" not in page
    assert "roofline bound 2.00 µs (6,000 GB/s), set by memory" in page
    index = (tmp_path / "README.md").read_text()
    assert "3,000 GB/s (1000000 fp32)" in index


COMMITTED = Path(__file__).parents[1] / "reports"


def test_a_stage_has_what_it_gained_over_its_parent(tmp_path: Path) -> None:
    run = _run_with({"naive": 16.0, "vectorized": 8.0, "grid_stride": 2.0}, 3.0, {})
    again = _run_with({"naive": 16.0, "vectorized": 1.0, "grid_stride": 1.0}, 3.0, {})
    for s, other in zip(run.stages, again.stages, strict=True):
        s.measurements.append(dataclasses.replace(other.measurements[0], label="2000000 fp32"))
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    assert _row(page, "## Stages", "naive")[1:4:2] == ["-", "-"]
    assert _row(page, "## Stages", "vectorized")[1:4:2] == ["naive", "5.66x (2.00x to 16.00x)"]
    assert _row(page, "## Stages", "grid_stride")[1:4:2] == ["vectorized", "2.00x (1.00x to 4.00x)"]
    assert "0.0833 FLOP a byte" in page


def test_a_branch_is_compared_with_its_parent_and_not_with_the_stage_before_it() -> None:
    run = timed_run("matvec")
    for s, microseconds in zip(run.stages, (32.0, 16.0, 8.0, 1.0, 0.5, 2.0, 4.0, 1.0), strict=True):
        for m in s.measurements:
            m.timing.cold_us = [microseconds]
    _, rows = next(frame.ladders(_times(run, "matvec")))
    stages = frame.only(rows, frame.STAGE)
    assert dict(zip(stages.stage, stages.gain.fillna(0), strict=True)) == {
        "naive": 0,
        "warp_parallel": 2.0,
        "vectorized": 2.0,
        "split_k": 8.0,
        "overlapped_split_k": 2.0,
        "streamed": 4.0,
        "unaligned": 4.0,
        "shared_rows": 2.0,
    }


def test_a_page_has_tracks_and_marks_branches(tmp_path: Path) -> None:
    page = _write(tmp_path, ("emulator", emulated_run("gemm")))["emulator/gemm.md"]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.splitlines() if line.startswith("| simt")]
    assert rows[0] == ["simt", "`naive`", "-"]
    assert rows[1] == ["simt", "`coalesced`", "`naive`"]
    assert ["simt", "\u21b3 `warp_parallel`", "`coalesced`"] in rows
    of_stages = re.compile(r"\| (simt|skinny|mma|wgmma|tcgen05) ")
    names = [line.split("|")[2].strip("\u21b3` ") for line in page.splitlines() if of_stages.match(line)]
    assert names == list(registry.tree("gemm"))


def _with_peers() -> Run:
    """Triton takes 6 µs where PyTorch, interleaved with it, takes 4; NumPy, on the CPU, a second."""
    run = _run_with({"naive": 16.0, "vectorized": 8.0, "grid_stride": 4.0}, 3.0, {})
    m = run.stages[0].measurements[0]
    own = dataclasses.replace(m, timing=Timing("Triton", [6.0] * 7), baselines=[Timing("PyTorch", [4.0] * 7)])
    run.peers = [
        PeerResult("vector_add", "Triton", "triton 3.6", [own], {"1 bf16": "no bf16"}),
        PeerResult("gemm", "cuDNN", "9", [own]),
    ]
    run.host = [HostTiming("vector_add", "NumPy", "numpy 2.4", m.problem, m.label, m.flops, m.bytes, [1e6] * 3)]
    return run


def test_other_implementations_have_rows_of_their_own(tmp_path: Path) -> None:
    page = _write(tmp_path, ("nvidia-h200", _with_peers()))["nvidia-h200/vector_add.md"]
    heading = "### vector_add 1000000 fp32"
    row = ["Triton", "6.00 µs", "6.00 µs to 6.00 µs", "-", "2,000", "66.7 %", "33.3 %", "-", "7"]
    assert _row(page, heading, "Triton") == row
    assert _row(page, heading, "grid_stride")[5] == "75.0 %"  # its own library, as without them
    assert "**Triton**" not in page
    assert "| cuDNN" not in page
    assert "and Triton with the vendor's library alone" in page
    assert page.count("- Triton, 1 bf16: no bf16") == 1
    assert "Triton: triton 3.6" in _row(page, "## Environment", "baselines")[1]
    assert "On the CPU (AMD EPYC 9554, 16 cores), by the host's clock and in fp32, NumPy takes 1.00 s" in page
    assert not any(line.startswith("| NumPy") for line in page.splitlines())


def test_other_implementations_stay_when_all_stages_are_run_again_without_them(tmp_path: Path) -> None:
    old, new = _with_peers(), _with_peers()
    new.peers, new.host, new.environment = [], [], environment(date="2026-05-06T07:08:09Z")
    page = _write(tmp_path, ("nvidia-h200", old), ("nvidia-h200", new))["nvidia-h200/vector_add.md"]
    assert _row(page, "### vector_add 1000000 fp32", "Triton")[0] == "Triton"
    assert "NumPy takes 1.00 s" in page
    assert "Triton: triton 3.6" in _row(page, "## Environment", "baselines")[2]  # B: the old run
    assert "`grid_stride` (A)" in page
    assert "(B)" not in page


def test_what_several_runs_left_untimed_is_said_once_and_not_where_one_timed_it(tmp_path: Path) -> None:
    old, new = _with_peers(), _with_peers()
    old.peers[0].untimed["1000000 fp32"] = "no fp32"
    new.stages, new.environment = new.stages[2:], environment(date="2026-05-06T07:08:09Z")
    new.finished = False  # until then those of the old one are kept
    page = _write(tmp_path, ("nvidia-h200", old), ("nvidia-h200", new))["nvidia-h200/vector_add.md"]
    assert page.count("- Triton, 1 bf16: no bf16") == 1
    assert "no fp32" not in page


def test_a_page_says_which_stages_were_not_run_and_not_compared_with_the_emulator(tmp_path: Path) -> None:
    run = timed_run("vector_add")
    run.stages = run.stages[:2]
    compared = [Agreement("vector_add", "naive", ["cuda", "emulator"], 0, 200, {"exact": 200})]
    AgreementRun(run.device, run.environment, compared).save(tmp_path / "nvidia-h200" / store.AGREEMENT)
    pages = _write(tmp_path, ("nvidia-h200", run))
    page = pages["nvidia-h200/vector_add.md"]
    assert _row(page, "## What was verified", "grid_stride")[1] == "not tried"
    assert "Not compared in this way yet: `vectorized`." in page
    assert "| 2 of 2 (1 not tried) |" in pages["README.md"]


def test_a_baseline_with_a_wrong_result_is_a_warning(tmp_path: Path) -> None:
    run = _with_peers()
    run.stages[0].measurements[0].rejected = {"cuBLAS": "it gives a wrong result: 1 of 6 elements of C are wrong"}
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    assert "cuBLAS was left out: it gives a wrong result: 1 of 6 elements of C are wrong" in page


def test_the_heat_map_has_the_share_of_every_stage_on_every_problem() -> None:
    run = _with_peers()
    run.stages[1].measurements = []
    figure = plots.heat_map(_times(run, "vector_add", runs=[run]))
    (axes,) = figure.axes
    columns = [label.get_text() for label in axes.get_xticklabels()]
    shown = {columns[int(t.get_position()[0])]: t.get_text() for t in axes.texts}
    assert shown == {"naive": "19", "grid_stride": "75", "Triton": "67"}
    for measured in (*run.stages, *run.peers):
        for m in measured.measurements:
            m.baselines.clear()
    assert plots.heat_map(_times(run, "vector_add", runs=[run])) is None


def test_the_ladder_shows_tracks_and_branches() -> None:
    run = timed_run("gemm")
    tree = registry.tree("gemm")
    axes = plots.ladder(_times(run, "gemm"), derived.TFLOPS).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:-1] == [place.shown(name) for name, place in tree.items()]
    between = [line.get_ydata()[0] for line in axes.lines if line.get_gid() == "between tracks"]
    assert between == [
        names.index(first) - 0.5 for first in ("few_vectors", "tensor_core", "tma_pipeline", "tensor_memory")
    ]


@pytest.mark.parametrize("share", [0.5, 0.7, 0.76, 0.8, 0.99])
def test_no_number_of_the_ladder_stands_on_the_limit(share: float) -> None:
    run = _run_with({"naive": 2.0 / share}, 3.0, {})  # the limit is 2 µs
    for s in run.stages:  # two panels are as narrow as they get
        s.measurements += [dataclasses.replace(m, label="the same again") for m in s.measurements]
    figure = plots.ladder(_times(run, "vector_add"), derived.GBPS)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    (limit, _) = axes.transData.transform((6000, 0))
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 2
    assert [box for box in boxes if box.x0 - 2 < limit < box.x1 + 2 or box.x1 > axes.bbox.x1] == []


def test_no_point_of_the_roofline_covers_another_and_none_comes_nearer_to_a_roof() -> None:
    points = [(x, y) for x in (10.0, 50.0, 55.0) for y in (0.0, 1.0, 1.5, 2.0, 20.0)]
    placed = plots._apart(points, 8.0)
    assert [y for _, y in placed] == [y for _, y in points]
    assert all(now[0] >= before[0] for now, before in zip(placed, points, strict=True))
    assert all(math.dist(p, q) >= 8.0 for p, q in itertools.combinations(placed, 2))


def test_the_spread_shows_every_sample_in_its_row() -> None:
    run = timed_run("vector_add")
    axes = plots.spread(_times(run, "vector_add")).axes[0]
    shown = {name.get_text(): [] for name in axes.get_yticklabels()}
    for line in axes.lines:
        if line.get_marker() == "|":
            shown[list(shown)[int(line.get_ydata()[0])]] += list(line.get_xdata())
    naive = run.stages[0].measurements[0].timing.cold_us
    limit = axes.get_xlim()[1] / 1.05
    expected = [min(max(100 * (us / derived.median(naive) - 1), -limit), limit) for us in naive]
    assert shown["naive"] == pytest.approx(expected)
    assert len(shown["copy"]) == 3 * len(naive)


def test_gain_skips_a_stage_that_was_not_timed(tmp_path: Path) -> None:
    run = _run_with({"naive": 16.0, "grid_stride": 4.0}, 3.0, {"naive": 15.0, "grid_stride": 4.0})
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    assert _row(page, "### vector_add 1000000 fp32", "grid_stride")[7] == "4.00x"


def test_a_copy_is_shown_and_is_not_the_vendor() -> None:
    timing = Timing("s", [4.0])
    m = Measurement(
        "n=1", "1", 1, 1, 1.0, "memory", timing, [Timing("copy", [1.0], solves=False), Timing("PyTorch", [2.0])]
    )
    assert derived.share_of_vendor(m) == 0.5
    assert derived.share_of_vendor(dataclasses.replace(m, baselines=m.baselines[:1])) is None


def test_an_emulator_report_shows_no_times(tmp_path: Path) -> None:
    pages = _write(tmp_path, ("emulator", emulated_run("gemm")))
    page = pages["emulator/gemm.md"]
    assert "says nothing about speed" in page
    assert not re.search(r"\d (µs|ms|s|TFLOP/s|GB/s)\b", page)
    assert "seconds" not in page
    assert not list(tmp_path.rglob("*.png"))


def test_a_failure_is_reported_with_its_evidence(tmp_path: Path) -> None:
    page = _write(tmp_path, ("emulator", emulated_run("gemm")))["emulator/gemm.md"]
    assert "### `gemm:naive` failed: mismatch" in page
    assert MISMATCH.problem in page
    assert MISMATCH.replay in page
    assert _row(page, "failed: mismatch", "C[0, 1]") == ["C[0, 1]", "nan", "2", "equal"]
    assert _row(page, "## What was verified", "naive")[1:4] == ["mismatch", "50", "exact 50, bounded 49"]
    assert _row(page, "## What was verified", "smem_tiling")[-1] == "7"


CELLS = WrongCells("m=4,n=6", "C", [4, 6], [1, 1], 3, 2, ["......", ".9....", "....ii", "......"])
"""C[1, 1] is wrong, C[2, 4] and C[2, 5] hold NaN."""


def _failed_with(cells: WrongCells | None) -> Run:
    run = emulated_run("gemm")
    run.stages[0].verification = verification(Verdict.MISMATCH, dataclasses.replace(MISMATCH, cells=cells))
    return run


def test_wrong_elements_are_shown_in_a_picture_while_there_are_some(tmp_path: Path) -> None:
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        page = _write(folder, ("emulator", _failed_with(CELLS)))["emulator/gemm.md"]
        picture = folder / "emulator" / "gemm-naive-wrong-elements.png"
        assert page.count(f"]({picture.name})") == 1
        assert page.index("failed: mismatch") < page.index(picture.name) < page.index("## What was timed")
        pictures.append(picture.read_bytes())
    assert pictures[0] == pictures[1]
    assert struct.unpack(">I", pictures[0][16:20])[0] == 1600
    page = _write(tmp_path / "a", ("emulator", _failed_with(None)))["emulator/gemm.md"]
    assert "wrong-elements" not in page
    assert not list((tmp_path / "a").rglob("*.png"))


@pytest.mark.parametrize("shape", [[4, 6], [2, 2, 6]], ids=str)
def test_the_picture_shows_each_element_in_its_place(shape: list[int]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = plots.wrong_elements("gemm:naive", dataclasses.replace(CELLS, shape=shape))
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    (axes,) = figure.axes

    def colours(m: int, n: int) -> set[str]:
        """The colours inside an element's cell."""
        left, right = (axes.transData.transform((n + x, m + y)) for x, y in ((0.2, 0.8), (0.8, 0.2)))
        top, bottom = (pixels.shape[0] - int(y) for y in (right[1], left[1]))
        inside = pixels[top:bottom, int(left[0]) : int(right[0]), :3].reshape(-1, 3)
        assert len(inside) > 100
        return {to_hex(tuple(c / 255)).upper() for c in np.unique(inside, axis=0)}

    for m in range(4):
        for n in range(6):
            seen = colours(m, n)
            if (m, n) == (1, 1):
                assert seen == {plots.VENDOR}
            elif (m, n) in ((2, 4), (2, 5)):
                assert {plots.BEST, "#FFFFFF"} < seen  # hatched: known without the colour
            else:
                assert seen == {"#FFFFFF"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("column n of C", "row m of C")
    assert "3 of 24 elements of C are wrong" in axes.get_title(loc="left")


def test_the_picture_of_a_vector_is_a_strip_along_its_index() -> None:
    wrong = WrongCells("n=5", "c", [5], [1, 1], 2, 0, ["..9.9"])
    (axes,) = plots.wrong_elements("matvec:naive", wrong).axes
    assert axes.get_xlabel() == "index in c"
    assert len(axes.get_yticks()) == 0


def test_many_reasons_for_leaving_problems_out_are_summed_up(tmp_path: Path) -> None:
    run = emulated_run("gemm")
    run.stages[1].verification.unsupported = {f"rows are {i} bytes apart": i for i in range(1, 11)}
    page = _write(tmp_path, ("emulator", run))["emulator/gemm.md"]
    lines = [line for line in page.splitlines() if line.startswith("- `coalesced`: ")]
    assert lines[0] == "- `coalesced`: rows are 10 bytes apart (10 drawn)"
    assert lines[4] == "- `coalesced`: 6 more such reasons (21 drawn)"
    assert not any("6 bytes" in line for line in lines)


def test_messages_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    run = emulated_run("gemm")
    failure = dataclasses.replace(
        MISMATCH, looks_like="all | zeros\n# so", map="##", message="line | one\n```\n# not a heading"
    )
    run.stages[0].verification = verification(Verdict.RACE, failure)
    run.stages[1].idea = "a | b\nc"
    page = _write(tmp_path, ("emulator", run))["emulator/gemm.md"]
    assert "Looks like: all | zeros # so\n\n```text\n##\n```" in page
    assert "````text\nline | one\n```\n# not a heading\n````" in page
    assert "| a \\| b c" in page


def test_a_gpu_report_without_times_says_why(tmp_path: Path) -> None:
    run = timed_run("vector_add")
    for s in run.stages:
        s.measurements, s.untimed = [], {"every problem": "verification ended with race"}
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    timed = page.split("## What was timed")[1]
    assert "Nothing." in timed
    assert "- `naive`, every problem: verification ended with race" in timed
    assert ".png" not in page


def test_without_peaks_there_is_no_roofline_and_no_share_of_it(tmp_path: Path) -> None:
    run = timed_run("vector_add")
    run.device = dataclasses.replace(run.device, peak_bytes_per_s=0.0, peak_flops={})
    for s in run.stages:
        for m in s.measurements:
            m.roofline_us, m.roofline_by = 0.0, "memory"
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/vector_add.md"]
    assert "vector_add-ladder.png" in page
    assert "vector_add-roofline.png" not in page
    assert "there is no roofline bound" in page


def test_an_operation_that_computes_nothing_has_no_roofline(tmp_path: Path) -> None:
    run = timed_run("transpose")
    assert {m.flops for s in run.stages for m in s.measurements} == {0}
    page = _write(tmp_path, ("nvidia-h200", run))["nvidia-h200/transpose.md"]
    assert "transpose-ladder.png" in page
    assert "transpose-roofline.png" not in page


def test_figures_of_two_runs_are_told_apart(tmp_path: Path) -> None:
    second = timed_run("vector_add", seed=2)
    second.stages = [s for s in second.stages if s.stage == "vectorized"]
    second.environment = environment(date="2026-05-06T07:08:09Z", commit="f" * 40, dirty=True)
    runs = (("nvidia-h200", run) for run in (timed_run("vector_add"), second))
    page = _write(tmp_path, *runs)["nvidia-h200/vector_add.md"]
    label = second.stages[0].measurements[0].label
    assert _row(page, f"### vector_add {label}", "vectorized` (A)")[7] == "-"  # no gain over another run's figure
    assert _row(page, f"### vector_add {label}", "naive` (B)")
    below = page.split(f"### vector_add {label}", 1)[1].split("\n\n")[2]
    assert below.startswith(
        "The letter behind a stage is its run: A of 2026-05-06T07:08:09Z, B of 2026-01-02T03:04:05Z."
    )
    assert _row(page, "## Environment", "date") == ["date", "2026-05-06T07:08:09Z", "2026-01-02T03:04:05Z"]
    assert "`ffffffffffff` with uncommitted changes" in page


def test_only_one_device_is_written_when_asked_and_the_index_has_all(tmp_path: Path) -> None:
    _write(tmp_path, ("nvidia-h200", timed_run("vector_add")), ("emulator", emulated_run("gemm")))
    written = report.write(tmp_path, "emulator")
    assert {str(p.relative_to(tmp_path)) for p in written} == {"emulator/gemm.md", "README.md"}
    assert "nvidia-h200/vector_add.md" in (tmp_path / "README.md").read_text()


def test_an_operation_that_is_gone_is_reported_all_the_same(tmp_path: Path) -> None:
    run = emulated_run("gemm")
    run.stages = [stage("forgotten", "naive")]
    assert "# forgotten on emulated H200" in _write(tmp_path, ("emulator", run))["emulator/forgotten.md"]


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p / "x").mkdir(parents=True)])
def test_no_results_at_all_is_an_error_that_says_what_to_do(make: object, tmp_path: Path) -> None:
    make(tmp_path / "reports")  # type: ignore[operator]
    with pytest.raises(ResultsError, match="workbench run --output"):
        report.write(tmp_path / "reports")


def test_numbers_have_three_digits_and_times_their_unit() -> None:
    digits = {0: "0", 0.01234: "0.0123", 1.0: "1.00", 9.996: "10.0", 99.96: "100", 12345.6: "12,346"}
    assert {value: derived.three_digits(value) for value in digits} == digits
    times = {0.5: "0.5 µs", 999.4: "999 µs", 1000: "1.00 ms", 1.5e6: "1.50 s", 123456.0: "123 ms"}
    assert {us: derived.duration(us) for us in times} == times


def test_the_environment_names_no_machine_and_no_user() -> None:
    import getpass
    import platform

    described = environment_module.describe()
    text = str(dataclasses.asdict(described))
    assert platform.node() not in text
    assert str(Path.home()) not in text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", described.date)
    assert re.search(r", \d+ cores$", described.host)
    assert described.packages["numpy"]
    assert re.fullmatch(r"[0-9a-f]{64}", described.code_sha256)
    assert re.fullmatch(r"NVRTC \d+\.\d+", described.cuda)
    assert getpass.getuser() not in described.host


def test_the_environment_knows_a_dirty_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_module._checkout(tmp_path) == ("unknown", False)
    git("init", folder=tmp_path)
    (tmp_path / "a").write_text("a")
    git("add", "a", folder=tmp_path)
    git("commit", "-m", "a", folder=tmp_path)
    commit, dirty = environment_module._checkout(tmp_path)
    assert (len(commit), dirty) == (40, False)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "new.md").write_text("generated")
    assert environment_module._checkout(tmp_path) == (commit, False)
    (tmp_path / "a").write_text("b")
    assert environment_module._checkout(tmp_path) == (commit, True)
    monkeypatch.setenv("WORKBENCH_COMMIT", "c0ffee")  # this history began where the files were copied to
    assert environment_module._checkout(tmp_path) == ("c0ffee", True)
    monkeypatch.delenv("WORKBENCH_COMMIT")
    (tmp_path / "inside").mkdir()
    assert environment_module._checkout(tmp_path / "inside") == ("unknown", False)


def test_the_peak_is_that_of_the_type_which_is_recorded_and_in_old_records_of_the_problem_or_its_label() -> None:
    measured = timed_run("vector_add").stages[0].measurements[0]
    fp8 = {"problem": "m=1,n=1,k=1,out=bf16,tier=bounded,seed=0", "label": "1x1x1 e4m3->bf16"}
    for fields, dtype in (
        ({"dtype": "int8"}, "int8"),
        ({"dtype": ""}, "fp32"),  # of the problem's text
        ({"dtype": "", **fp8}, "e4m3"),
        ({"dtype": "", "problem": "n=1", "label": "1 thing"}, ""),
    ):
        assert derived.dtype(dataclasses.replace(measured, **fields)) == dtype


def test_a_type_of_8_bits_has_a_roofline() -> None:
    run = timed_run("vector_add")
    for result in run.stages:
        result.measurements = [dataclasses.replace(m, dtype="e4m3") for m in result.measurements]
    times = _times(run, "vector_add")
    peaks = {"peak_flops": {"e4m3": 2e15}, "peak_bytes_per_s": 4e12}
    assert plots.roofline(times, dataclasses.replace(run.device, **peaks)) is not None
    assert plots.roofline(times, dataclasses.replace(run.device, **{**peaks, "peak_flops": {"fp32": 1e15}})) is None
