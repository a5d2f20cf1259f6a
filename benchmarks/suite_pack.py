"""The cases of `benchmarks/suites.py` for a machine with a GPU, where `suite_tools.py` runs them under other tools.

    python benchmarks/suite_pack.py FOLDER SNAPSHOTS

FOLDER gets `cases.json`: of each case the cubins that NVRTC makes, and the launches and arrays that the emulator is
given. Programs are copied. Cases that do not compile are left out, and those of Triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from suite_cases import PRELUDE, SUITES, Case, document_of

from workbench.emulator import compiler, standalone
from workbench.emulator.launch_checks import StructBytes
from workbench.emulator.memory import Allocation


class Packed(BaseException):
    """Ends a command as soon as it is known what would be launched."""


class _Recording:
    """NVRTC, which keeps the cubin and the PTX of what it has compiled last."""

    cubin, ptx = b"", b""

    def __init__(self, nvrtc: Any) -> None:
        self._nvrtc = nvrtc

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvrtc, name)

    def getPTX(self, program: Any) -> Any:  # noqa: N802, the name of NVRTC's own
        _Recording.cubin, _Recording.ptx = self._nvrtc.getCUBIN(program), self._nvrtc.getPTX(program)
        return _Recording.ptx


def kept(folder: Path, content: bytes) -> str:
    """The name of a file with this content."""
    name = hashlib.sha256(content).hexdigest()[:16]
    (folder / name).write_bytes(content)
    return name


def described(folder: Path, kernel: Any, grid: Any, block: Any, arguments: list[Any], **asked: Any) -> dict[str, Any]:
    """A launch as `suite_tools.launch` takes it. An array is given as its bytes, and a file, `zero` or `none`."""
    shape = [extent for one in (grid, block) for extent in (*((one,) if isinstance(one, int) else one), 1, 1)[:3]]
    arrays = [array for array in asked["memory"].allocations if array.nbytes and array.address]
    filled, parameters = [], []
    for array in arrays:
        unset = array.written is not None and not array.written.any()
        what = "none" if unset else kept(folder, array.data.tobytes()) if array.data.any() else "zero"
        filled.append([array.nbytes, what])
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        if isinstance(value, Allocation):
            raw = value.address.to_bytes(8, "little")
        elif isinstance(value, StructBytes | bytes):
            raw = value.raw if isinstance(value, StructBytes) else value
        elif isinstance(value, float):
            raw = struct.pack("<f" if parameter.size == 4 else "<d", value)
        else:
            raw = (int(value) % 2 ** (8 * parameter.size)).to_bytes(parameter.size, "little")
        held = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw) - 7, 8)]
        points = [
            [8 * at, k] for at, address in enumerate(held) for k, one in enumerate(arrays) if one.address == address
        ]
        parameters.append([raw.hex(), points])
    return {
        "cubin": kept(folder, _Recording.cubin),
        "entry": kernel.name,
        "shape": [*shape, asked.get("shared_bytes", 0), int(kernel.cooperative)],
        "arrays": filled,
        "parameters": parameters,
    }


def _pack(case: Case, options: list[str], folder: Path, answer: Any) -> None:
    """In a process of its own: the launches of a case, and whether its kernel has an array in shared memory."""
    launches: list[dict[str, Any]] = []
    load = compiler.load_nvrtc
    compiler.load_nvrtc = lambda: _Recording(load())

    def instead(kernel: Any, grid: Any, block: Any, arguments: list[Any], **asked: Any) -> Any:
        launches.append(described(folder, kernel, grid, block, arguments, **asked))
        raise Packed

    standalone.prepare = instead  # type: ignore
    for launch in case.launches:
        with contextlib.suppress(Packed):
            document_of(["emulate", str(case.file), *launch, *options])
    distinct = [one for k, one in enumerate(launches) if one not in launches[:k]]
    answer.send({"launches": distinct, "shared": b".shared" in _Recording.ptx} if distinct else None)


def packed(case: Case, options: list[str], folder: Path) -> dict[str, Any] | None:
    """What a machine with a GPU has to run, and files for it in the folder."""
    if case.left_out or case.file.suffix == ".py":
        return None
    if case.build:
        target = Path(case.launches[0][3])
        built = subprocess.run([*case.build, "LDFLAGS=-cudart static"], cwd=case.file.parent, capture_output=True)
        if built.returncode:
            return None
        shutil.copy(target, folder / target.name)
        return {"program": [f"./{target.name}", *case.launches[0][4:]], "shared": False}
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_pack, args=(case, options, folder, sender))
    process.start()
    sender.close()
    made = None
    with contextlib.suppress(EOFError):
        made = receiver.recv()
    process.join()
    return made


def main() -> None:
    folder, snapshots = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        prelude = Path(temporary) / "annotations.h"
        prelude.write_text(PRELUDE)
        for name, suite in SUITES.items():
            made = Path(temporary) / name
            made.mkdir()
            options = [*suite.options, f"--option=--pre-include={prelude}"] if suite.options else []
            for case in suite.cases(snapshots / suite.repository.rpartition("/")[2], made):
                if row := packed(case, options, folder):
                    rows.append({"suite": name, "case": case.name, "kinds": sorted(case.kinds), **row})
    (folder / "cases.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
