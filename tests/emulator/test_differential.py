"""The comparison with a GPU: what it says of a device that errs or refuses, and that a real one agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import Array, Kernel
from cases import cases
from differential import compare_case, main, run_batch
from forms import Form, forms_of
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
    assert {r["status"] for r in json.loads(out.read_text())["forms"]} == {"within"}
    assert main(["report", str(out), "--out", str(page)]) == 0
    assert "mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64" in page.read_text()


@pytest.mark.gpu
def test_the_device_agrees_on_every_form(tmp_path: Path) -> None:
    assert main(["run", "--out", str(tmp_path / "found.json")]) == 0
