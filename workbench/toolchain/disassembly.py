"""SASS of a cubin, through NVIDIA's disassemblers where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..model.errors import WorkbenchError

TOOLS = {"nvdisasm": ("-c", "-g"), "cuobjdump": ("-sass",)}
"""Disassemblers in order of preference, with the options that make them print SASS and no other section; nvdisasm also
names source lines."""

REMEDY = (
    "nvdisasm was not found; install it with: pip install nvidia-cuda-nvdisasm "
    "(or put the bin folder of a CUDA toolkit on PATH, or set CUDA_HOME)"
)

PACKAGED = ("nvidia/*/bin", "triton/backends/nvidia/bin")
"""Where Python packages have programs of the toolkit, below a folder of packages: NVIDIA's own, and Triton."""


class DisassemblerUnavailable(WorkbenchError, RuntimeError):
    """No disassembler was found, or it failed; the message says what to do."""


def find() -> Path | None:
    """The first disassembler that is installed; None without."""
    return next((found for tool in TOOLS if (found := toolkit_program(tool))), None)


def toolkit_program(name: str) -> Path | None:
    """A program on PATH, in a CUDA toolkit ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda) or in a Python package; None where
    it is not."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    packaged = [str(p) for place in PACKAGED for folder in sys.path for p in sorted(Path(folder).glob(place))]
    path = [os.environ.get("PATH", ""), *(str(Path(root) / "bin") for root in roots if root), *packaged]
    found = shutil.which(name, path=os.pathsep.join(path))
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
