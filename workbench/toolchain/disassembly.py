"""SASS of a cubin, through NVIDIA's disassemblers where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..model.errors import WorkbenchError

TOOLS = {"nvdisasm": (), "cuobjdump": ("-sass",)}
"""Disassemblers in order of preference, with the options that make them print SASS."""

REMEDY = (
    "nvdisasm was not found; it comes with the CUDA toolkit (put its bin folder on PATH or set CUDA_HOME), "
    "or with: conda install -c nvidia cuda-nvdisasm"
)


class DisassemblerUnavailable(WorkbenchError, RuntimeError):
    """No disassembler was found, or it failed; the message says what to do."""


def find() -> Path | None:
    """The first disassembler that is installed; None without."""
    return next((found for tool in TOOLS if (found := toolkit_program(tool))), None)


def toolkit_program(name: str) -> Path | None:
    """A program on PATH or in a CUDA toolkit ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda); None where it is not."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *(str(Path(root) / "bin") for root in roots if root)])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def sass(cubin: Path) -> str:
    """The SASS of a cubin file. Raises DisassemblerUnavailable."""
    tool = find()
    if tool is None:
        raise DisassemblerUnavailable(REMEDY)
    done = subprocess.run([tool, *TOOLS[tool.name], cubin], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DisassemblerUnavailable(f"{tool} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
