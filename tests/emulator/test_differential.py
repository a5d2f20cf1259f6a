"""The comparison with a GPU: what it says of a device that errs or refuses, and that a real one agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import differential
import numpy as np
import pytest
from batches import Array, Kernel, operands_of
from cases import cases
from differential import compare_case, main, rules_followed, run_batch
from differential_report import flushed_by
from form import Form
from forms import forms_of
from machines import Emulated, Rejected

COUNT = 256
ADDITION, RECIPROCAL = forms_of("add.f32")[0], forms_of("rcp.approx.f32")[0]


class Erring(Emulated):
    """Every result array has one bit flipped in one element."""

    def run(self, kernel: Kernel) -> list[Array]:
        results = super().run(kernel)
        for array in results:
            array.reshape(-1).view(np.uint8)[3] ^= 0x40
        return results


class Refusing(Emulated):
    """Complains about instructions that do not exist, as the driver's assembler does."""

    def run(self, kernel: Kernel) -> list[Array]:
        lines = [n for n, line in enumerate(kernel.text.splitlines(), 1) if "add.f33" in line]
        if lines:
            raise Rejected("\n".join(f"ptxas, line {n}; error   : no such thing as '.f33'" for n in lines))
        return super().run(kernel)


def records(forms: list[Form], machine: Any) -> dict[str, dict[str, Any]]:
    found = run_batch(forms, COUNT, 1, machine, Emulated())
    return {record["body"]: record for record in found if "status" in record}


def test_a_device_that_agrees() -> None:
    record = records([ADDITION], Emulated())[ADDITION.body]
    assert (record["status"], record["count"], record["mismatches"]) == ("equal", COUNT, 0)
    record = records([RECIPROCAL], Emulated())[RECIPROCAL.body]
    assert (record["status"], record["mismatches"], record["bound"]) == ("within", 0, "1 ulp")


@pytest.mark.parametrize("form", [ADDITION, RECIPROCAL])
def test_one_wrong_bit_is_a_difference(form: Form) -> None:
    record = records([form], Erring())[form.body]
    assert (record["status"], record["mismatches"]) == ("different", 1)
    assert record["examples"][0]["device"] != record["examples"][0]["emulator"]


@pytest.mark.parametrize("group", ["shuffles", "mma of doubles"])
def test_one_wrong_bit_of_a_launch_is_a_difference(group: str) -> None:
    case = next(iter(cases(group, 1)))
    emulated = Emulated().run(case.kernel)
    assert compare_case(case, emulated, emulated)["mismatches"] == 0
    assert compare_case(case, emulated, Erring().run(case.kernel))["status"] == "different"


def test_what_the_assembler_refuses_is_left_out_of_a_kernel_of_many() -> None:
    bad = Form("add.f32", "add.f33 %x, %a, %b;", ("f32", "f32"), ("f32",), ADDITION.define)
    found = records([ADDITION, bad, forms_of("mul.f32")[0]], Refusing())
    assert [r["status"] for r in found.values()] == ["rejected", "equal", "equal"]
    assert found[bad.body]["error"] == "no such thing as '.f33'"


def test_a_run_and_its_report(tmp_path: Path) -> None:
    out, page = tmp_path / "found.json", tmp_path / "found.md"
    arguments = [
        "--count",
        str(COUNT),
        "--size",
        "1",
        "--jobs",
        "1",
        "--machine",
        "emulator",
        "--only",
        "mma of doubles",
    ]
    assert main(["run", "--out", str(out), *arguments]) == 0
    assert {r["status"] for r in json.loads(out.read_text())["forms"]} == {"equal", "within"}
    assert main(["report", str(out), "--out", str(page)]) == 0
    whole, *floats = (line for line in page.read_text().splitlines() if line.startswith("| `mma.sync` |"))
    assert "bit-equal" in whole and all("within the bound" in row for row in floats)
    assert [f"2^{n} of the sum of magnitudes" in row for n, row in zip((-48, -49, -50), floats, strict=True)]


def test_a_difference_is_listed_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, page = tmp_path / "found.json", tmp_path / "found.md"
    wrong = {"count": 8, "mismatches": 1, "status": "different", "examples": [{"emulator": ["0x1"], "device": ["0x0"]}]}
    known = {**wrong, "operation": "ex2.approx.f16", "body": "ex2.approx.f16 %x, %a;"}
    unknown = {**wrong, "operation": "add.f32", "body": "add.f32 %x, %a, %b;"}
    monkeypatch.setattr(differential, "group_names", lambda: ["one"])
    for records, status in ([known], 0), ([known, unknown], 1):
        monkeypatch.setattr(differential, "supervise", lambda *_, records=records: [dict(r) for r in records])
        assert main(["run", "--machine", "emulator", "--out", str(found)]) == status
        made = {"commit": "0123456789abcdef", "date": "2026-01-02T03:04:05Z"}
        found.write_text(json.dumps({"environment": made, "device": "one", "seconds": 1, "forms": records}))
        assert main(["report", str(found), "--out", str(page)]) == status
    rows = [line for line in page.read_text().splitlines() if "%x" in line]
    assert "smallest subnormal" in rows[0] and rows[1].endswith("| not known |") and "device: 0x0" in rows[1]


@pytest.mark.parametrize("operation", ["mul.rp.ftz.f32", "fma.rn.ftz.f16x2", "cvt.rn.ftz.f32.f64"])
def test_what_a_device_flushes_tells_its_rule(operation: str) -> None:
    (form,) = forms_of(operation)
    arrays = operands_of(form, COUNT, 1)
    for rule, define in form.flushes.items():
        device = np.array([define(*row) for row in zip(*(a.tolist() for a in arrays), strict=True)])
        followed = rules_followed(form, arrays, device)
        assert followed[rule] > max(count for other, count in followed.items() if other != rule)
    (sentence,) = flushed_by([{"operation": operation, "flushes": {"before rounding": 2, "after rounding": 0}}])
    assert "before rounding in 2 results, after rounding in 0 results" in sentence


@pytest.mark.gpu
def test_the_device_agrees_on_every_form(tmp_path: Path) -> None:
    assert main(["run", "--out", str(tmp_path / "found.json")]) == 0
