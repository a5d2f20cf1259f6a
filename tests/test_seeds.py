"""Inputs cannot be guessed: the seed is a fresh one, which is recorded, and which a command can be given again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import invoke, said

from workbench.run import api, verifier

VERIFY = ("verify", "vector_add:naive", "--device", "emulator", "--examples", "3", "--json")


@pytest.fixture(autouse=True)
def _any_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(verifier.VARIABLE)


def verified(*arguments: str) -> dict[str, Any]:
    return said(invoke(*VERIFY, *arguments))


def test_a_command_draws_from_another_seed_each_time_and_from_one_that_is_given(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = verified(), verified()
    assert first["seed"] != second["seed"]
    again = verified("--seed", str(first["seed"]))
    for run in (first, again):
        run["stages"][0]["verification"]["seconds"] = 0
    assert again["stages"] == first["stages"]
    monkeypatch.setenv(verifier.VARIABLE, "7")
    assert verified()["seed"] == 7


def test_the_seed_is_said(here: Path) -> None:
    result = invoke(*VERIFY)
    assert f"--seed {said(result)['seed']} draws the same ones" in result.stderr


def test_python_draws_from_another_seed_each_time() -> None:
    outcomes = [api.verify("vector_add:naive", device="emulator", examples=1) for _ in range(2)]
    assert outcomes[0].run.seed != outcomes[1].run.seed
    assert api.verify("vector_add:naive", device="emulator", examples=1, seed=3).run.seed == 3


def test_a_variable_that_holds_no_seed_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(verifier.VARIABLE, "many")
    with pytest.raises(verifier.BadSeed, match="it has to be a whole number"):
        verifier.chosen(None)
