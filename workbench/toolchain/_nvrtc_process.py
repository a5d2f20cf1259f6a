"""The process that NVRTC runs in: a compilation is a line of JSON on stdin, its outcome one on stdout.

Started as a script, so that it imports nothing of the workbench and nothing of what the user's program imports. It ends
when its stdin does, and also in the middle of a compilation when the pipe `alive`, whose other end only the parent has,
is closed.
"""

from __future__ import annotations

import base64
import contextlib
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


def _limit(memory: int) -> None:
    """Bytes of address space: a compilation that wants more fails here and not for lack of memory of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    with contextlib.suppress(OSError):  # when memory runs out, this process is to go and not the one with the results
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _compile(nvrtc: Any, task: dict[str, Any]) -> dict[str, str]:
    headers, names = ([part.encode("latin-1") for part in task[key]] for key in ("headers", "header_names"))
    program = nvrtc.createProgram(task["text"], task["name"], headers, names)
    try:
        try:
            nvrtc.compileProgram(program, task["flags"])
        except nvrtc.NVRTCError:
            return {"failed": nvrtc.getProgramLog(program)}
        ptx = nvrtc.getPTX(program)
        text = (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")
        # CuPy takes the cubin for a string and drops its last byte; the driver does not mind, nvdisasm does
        assembled = not any(flag.startswith("-arch=compute_") for flag in task["flags"])  # and no value of a macro
        cubin = base64.b64encode(nvrtc.getCUBIN(program) + b"\0").decode() if assembled else ""
        return {"ptx": text, "cubin": cubin, "log": nvrtc.getProgramLog(program)}
    finally:
        nvrtc.destroyProgram(program)


def main() -> None:
    alive, memory = int(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    from cupy.cuda import nvrtc

    _limit(memory)
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
