"""`workbench emulate` with launches that overlap: --stream and --programmatic."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import invoke

SOURCE = """
extern "C" __global__ void first(float* y) { y[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void second(const float* y, float* z) {
    z[threadIdx.x] = y[31 - threadIdx.x];
}
"""
FIRST = ("kernels.cu", "--entry", "first", "--grid", "1", "--block", "32", "--arg", "y:f32[32]")
SECOND = "second --grid 1 --block 32 --arg y --arg z:f32[32]"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--then", SECOND), None),
        (("--stream", "1", "--then", SECOND), None),
        (("--stream", "1", "--programmatic", "--then", SECOND), "does not come after a wait for first"),
        (("--then", f"{SECOND} --stream 1 --programmatic"), "does not come after a wait for first"),
        (("--then", f"{SECOND} --programmatic"), "does not come after a wait for first"),
        (("--stream", "1", "--then", f"{SECOND} --stream 2"), "nothing orders the two"),
        (("--then", f"{SECOND} --stream 2"), None),
    ],
)
def test_launches_overlap_as_the_options_say(here: Path, given: tuple[str, ...], said: str | None) -> None:
    Path("kernels.cu").write_text(SOURCE)
    result = invoke("emulate", *FIRST, *given)
    assert result.exit_code == (said is not None), result.output
    assert said is None or ("kernels.cu:4: race" in result.stdout and said in result.stdout)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--programmatic",), "--programmatic is about launches behind the first one"),
        (
            ("--stream", "1", "--then", f"{SECOND} --stream 2 --programmatic"),
            "no launch is before second in stream 2; give both one --stream",
        ),
    ],
)
def test_programmatic_launch_without_one_before_it_is_refused(here: Path, given: tuple[str, ...], said: str) -> None:
    Path("kernels.cu").write_text(SOURCE)
    result = invoke("emulate", *FIRST, *given)
    assert result.exit_code == 2 and said in result.output


def test_page_quotes_what_its_kernels_are_told(here: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "launches.md").read_text()
    right, early, three = re.findall("```cuda\n(.*?)```", page, re.DOTALL)
    command, *shown = re.findall("```console\n\\$ workbench (.*?)\n(.*?)```", page, re.DOTALL)[0]
    Path("pair.cu").write_text(right)
    assert invoke(*shlex.split(command)).stdout == shown[0]
    Path("pair.cu").write_text(right[: right.index('extern "C" __global__ void reverse')] + early)
    Path("three.cu").write_text(three)
    launch = "--grid 2 --block 256 --arg"
    steps = f"{launch} x:f32[512]=random --arg y:f32[512] --then 'clear {launch} sum:f32[1]'"
    steps += f" --then 'total {launch} y --arg sum'"
    third = f"emulate three.cu --entry scale --stream 1 --programmatic {steps}"
    for given, quoted in zip((command, third), re.findall("```text\n(.*?)```", page, re.DOTALL), strict=True):
        assert quoted in invoke(*shlex.split(given)).stdout
