"""`emulate --witness`: two orders of warps in which a race gives two results, and the command that shows one again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workbench.cli.main import main

REVERSED = """__global__ void reversed(const int* x, int* y) {
    __shared__ int s[128];
    s[threadIdx.x] = x[threadIdx.x];
    BARRIER;
    y[threadIdx.x] = s[127 - threadIdx.x];
}
"""
ARGUMENTS = ("--grid", "1", "--block", "128", "--arg", "x:i32[128]=arange", "--arg", "y:i32[128]")


def emulate(source: str, *more: str) -> Result:
    Path("k.cu").write_text(source)
    return CliRunner().invoke(main, ["emulate", "k.cu", *ARGUMENTS, *more])


pytestmark = pytest.mark.usefixtures("here")


def test_witness_names_an_element_with_two_values_and_its_command_shows_the_other_one() -> None:
    result = emulate(REVERSED, "--witness", "--define", "BARRIER=")
    assert result.exit_code == 1
    said, again = result.stdout.splitlines()[-2:]
    found = said.split()
    element, other = found[1], found[-1]
    assert said.startswith("witness: y[") and found[3] != f"{other};"
    assert again.startswith("again: workbench emulate k.cu ") and "--witness" not in again
    replayed = CliRunner().invoke(main, shlex.split(again.removeprefix("again: workbench ")))
    index = int(element[2:-1])
    assert f"y[{index}:{index + 1}] = {other}" in replayed.stdout
    assert int(other) != 127 - index or found[3] != f"{127 - index};"


def test_document_has_the_witness() -> None:
    document = json.loads(emulate(REVERSED, "--witness", "--define", "BARRIER=", "--json").stdout)
    witness = document["result"]["witness"]
    assert witness["array"] == "y" and len(set(witness["values"])) == 2 and not witness["atomics"]
    assert str(127 - witness["index"]) in witness["values"]


def test_lanes_that_stay_together_have_no_witness_and_that_is_said() -> None:
    source = REVERSED.replace("127 - threadIdx.x", "threadIdx.x ^ 1")
    result = emulate(source, "--witness", "--define", "BARRIER=")
    assert result.exit_code == 1
    assert result.stdout.endswith("witness: none; in 40 other orders of warps the arrays end as in this one\n")


def test_kernel_without_a_race_needs_no_witness() -> None:
    result = emulate(REVERSED, "--witness", "--define", "BARRIER=__syncthreads()")
    assert result.exit_code == 0 and result.stdout.endswith("witness: no race was found\n")
    document = json.loads(emulate(REVERSED, "--define", "BARRIER=", "--json").stdout)
    assert document["result"]["witness"] is None


def test_orders_that_end_otherwise_are_a_witness() -> None:
    """Who reads the word too late waits for a flag that has gone by."""
    source = """__global__ void wait(const int* x, int* y) {
    __shared__ int word;
    if (threadIdx.x == 0) word = 0;
    __syncthreads();
    if (threadIdx.x == 0) word = 1;
    if (threadIdx.x >= 32 && word) asm volatile("bar.sync 1, 128;");
    y[threadIdx.x] = x[threadIdx.x];
}
"""
    ends = set()
    for order in ("1", "2", "3", "2000"):
        result = emulate(source, "--witness", "--seeds", "1", "--slice", order)
        said = result.stdout.splitlines()[-2]
        assert said.startswith("witness: the launch ends"), result.stdout
        ends |= {"deadlock" in part for part in said.split("; with --slice ")}
    assert ends == {True, False}


def test_witness_of_a_kernel_with_atomics_says_so() -> None:
    source = REVERSED.replace("BARRIER;", "BARRIER; atomicAdd(y, 0);")
    result = emulate(source, "--witness", "--define", "BARRIER=")
    assert result.stdout.splitlines()[-2] == "  the kernel has atomics, too, whose order may be the reason"


@pytest.mark.parametrize("given", ["0", "x"])
def test_slice_that_is_no_number_of_instructions_is_refused(given: str) -> None:
    result = emulate(REVERSED, "--slice", given)
    assert result.exit_code == 2 and "--slice" in result.stderr
