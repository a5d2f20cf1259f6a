"""The table of times holds what the record holds, and is made only where somebody asks for it."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import emulated_run, timed_run

import workbench
from workbench.model import compact
from workbench.model.results import HostTiming, PeerResult, ResultsError, Timing
from workbench.records import store
from workbench.report import frame
from workbench.run import api

ROOT = Path(__file__).parents[1]


def test_every_measurement_has_a_row_with_the_figures_of_its_samples() -> None:
    run = timed_run("vector_add")
    run.environment.dirty = True
    table = api.Outcome(run, {}).frame
    assert list(table) == list(frame.COLUMNS)
    assert len(table) == sum(len(s.measurements) for s in run.stages) > 5
    for s in run.stages:
        for m in s.measurements:
            (row,) = (r for r in table.itertuples() if (r.stage, r.problem) == (s.stage, m.problem))
            us, library = np.median(m.timing.cold_us), np.median(m.baselines[0].cold_us)
            assert row.samples_us == m.timing.cold_us
            assert (row.operation, row.verdict, row.device, row.label) == ("vector_add", "pass", "NVIDIA H200", m.label)
            assert row.commit == run.environment.commit + "*"
            assert row.time_us == pytest.approx(us)
            assert row.sustained_us == pytest.approx(np.median(m.timing.sustained_us))
            assert row.tflops == pytest.approx(m.flops / us / 1e6)
            assert row.gbytes_per_s == pytest.approx(m.bytes / us / 1e3)
            assert row.of_vendor == pytest.approx(library / us)
            assert row.of_roofline == pytest.approx(m.roofline_us / us)
    chain = table[table.problem == run.stages[0].measurements[0].problem].set_index("stage")
    assert math.isnan(chain.gain["naive"])
    assert chain.gain["vectorized"] == pytest.approx(chain.time_us["naive"] / chain.time_us["vectorized"])


def test_a_stage_without_times_has_one_row_with_its_verdict_and_nothing_else() -> None:
    outcome = api.Outcome(emulated_run("matvec"), {})
    table = outcome.frame
    assert table.verdict.tolist() == ["mismatch", *["pass"] * (len(table) - 1)]
    assert len(table) == len(outcome.run.stages)
    assert (
        table[["problem", "time_us", "tflops", "of_vendor", "of_roofline", "gain", "sustained_us"]]
        .isna()
        .all(axis=None)
    )


def test_pandas_makes_the_same_table_of_an_outcome() -> None:
    for run in (timed_run("vector_add"), emulated_run("matvec")):
        outcome = api.Outcome(run, {})
        pd.testing.assert_frame_equal(pd.DataFrame(outcome), outcome.frame, check_dtype=False)


def test_other_implementations_have_rows_and_libraries_beside_stages_and_on_the_cpu_have_none() -> None:
    run = timed_run("vector_add")
    m = run.stages[0].measurements[0]
    own = dataclasses.replace(m, timing=Timing("Triton", [6.0] * 7), baselines=[Timing("PyTorch", [4.0] * 7)])
    run.peers = [PeerResult("vector_add", "Triton", "3.6", [own]), PeerResult("gemm", "cuDNN", "9", [own])]
    run.host = [HostTiming("vector_add", "NumPy", "2.4", m.problem, m.label, m.flops, m.bytes, [1e6])]
    table = api.Outcome(run, {}).frame
    others = table[table.verdict == ""].set_index("stage")
    assert others.of_vendor.round(3).to_dict() == {"Triton": 0.667, "cuDNN": 0.667}
    assert others.operation.to_dict() == {"Triton": "vector_add", "cuDNN": "gemm"}
    assert not set(table.stage) & {"PyTorch", "NumPy", "cuBLAS", "copy"}


def test_a_ladder_pools_the_samples_of_a_library_over_the_stages_that_ran_with_it() -> None:
    run = timed_run("vector_add")
    times = frame.table([(s, run) for s in run.stages], {}, order=["b", "a"])
    label, rows = next(frame.ladders(times))
    assert label == run.stages[0].measurements[0].label
    assert rows.kind.tolist() == [*[frame.STAGE] * len(run.stages), frame.LIBRARY, frame.LIBRARY]
    pooled = [us for s in run.stages for m in s.measurements[:1] for us in m.baselines[0].cold_us]
    assert rows.samples_us[rows.stage == "cuBLAS"].item() == pooled
    assert frame.best(rows).stage == run.stages[-1].stage


def test_results_has_every_published_record_that_holds_measurements_of_stages() -> None:
    table = workbench.results(ROOT / "reports")
    assert list(table) == list(frame.COLUMNS)
    published = 0
    for path in (ROOT / "reports").rglob("*.json*"):
        published += compact.read_text(path).count('"throttle_reasons"')  # each measurement has its conditions
    assert len(table[table.time_us.notna()]) == published > 1000
    assert set(table.device) == {"NVIDIA H200", "emulated NVIDIA H200"}
    assert "unknown" not in set(table.operation)
    best = table[(table.operation == "gemm") & (table.stage == "stream_k")].tflops.max()
    assert f"{best:,.0f} TFLOP/s" in (ROOT / "reports/README.md").read_text()


def test_results_says_what_is_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"there are no results in .*; make some with: workbench run --output"):
        workbench.results(tmp_path)
    with pytest.raises(ResultsError, match="is no file, no folder"):
        workbench.results(tmp_path / "nothing")
    (tmp_path / "notes.json").write_text('{"rows": 1}')  # of somebody else
    store.Folder(tmp_path / "emulator").save(emulated_run("matvec"))
    assert set(workbench.results(str(tmp_path)).operation) == {"matvec"}
    path = tmp_path / "emulator/results/matvec.json"
    data = json.loads(path.read_text())
    del data["runs"][0]["stages"][0]["verification"]["seed"]
    path.write_text(json.dumps(data))
    with pytest.raises(ResultsError, match="lacks seed"):
        workbench.results(tmp_path)
    path.write_text('{"verification": ')
    with pytest.raises(ResultsError, match="is not JSON"):
        workbench.results(tmp_path)


VERIFY = """
import sys, workbench
from workbench.cli.main import main
outcome = workbench.verify("vector_add:naive", device="emulator", problem="n=3")
assert outcome.ok and str(outcome) and outcome._repr_html_()
sys.argv = ["workbench", "verify", "vector_add:naive", "--device", "emulator", "--problem", "n=3"]
try:
    main()
except SystemExit as end:
    assert not end.code
print("pandas" in sys.modules)
outcome.frame
print("pandas" in sys.modules)
"""


@pytest.mark.long
def test_what_only_verifies_never_loads_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", VERIFY], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-2:] == ["False", "True"], done.stdout + done.stderr


def test_pandas_is_loaded_by_the_table_alone() -> None:
    named = {
        p.relative_to(ROOT).as_posix() for p in (ROOT / "workbench").rglob("*.py") if "import pandas" in p.read_text()
    }
    assert named == {"workbench/report/frame.py"}


def test_samples_of_a_benchmark_become_medians_and_means_are_those_of_logarithms() -> None:
    rows = [{"name": "a", "cold_us": [3.0, 1.0, 2.0], "theirs_us": 7.0}, {"name": "b", "cold_us": [], "theirs_us": 8.0}]
    found = frame.medians(rows)
    assert found.name.tolist() == ["a", "b"] and found.theirs_us.tolist() == [7.0, 8.0]
    assert found.cold_us[0] == 2.0 and math.isnan(found.cold_us[1])
    assert frame.geometric_mean(pd.Series([0.5, 8.0])) == pytest.approx(2.0)
