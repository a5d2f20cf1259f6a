"""`workbench mcp`: what a programming agent needs, as a server of the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..model.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

SECONDS = 600.0
"""Longest that a tool may take."""

INSTRUCTIONS = """Verify CUDA kernels without a GPU. `emulate` executes any .cu, .ptx or Triton file and names its
hazards; `verify` checks a stage of a project against NumPy on random problems. Each tool returns the document of the
command of the same name: look at `error`, then at `verdicts`: `code`, `message`, `advice`, `file`, `line`, `reward`.
Mend the named line and ask again. `profile` counts what each line executes, `inspect` shows registers and spills,
`diff` compares two stages."""


class McpMissing(WorkbenchError):
    """The SDK of the Model Context Protocol is not installed; the message says how to install it."""


def document(folder: Path, *arguments: str, seconds: float = SECONDS) -> dict[str, Any]:
    """The document of a command that is executed in a folder; one with an error where there is none in time."""
    command = [sys.executable, "-m", "workbench", arguments[0], "--json", *arguments[1:]]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return _failed(arguments[0], f"it was stopped after {seconds:g} s")
    except ValueError:
        return _failed(arguments[0], done.stderr[-2000:])
    return found


def _failed(command: str, message: str) -> dict[str, Any]:
    error = {"code": "no_document", "message": message, "remedy": "", "file": "", "line": 0}
    return {"command": command, "ok": False, "exit_code": 1, "error": error, "verdicts": [], "result": None}


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [f"{option}={value}" for value in values]


def server(folder: Path) -> MCPServer:
    """The server of a folder: of a project, or of any other with kernels. Raises McpMissing."""
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        raise McpMissing(
            "the SDK of the Model Context Protocol is not installed; install it with: "
            "pip install 'kernel-workbench[mcp]'"
        ) from None
    made = MCPServer("workbench", instructions=INSTRUCTIONS, version=__version__)

    @made.tool()
    def emulate(
        file: str, entry: str = "", grid: str = "", block: str = "", arguments: Sequence[str] = (), strict: bool = False
    ) -> dict[str, Any]:
        """Execute a kernel of a .cu or .ptx file on the CPU and name its hazards; a .py file launches Triton's itself.

        `grid` and `block` are "X[,Y[,Z]]", `arguments` those of the kernel in order, such as "x:f32[50]=arange",
        "y:f32[50]", "i32=50". Without `grid` the kernels of the file are listed. `strict` also fails for what PTX does
        not promise."""
        if file.endswith(".py"):
            return document(folder, "emulate", "--triton", *["--strict"] * strict, "--", file)
        sizes = [f"--{name}={value}" for name, value in (("entry", entry), ("grid", grid), ("block", block)) if value]
        return document(folder, "emulate", *sizes, *_each("--arg", arguments), *["--strict"] * strict, "--", file)

    @made.tool()
    def verify(
        spec: str, examples: int = 50, device: str = "emulator", problem: str = "", strict: bool = False
    ) -> dict[str, Any]:
        """Check a stage (`operation:stage`) or all of an operation against NumPy, on random problems or on one.
        `strict` also fails for conditions that no problem has tried both ways."""
        chosen = [*_each("--problem", [problem] if problem else []), *["--strict"] * strict]
        return document(folder, "verify", f"--examples={examples}", f"--device={device}", *chosen, "--", spec)

    @made.tool()
    def profile(spec: str, problem: str = "") -> dict[str, Any]:
        """Count what every source line of a stage executes, and what it asks of memory."""
        return document(folder, "profile", *_each("--problem", [problem] if problem else []), "--", spec)

    @made.tool()
    def inspect(spec: str, problem: str = "") -> dict[str, Any]:
        """Registers, shared memory, spills and occupancy of the kernels of a stage."""
        return document(folder, "inspect", *_each("--problem", [problem] if problem else []), "--", spec)

    @made.tool()
    def diff(before: str, after: str = "") -> dict[str, Any]:
        """Two stages side by side: sources, instructions, resources, times. One alone is compared with its parent."""
        return document(folder, "diff", "--", before, *([after] if after else []))

    return made


@click.command()
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", help="Of the kernels."
)
def mcp(folder: Path) -> None:
    """Serve tools for programming agents: the Model Context Protocol on stdin and stdout.

    The tools are emulate, verify, profile, inspect and diff. Each returns the document of the command with --json."""
    server(folder.resolve()).run()
