"""Which stage solves a problem: what the cost model predicts, from what it is fitted, and how it is explained."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cost_model as page
import ml_dtypes
import numpy as np
import pytest
from emulated_gpu import EmulatedGpu

from workbench import ops
from workbench.catalogue import registry
from workbench.kernels.gemm import GemmProblem
from workbench.model.cost_model import L2_BANDWIDTH, Constants, Work, fit, least_us, predict
from workbench.model.launch import H200
from workbench.ops import choice
from workbench.records import cost, tuned

WORK = Work(tiles=10, iterations=7, flops=1000, loaded=200, bytes=5000)
TRUE = Constants(launch_us=3.0, tile_us=2.0, flop_us=0.004, loaded_us=0.0, bandwidth=1e6)


def test_a_time_is_that_of_the_rounds_or_of_memory() -> None:
    whole = predict(WORK, TRUE, 4)
    assert (whole.rounds, whole.bound) == (3, "tiles")
    assert whole.us == pytest.approx(3 + 3 * (7 * 4 + 2), rel=1e-4)
    shared = predict(dataclasses.replace(WORK, shared=True), TRUE, 4)
    assert shared.us == pytest.approx(3 + 2.5 * (7 * 4 + 2))
    few = predict(dataclasses.replace(WORK, shared=True, tiles=3), TRUE, 4)
    assert few.rounds == 1
    at_once = predict(dataclasses.replace(WORK, resident=2), dataclasses.replace(TRUE, wait_us=0.5), 4)
    assert at_once.us == pytest.approx(3 + 3 * 7 * 4 + 2 * (7 * 0.5 + 2))  # two of three rounds wait together
    copied = predict(dataclasses.replace(WORK, copied=4 * 10**6), TRUE, 4)
    assert copied.us == pytest.approx(whole.us + 4)
    memory = predict(dataclasses.replace(WORK, bytes=10**9), TRUE, 4)
    assert (memory.us, memory.bound) == (pytest.approx(1003.0, rel=0.01), "memory")
    both = predict(dataclasses.replace(WORK, bytes=90 * 10**6), TRUE, 4)
    assert both.us == pytest.approx(3 + 90 * 2**0.5)  # neither is hidden wholly
    lines = predict(dataclasses.replace(WORK, requested=10**12), TRUE, 4)
    assert (lines.us, lines.bound) == (pytest.approx(1e12 / L2_BANDWIDTH, rel=0.01), "memory")


def _works() -> list[Work]:
    rng = np.random.default_rng(0)
    made = []
    for width in rng.choice([64, 128, 256], 40):
        tiles, iterations, size = (int(rng.integers(*r)) for r in ((1, 900), (1, 300), (20, 30)))
        made.append(Work(tiles, iterations, 2 * 128 * int(width) * 64, (128 + int(width)) * 128, 2**size))
    return made


@pytest.mark.parametrize("loaded", [0.0, 1.2e-5])
def test_constants_are_found_again_from_the_times_that_they_predict(loaded: float) -> None:
    bandwidth = 1e6 * 1.1**13
    true = Constants(5.0, 1.5, 1.5e-7, loaded, bandwidth)
    samples = [(w, predict(w, true, 132).us) for w in _works()]
    assert {predict(w, true, 132).bound for w, _ in samples} == {"tiles", "memory"}
    found = fit(samples, 132)
    assert found is not None and found.samples == 40 and found.error < 0.01
    assert found.bandwidth == pytest.approx(bandwidth, rel=0.01)
    for w in _works():  # what an iteration takes is found, but not for what: all three grow with the width of a tile
        us = w.flops * true.flop_us + w.loaded * true.loaded_us
        assert w.flops * found.flop_us + w.loaded * found.loaded_us + found.wait_us == pytest.approx(us, rel=0.01)
    assert found.least_us == min(us for _, us in samples)
    assert fit(samples[:5], 132) is None


def test_without_scipy_what_was_tuned_changes_nothing_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    gemm = registry.operations()["gemm"]
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.setattr(cost.errors, "warn", said.append)
    monkeypatch.setattr(cost, "_works", lambda operation, stages, samples: [("naive", w, 1.0) for w in samples])
    assert cost.fitted(gemm, _works()) == {}
    assert len(said) == 1 and "SciPy is needed" in said[0] and "kernel-workbench[stats]" in said[0]
    assert cost.fitted(gemm, []) == {}  # and nothing is said where nothing was tuned
    assert len(said) == 1


def test_constants_that_ship_stay_where_they_fit_as_well() -> None:
    works = [Work(tiles, iterations, 10**6, 10**4, 10**5) for tiles in (100, 300, 900) for iterations in (3, 10, 40)]
    times = [("persistent", work, predict(work, dataclasses.replace(TRUE, flop_us=1e-6), 132).us) for work in works]
    fresh = page.kept({}, times)["persistent"]
    # operations and bytes go together: what the ones take the others might
    other = dataclasses.replace(fresh, flop_us=0.0, loaded_us=fresh.loaded_us + 100 * fresh.flop_us)
    shipped = {"persistent": other}
    assert other != fresh and page.kept(shipped, times) == {"persistent": other}
    slower = [(name, work, 1.02 * us) for name, work, us in times]
    assert page.kept(shipped, slower)["persistent"] == page.kept({}, slower)["persistent"] != other
    assert page.kept(shipped, times * 2)["persistent"].samples == 18


def test_what_takes_much_less_than_all_that_was_measured_is_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = dataclasses.replace(TRUE, least_us=10.0)
    assert constants.covers(5.0) and not constants.covers(4.9)
    gemm = registry.operations()["gemm"]
    known = {name: dataclasses.replace(TRUE, least_us=least) for name, least in (("small_tiles", 9.0), ("naive", 1e6))}
    predictor = cost.Predictor(known | {"persistent": known["naive"]})
    problem = GemmProblem.parse("64x64x64,dtype=bf16,out=bf16")
    assert [p.stage.name for p in predictor.fastest_first(gemm, problem, H200)] == ["small_tiles"]


def _random_problems(count: int) -> Iterator[GemmProblem]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        m, n, k = (int(x) if rng.random() < 1 / 3 or x < 8 else int(x) // 8 * 8 for x in 2 ** rng.uniform(0, 14, 3))
        dtype, layout = rng.choice(["bf16", "fp16", "fp32"]), rng.choice(["nn", "nt"])
        pads = {name: int(rng.choice([0, 0, 3, 8, 64])) for name in ("pad_a", "pad_b", "pad_c")}
        yield GemmProblem(m=m, n=n, k=k, dtype=str(dtype), out=str(dtype), layout=str(layout), **pads)


def test_stages_come_by_their_predicted_time_and_those_behind_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gemm = registry.operations()["gemm"]
    predictor, looked_at, supported = cost.predictor("", gemm), [], 0
    work_of = cost.work_of

    def counted(operation: Any, stage: Any, problem: Any) -> Any:
        looked_at.append(stage.name)
        return work_of(operation, stage, problem)

    for problem in _random_problems(150):
        able = [stage for stage in gemm.stages if stage.supports(problem) is None]
        supported += len(able)
        told = [p for p in (predictor.of(gemm, stage, problem) for stage in able) if p]
        wanted = sorted(told, key=lambda p: p.prediction.us)
        with monkeypatch.context() as patched:
            patched.setattr(cost, "work_of", counted)
            assert next(predictor.fastest_first(gemm, problem, H200)) == wanted[0], problem
        assert list(predictor.fastest_first(gemm, problem, H200)) == wanted, problem
    assert len(looked_at) < 0.6 * supported


def test_no_work_takes_less_than_its_operations_and_bytes() -> None:
    gemm = registry.operations()["gemm"]
    known, found = cost.predictor("", gemm).constants, 0
    for problem in _random_problems(100):
        for stage in gemm.stages:
            work = cost.work_of(gemm, stage, problem) if stage.supports(problem) is None else None
            if work and (constants := known.get(cost.key_of(stage.name, work))):
                least = least_us(problem.cost.flops, problem.cost.bytes, constants, 132)
                assert least <= (1 + 1e-9) * predict(work, constants, 132).us, (stage.name, problem)
                found += 1
    assert found > 500


def test_work_of_a_stage_is_that_of_its_tiles() -> None:
    gemm = registry.operations()["gemm"]
    stages = {s.name: s for s in gemm.stages}
    problem = GemmProblem.parse("3008x3008x3008,dtype=bf16,out=bf16")
    tiles = cost.work_of(gemm, stages["ping_pong"], problem)
    lines = 24 * 24 * 47 * 128
    assert tiles == Work(24 * 24, 47, 2 * 128 * 128 * 64, 256 * 64 * 2, 3 * 3008**2 * 2, requested=lines * 256)
    shared = cost.work_of(gemm, stages["stream_k"], problem)  # two blocks share what they load of B
    assert shared == Work(24 * 12, 47, 2 * 128 * 256 * 64, 384 * 64 * 2, 3 * 3008**2 * 2, True, requested=lines * 128)
    within = cost.work_of(gemm, stages["ping_pong"], dataclasses.replace(problem, pad_b=8))
    assert within is not None and within.requested == lines * (128 + 15 / 8 * 128)  # one in 8 rows of B begins a line
    side_by_side = cost.work_of(gemm, stages["flexible_multicast"], dataclasses.replace(problem, pad_b=8))
    assert side_by_side is not None and side_by_side.requested < 0.7 * within.requested
    odd = GemmProblem.parse("544x5888x8224,dtype=bf16,out=bf16")  # three pairs of its rows of tiles take a round more
    alone, pairs = (cost.work_of(gemm, stages["deferred_epilogue"], p) for p in (odd, dataclasses.replace(odd, m=1920)))
    assert alone is not None and alone.tiles == 5 * 23 and pairs is not None and pairs.tiles == 16 * 23
    split = cost.work_of(gemm, stages["fitted_tiles"], GemmProblem.parse("128x8192x8192,dtype=bf16,out=bf16"))
    assert (split.tiles, split.iterations) == (128, 64)
    assert cost.work_of(gemm, stages["naive"], problem) is None
    assert cost.work_of(gemm, stages["persistent"], problem) is None  # `fitted_tiles` has the same tiles
    assert (
        cost.work_of(gemm, stages["stream_k"], dataclasses.replace(problem, m=24)) is None
    )  # a tile of mostly nothing


def test_work_that_takes_other_time_is_of_another_kind() -> None:
    gemm = registry.operations()["gemm"]
    stages = {s.name: s for s in gemm.stages}

    def kind(stage: str, problem: str) -> str:
        found = cost.work_of(gemm, stages[stage], GemmProblem.parse(problem))
        return "none" if found is None else cost.key_of(stage, found)

    assert kind("ping_pong", "3008x3008x3008,dtype=bf16,out=bf16") == "ping_pong"
    assert kind("ping_pong", "3000x3000x3000,dtype=bf16,out=bf16") == "ping_pong, rows across lines"
    assert kind("ping_pong", "9000x3000x3000,dtype=bf16,out=bf16") == "ping_pong, rows across lines large C"
    assert kind("realigned", "3000x3001x3003,dtype=bf16,out=bf16") == "realigned, 2 copies elements of C"
    assert kind("realigned", "3000x3001x63,dtype=bf16,out=bf16") == "none"
    assert kind("few_vectors", "3000x8x99,dtype=fp32,out=fp32,layout=nn") == "few_vectors, fp32 any rows"
    assert kind("few_vectors", "3000x8x100,dtype=fp32,out=fp32,layout=nn") == "few_vectors, fp32 columns of B"
    assert kind("few_vectors", "3000x200x100,dtype=fp32,out=fp32,layout=nn") == "none"
    assert kind("small_tiles", "999x999x99,dtype=bf16,out=bf16") == "small_tiles, elements rows of C anywhere"
    assert kind("small_tiles", "64x64x999,dtype=bf16,out=bf16") == "small_tiles, elements clusters"
    assert kind("fitted_tiles", "96x720x2288,dtype=bf16,out=bf16") == "fitted_tiles, rows across lines clusters"
    assert kind("fitted_pipeline", "3976x72x568,dtype=fp32,out=fp32") == "fitted_pipeline, clusters"
    assert kind("fitted_pipeline", "40x1080x15824,dtype=fp32,out=fp32") == "fitted_pipeline, several clusters"
    assert kind("shifted_pipeline", "3000x3001x3003,dtype=fp32,out=fp32") == "shifted_pipeline, elements of C"
    assert kind("one_vector", "1x8x9357,dtype=fp16,out=fp16") == "one_vector, any rows"
    assert kind("realigned", "3000x3000x3000,dtype=bf16,out=bf16") == "none"  # nothing has to be copied
    assert kind("split_warp_tiles", "9000x9000x9000,dtype=fp32,out=fp32") == "split_warp_tiles, fp32"


def test_large_operands_that_are_read_once_are_left_to_stages_that_do() -> None:
    gemm = registry.operations()["gemm"]

    def told(problem: str) -> set[str]:
        predicted = cost.predictor("", gemm).fastest_first(gemm, GemmProblem.parse(problem), H200)
        return {p.stage.name for p in predicted}

    assert told("8x8192x8192,dtype=bf16,out=bf16") == {"few_vectors"}
    assert told("16x8192x8192,dtype=bf16,out=bf16") == {"few_vectors", "streamed"}
    assert "fitted_tiles" in told("17x8192x8192,dtype=bf16,out=bf16")
    assert "split_tiles" in told("8192x8x8192,dtype=fp32,out=fp32,layout=nn")


def test_works_of_one_size_are_no_ground_for_constants() -> None:
    works = [(dataclasses.replace(WORK, tiles=n), 5.0 + n) for n in (1, 2, 3)]
    assert fit(works * 3, 4) is None
    assert fit([*works * 3, (dataclasses.replace(WORK, tiles=9), 14.0)], 4) is not None


@pytest.mark.long
def test_what_it_would_take_is_within_a_few_percent_of_the_fastest_that_was_measured() -> None:
    """By the constants that ship; that these are the fitted ones is `tools/refresh.py --check`."""
    gemm = registry.operations()["gemm"]
    benched = page.slower(cost.predictor("", gemm).constants, page.benched())
    assert len(benched) >= 20
    assert max(us / least for _, _, us, _, least in benched.values()) <= 1.08
    for card in page.CARDS:
        chosen = page.slower(cost.predictor(card, gemm).constants, page.with_present_tiles(card))
        ratios = sorted(us / least for _, _, us, _, least in chosen.values())
        assert len(ratios) >= 300 and statistics.geometric_mean(ratios) < 1.03, card
        assert ratios[len(ratios) * 95 // 100] < 1.2, card


CHOSEN = {
    "3000x3000x3000": ("flexible_multicast", choice.MODEL),  # rows begin within lines, and no tile of 128 x 256 fits
    "8192x8192x8192": ("stream_k", choice.PREFERRED),  # deferred_epilogue is predicted to be 1.5 % faster
    "32x4096x14336": ("streamed", choice.MODEL),
    "16x4096x14336": ("streamed", choice.MODEL),  # reads B once, in large boxes
    "8x4096x14336": ("few_vectors", choice.PREFERRED),
    "64x64x64": ("small_tiles", choice.PREFERRED),
    "64x64x999": ("shifted_tiles", choice.MODEL),  # rows that begin anywhere
    "200x200x1000": ("small_tiles", choice.PREFERRED),
}


@pytest.mark.parametrize("sizes", CHOSEN)
def test_the_model_decides_where_it_sees_a_difference(sizes: str) -> None:
    found = ops.explain(ops.gemm, f"{sizes},dtype=bf16,out=bf16")
    assert (found.stage.name, found.why) == CHOSEN[sizes]


def test_the_table_and_what_was_tuned_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "2048x2048x2048,dtype=bf16,out=bf16"
    shipped = ops.explain(ops.gemm, text, device="NVIDIA H200")
    assert (shipped.stage.name, shipped.why) == ("ping_pong", choice.TABLE)
    made = shipped.stage.with_parameters({"GROUP_M": 4})
    monkeypatch.setattr(tuned, "found", lambda *_: ((1.0, made),))
    assert ops.explain(ops.gemm, text, device="NVIDIA H200").why == choice.TUNED


def test_tuning_on_another_card_refits_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = registry.operations()["gemm"]
    stage = next(s for s in gemm.stages if s.name == "multicast")
    slow = Constants(5.0, 1.0, 9e-7, 0.0, 1e6)
    problems = [f"{m}x{n}x{k},dtype=bf16,out=bf16" for m in (512, 4096) for n in (2048, 8192) for k in (1024, 8192)]

    def samples(device: str, operation: str) -> Any:
        if device != "another card":
            return ()
        works = [(text, cost.work_of(gemm, stage, GemmProblem.parse(text))) for text in problems]
        return tuple(("multicast", text, {}, predict(work, slow, 132).us) for text, work in works)

    monkeypatch.setattr(cost, "_tuned", samples)
    monkeypatch.setattr(cost, "_predictors", {})
    found, usual_ones = (cost.predictor(device, gemm).constants for device in ("another card", ""))
    work = cost.work_of(gemm, stage, GemmProblem.parse("2048x4096x4096,dtype=bf16,out=bf16"))
    assert work is not None
    there, usual, there_by = (predict(work, c, 132).us for c in (found["multicast"], usual_ones["multicast"], slow))
    assert there == pytest.approx(there_by, rel=0.05) and there > 4 * usual
    assert found["serpentine"] == usual_ones["serpentine"]


def test_samples_of_stages_and_problems_that_are_no_more_are_left_out() -> None:
    gemm = registry.operations()["gemm"]
    samples = [("gone", "m=1", {}, 1.0), ("persistent", "rows=1", {}, 1.0), ("persistent", "m=1", {"GONE": 1}, 1.0)]
    assert cost.fitted(gemm, samples) == {}


def test_an_explanation_names_every_stage_with_its_time_or_why_it_cannot() -> None:
    found = ops.explain(ops.gemm, "3000x3000x3000,dtype=bf16,out=bf16")
    by_name = {c.stage.name: c for c in found.candidates}
    assert found.us == by_name[found.stage.name].us and by_name[found.stage.name].refused is None
    text = str(found)
    assert (
        text.startswith(f"gemm:{found.stage.name} (")
        and "predicted by the constants of NVIDIA H200:" in text.splitlines()[0]
    )
    odd = ops.explain(ops.gemm, "3000x3000x3001,dtype=bf16,out=bf16")
    assert odd.stage.name == "realigned" and odd.us is not None
    refused = next(c.refused for c in odd.candidates if c.stage.name == "persistent")
    assert "rows of A a multiple of 16 bytes apart" in str(refused)
    assert re.search(r"persistent +- +- +a tensor map needs", str(odd))


def test_a_prediction_for_a_device_that_was_not_measured_says_whose_it_is() -> None:
    text = "3000x3000x3000,dtype=bf16,out=bf16"
    assert "; predicted: " in str(ops.explain(ops.gemm, text, device="NVIDIA H200"))
    other = str(ops.explain(ops.gemm, text, device="NVIDIA H100"))  # which is no full name
    assert "on NVIDIA H100: " in other and "; predicted by the constants of NVIDIA H200: " in other


def test_a_call_is_explained_for_its_arrays(gpu: EmulatedGpu) -> None:
    x = np.ones((40, 640), ml_dtypes.bfloat16)
    aligned = ops.explain(ops.gemm, gpu.upload(x), gpu.upload(x), trans_b=True)
    assert aligned.problem.m == 40 and aligned.device == "an emulated device"
    assert aligned.stage is ops.gemm.prepare(gpu.upload(x), gpu.upload(x), trans_b=True).stage
    apart = ops.explain(ops.gemm, gpu.upload(x, align=2), gpu.upload(x), trans_b=True)
    refused = next(c.refused for c in apart.candidates if c.stage.name == aligned.stage.name)
    assert refused == "arrays start at a multiple of 2 bytes, and have to at one of 16"
    assert not gpu.launched
    assert ops.explain(ops.softmax, gpu.upload(np.ones((3, 8), np.float32))).us is None


def test_constants_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    made = {"card": {"gemm": {"a": TRUE, "b": dataclasses.replace(TRUE, samples=7)}}}
    read = json.loads(cost.as_json(made))
    assert {name: Constants(*values) for name, values in read["card"]["gemm"].items()} == made["card"]["gemm"]
