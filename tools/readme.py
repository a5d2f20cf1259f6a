"""What README.md quotes: figures of reports, a picture of `workbench demo`, what verification says of the kernel in it.

Every figure of README is in a block that this script writes from a report; `figures` has those that are not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).parent.parent
PICTURE = "docs/pictures/demo.svg"
MOST_WORDS = 900

FIGURE = re.compile(r"\d[\d.,]* ?(?:%|[µnm]?s\b|min|MB|GB|[TG]FLOP|[GT]B/s|x\b|times\b|minutes|seconds)")
"""What a figure of speed, time or size looks like."""

BLOCK = r"<!-- (\w[\w ]*) -->\n.*?<!-- end of \1 -->\n?"


def figures(readme: str) -> list[str]:
    """The figures outside of the blocks that this script writes: nobody checks them."""
    return FIGURE.findall(re.sub(BLOCK, "", readme, flags=re.DOTALL))


def why() -> str:
    """What the workbench is good for, with figures of the committed reports."""
    suites = (ROOT / "reports/suites.md").read_text()
    (ours, _), (near, shared) = (
        [[int(cell) for cell in line.split("|")[3:8]] for line in suites.splitlines() if line.startswith(f"| {name} ")]
        for name in ("executed by both", "of them with shared memory")
    )  # of the emulator and of racecheck: found, strict, missed, alarm, clean
    random = (ROOT / "reports/random-problems.md").read_text()
    mean, worst = (_cells(random, "gemm-bf16")[column] for column in (4, 6))
    peers = (ROOT / "reports/peers.md").read_text().partition("### Attention forward")[2]
    (flash,) = re.findall(r"([\d.]+) of FlashAttention-3", peers.partition("\n|")[0])
    return (
        f"- **It names the fault.** Of {sum(near[:3])} faulty kernels with shared memory of public suites it names "
        f"{sum(near[:2])}, `racecheck` {sum(shared[:2])}. It blames {ours[3]} of {sum(ours[3:])} correct ones "
        "([report](reports/suites.md)).\n"
        "- **It times only what is right,** beside a library, and keeps every sample.\n"
        "- **Its kernels are lessons,** one idea a stage, up to TMA and tensor cores. On an H200 and at random sizes, "
        f"cuBLAS takes {mean} times the time of its bf16 products (geometric mean; at worst {worst}; "
        f"[report](reports/random-problems.md)). FlashAttention-3 takes {flash} times that of its attention "
        "([report](reports/peers.md)).\n"
    )


def _cells(page: str, name: str) -> list[str]:
    """The cells of the first row of a table that begins with the name."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")][1:]


def install() -> str:
    """What it takes to install the workbench, as it was measured."""
    found = json.loads((ROOT / "reports/first-steps.json").read_text())
    minutes, size = found["install_cpu_seconds"] / 60, found["megabytes"]
    return (
        f"The install below, from a clone, takes {minutes:.1f} minutes of CPU time and {size:,} MB "
        "([measured](reports/first-steps.json)).\n"
    )


COLUMNS, CELL, LINE, MARGIN = 100, 7.8, 18, 16
"""Characters of a line, and pixels of a character, of a line and around all."""

COLOURS = {"31": "#ff7b72", "32": "#7ee787", "0": "#e6edf3"}
"""Colours by the number of their ANSI code."""

_CODE = re.compile(r"\x1b\[(\d*)m")


def lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text and the colour of each, folded to the width."""
    colour = COLOURS["0"]
    for line in text.splitlines():
        codes = _CODE.findall(line)
        colour = COLOURS.get(codes[0] or "0", colour) if codes else colour
        plain = _CODE.sub("", line)
        indent = plain[: len(plain) - len(plain.lstrip())]
        for part in textwrap.wrap(plain, COLUMNS, subsequent_indent=f"{indent}  ", drop_whitespace=False) or [""]:
            yield part, colour
        if codes:
            colour = COLOURS.get(codes[-1] or "0", colour)


def svg(command: str, text: str) -> str:
    """The picture of a terminal in which the command has printed the text, in which ANSI codes give colours."""
    shown = [(f"$ {command}", "#79c0ff"), ("", ""), *lines(text)]
    width, height = round(COLUMNS * CELL + 2 * MARGIN), len(shown) * LINE + 2 * MARGIN
    rows = (
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (number + 0.75):g}" fill="{colour}" xml:space="preserve">'
        f"{escape(line)}</text>"
        for number, (line, colour) in enumerate(shown)
        if line
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            '  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
            f"<title>What `{escape(command)}` prints</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *rows,
            "</svg>",
            "",
        ]
    )


def picture() -> str:
    """What `workbench demo` prints in a terminal, up to what to do next."""
    from workbench.cli.main import main

    shown = CliRunner().invoke(main, ["demo"], color=True)
    assert shown.exit_code == 0, shown.output
    return svg("workbench demo", shown.output.partition("\nNext:")[0])


def write_project(readme: str, folder: Path) -> None:
    """Write the files that the README shows, each below the line that ends with its name."""
    shown = re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```", readme, re.DOTALL)
    assert len(shown) == 3, [name for name, _ in shown]
    for name, text in shown:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def failure(readme: str) -> str:
    """What `workbench verify row_sum` prints of the kernel in the README, in a project that has it."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(readme, Path(folder))
        command = ["workbench", "verify", "row_sum", "--device", "emulator", "--seed", "0"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            "WORKBENCH_VERSIONS": f"{folder}/versions",
        }
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    said = done.stdout.partition("row_sum:naive: ")
    assert done.returncode == 1 and said[1], done.stdout + done.stderr
    text = (said[1] + said[2]).partition("\nkept as ")[0]
    return f"```console\n$ {' '.join(command[:-2])}\n{text}\n```\n"


def refreshed(readme: str) -> str:
    """The README with all quotations as they are now."""
    quoted = {"why": why(), "install": install(), "failure": failure(readme)}
    for name, text in quoted.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        readme, count = re.subn(pattern, lambda m, text=text: f"{m[1]}{text}{m[2]}", readme, flags=re.DOTALL)
        assert count == 1, name
    return readme
