"""Nsight Compute: what the hardware counts of kernels that a command launches."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model.errors import WorkbenchError


class NcuUnavailable(WorkbenchError, RuntimeError):
    """ncu is not installed; the message says what to do."""


def find() -> str:
    """The path of ncu. Raises NcuUnavailable."""
    found = shutil.which("ncu")
    others = [*Path("/usr/local").glob("cuda*/bin/ncu"), *Path("/opt/nvidia/nsight-compute").glob("*/ncu")]
    if found is None and not others:
        raise NcuUnavailable("there is no ncu: put Nsight Compute on the PATH")
    return found or str(sorted(others)[-1])


def run(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit code and all output of a command; 124 where it, and what it has started, had to be ended after `seconds`."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, text=True, start_new_session=True, **streams)
    try:
        said = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, process.communicate()[0]
    return process.returncode, said


def collect(
    path: str,
    metrics: Sequence[str],
    kernels: str,
    command: Sequence[str],
    log: Path,
    seconds: float,
    *,
    flush: bool = False,
) -> tuple[list[dict[str, Any]], str]:
    """The metrics of all kernels whose names match that a command launches, in order, and what went wrong, or nothing.

    `path` is that of ncu, `log` the file that it writes. With `flush` no kernel finds anything in the caches."""
    asked = [path, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
    asked += ["--cache-control", "all" if flush else "none", "--clock-control", "none"]
    asked += ["--kernel-name-base", "function", "--kernel-name", f"regex:{kernels}", "--metrics", ",".join(metrics)]
    code, said = run([*asked, *command], seconds)
    text = log.read_text() if log.exists() else ""
    if "ERR_NVGPUCTRPERM" in said + text:
        return [], "this user may not read the GPU's counters (ERR_NVGPUCTRPERM); ask for it, or be root"
    return parse(text), f"ncu ended with {code}: {(said + text)[-600:]}" if code else ""


def parse(text: str) -> list[dict[str, Any]]:
    """Kernels of ncu's raw page as CSV: name, grid and metrics. What is not a number is left out."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels = []
    for row in csv.DictReader(lines[start:]):
        if not (row["ID"] or "").isdigit():
            continue  # the row of units
        metrics = {}
        for name, value in row.items():
            if isinstance(name, str) and "__" in name and isinstance(value, str):
                try:
                    metrics[name.removesuffix(".sum")] = float(value.replace(",", ""))
                except ValueError:
                    continue
        kernels.append({"kernel": row["Kernel Name"], "grid": row.get("Grid Size"), "metrics": metrics})
    return kernels
