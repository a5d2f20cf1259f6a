"""The process that NVRTC runs in: a compilation is a line of JSON on stdin, its outcome one on stdout.

Started as a script, so that it imports nothing of the workbench and nothing of what the user's program imports. It ends
when its stdin does, and also in the middle of a compilation when the pipe `alive`, whose other end only the parent has,
is closed."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


def _read_only(folders: list[str]) -> None:
    """Let nothing be read but what is in the folders, and in that of the compiler."""
    place = Path(__file__).parents[1] / "sandbox/confine.py"
    spec = importlib.util.spec_from_file_location("confine", place)
    assert spec is not None and spec.loader is not None
    confine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(confine)
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libnvrtc" in line}
    confine.read_only([*folders, *(str(Path(library).parent) for library in loaded)])


def _limit(memory: int) -> None:
    """Bytes of address space: a compilation that wants more fails here and not for lack of memory of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    with contextlib.suppress(OSError):  # when memory runs out, this process is to go and not the one with the results
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Failed(Exception):
    """NVRTC returned an error."""


def _made(returned: tuple[Any, ...]) -> Any:
    """What a function of NVRTC gives. Raises _Failed."""
    status, *values = returned
    if status.value:
        raise _Failed(status.name)
    return values[0] if values else None


def _text(program: Any, size: Any, read: Any) -> bytes:
    """What NVRTC writes into a buffer of the size that it says. Raises _Failed."""
    buffer: bytes = b" " * _made(size(program))
    _made(read(program, buffer))
    return buffer


def _compile(nvrtc: Any, task: dict[str, Any]) -> dict[str, str]:
    headers, names = ([part.encode("latin-1") for part in task[key]] for key in ("headers", "header_names"))
    text, name, flags = task["text"].encode(), task["name"].encode(), [flag.encode() for flag in task["flags"]]
    program = _made(nvrtc.nvrtcCreateProgram(text, name, len(headers), headers, names))
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0].value
        said = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = said.rstrip(b"\0").decode(errors="replace")
        if failed:
            return {"failed": log}
        ptx = _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0")
        assembled = not any(flag.startswith("-arch=compute_") for flag in task["flags"])  # and no value of a macro
        cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if assembled else b""
        return {"ptx": ptx.decode(), "cubin": base64.b64encode(cubin).decode(), "log": log}
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def main() -> None:
    alive, memory = int(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    from cuda.bindings import nvrtc  # a third of the time that CuPy, which has it too, takes to load

    _limit(memory)
    if folders := sys.argv[3:]:
        nvrtc.nvrtcVersion()  # which loads it
        _read_only(folders)
    for line in sys.stdin:
        try:
            answer = _compile(nvrtc, json.loads(line))
        except MemoryError:
            answer = {"memory": ""}
        except Exception as error:
            answer = {"broken": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
