"""Public files of CUDA as they are: which of them the emulator loads, launches and finds clean, and why not the others.

    python benchmarks/public_files.py FOLDER [NAME ...]
    python benchmarks/public_files.py --rest FOLDER    # those that have not ended a launch before
    python benchmarks/public_files.py --page    # of what has been tried, with what the list says of findings by now

FOLDER has snapshots of the repositories in `public_files.txt`, each in a folder `owner+name`. Of each file the first
launch that `workbench check` proposes is emulated; where a file has none, the example of `workbench emulate`. Of a
launch that takes too long only whether it loads is told. Nothing is fetched. NAME: files whose path has it; without one
the report is written.

A line of the list is `repository commit path`, and behind a tab what has been found by reading where a launch has a
finding: `assumed`, when sizes or values are to blame that were proposed, or `fault` with the reason; `refused` says why
a file does not load.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tabulate import tabulate

LIST = Path(__file__).with_suffix(".txt")
REPORTS = Path(__file__).resolve().parents[1] / "reports"
SLOW = "ran for longer than"

_MOST_KERNELS, _SECONDS, _PATIENCE = 1, 10, 45


@dataclass
class Tried:
    """A file, and what came of it: kernels tried, loaded and launched, findings, and the first reason why not."""

    repository: str
    commit: str
    path: str
    read: str
    tried: int = 0
    loaded: int = 0
    launched: int = 0
    findings: list[str] = field(default_factory=list)
    why: str = ""

    @property
    def ended(self) -> bool:
        """Whether a launch came to its end in the time that it had."""
        return self.launched > 0 and not any(found.startswith("budget") or SLOW in found for found in self.findings)

    @property
    def clean(self) -> bool:
        """Whether it ended without a finding."""
        return self.ended and not self.findings


def listed() -> Iterator[Tried]:
    """The files of the list."""
    for line in LIST.read_text().splitlines():
        words, _, read = line.partition("\t")
        if words and not words.startswith("#"):
            yield Tried(*words.split(" ", 2), read)


def command(words: list[str]) -> tuple[dict[str, Any], str]:
    """The document that a command of the workbench prints with --json, and what it says beside it."""
    from workbench.cli import main as cli

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main([*words, "--json"], standalone_mode=False)
        except SystemExit:
            pass
        except Exception as error:  # what click would print
            err.write(str(getattr(error, "message", error)))
    try:
        return json.loads(out.getvalue()), err.getvalue()
    except ValueError:
        return {}, err.getvalue()


def proposals(path: Path) -> tuple[list[list[str]], str]:
    """Commands that the workbench proposes for a file, one a kernel; without any, why."""
    document, said = command(["check", str(path)])
    found = [launch["command"] for launch in (document.get("result") or {}).get("launches", [])]
    if not found:
        _, said = command(["emulate", str(path)])
        found = [line.strip() for line in said.splitlines() if line.strip().startswith("workbench emulate")]
    by_kernel = {words[words.index("--entry") + 1]: words[1:] for words in map(shlex.split, reversed(found))}
    return list(reversed(by_kernel.values())), said


def try_out(one: Tried, path: Path) -> None:
    """Fills in what comes of a file."""
    commands, said = proposals(path)
    if not commands:
        one.why = _first_line(said)
    for words in commands[:_MOST_KERNELS]:
        one.tried += 1
        document, said = command([*words, "--max-seconds", str(_SECONDS), "--seeds", "1", "--as-compiled"])
        found = [f for verdict in document.get("verdicts") or [] for f in verdict["findings"]]
        failed = (document.get("error") or {}).get("message", said)
        if document.get("result"):
            one.loaded, one.launched = one.loaded + 1, one.launched + 1
            one.findings += [_said(f) for f in found if f.get("severity") == "error"][:2]
            continue
        one.why = one.why or _first_line(failed)


def load(one: Tried, path: Path) -> None:
    """Only whether the first kernel loads."""
    from workbench import emulator

    for words in proposals(path)[0][:1]:
        one.tried, entry = 1, words[words.index("--entry") + 1]
        given = dict(part.split("=") for at, part in enumerate(words) if words[at - 1] == "--define")
        try:
            one.loaded = int(bool(list(emulator.load(path, entry=entry, defines=given).entries)))
        except (emulator.CompileError, emulator.UnsupportedInstruction, emulator.PtxSyntaxError) as error:
            one.why = _first_line(str(error))


def _said(finding: dict[str, Any]) -> str:
    return re.sub(r"(?:[^\s/]*/)+(?=[\w.-]+\.cuh?:)", "", f"{finding['code']}: {finding['message']}")


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines() or [""]
    return re.sub(r"(/[\w.+-]+)+/", "", lines[0])[:160].replace("|", "\\|")


def page(files: list[Tried]) -> str:
    """The report."""
    load, ended, clean = (sum(map(bool, of)) for of in zip(*((f.loaded, f.ended, f.clean) for f in files), strict=True))
    read = Counter(one.read.partition(":")[0] for one in files if one.ended and not one.clean)
    rows = [
        (
            f"[{one.path}](https://github.com/{one.repository}/blob/{one.commit}/{quote(one.path)})",
            "yes" if one.loaded else "no",
            "clean" if one.clean else "finding" if one.ended else "no",
            one.read or ("; ".join(one.findings)[:160] if one.ended else one.why or "takes too long"),
        )
        for one in files
    ]
    return "\n".join(
        [
            "# Public files of CUDA, as they are",
            "",
            f"`benchmarks/public_files.py` has tried {len(files)} files of {len({one.repository for one in files})} "
            "repositories, with the launches that `workbench check` proposes for them and `--as-compiled`. "
            f"{load} load, {ended} end a launch in {_SECONDS} s, {clean} of them without a finding.",
            "",
            f"Findings have been read: {read['assumed']} files have some because of sizes and values that were assumed "
            f"where the file does not say them, {read['fault']} because of a fault; {read['']} have not been read.",
            "",
            tabulate(rows, ("file", "loads", "launched", "why not"), tablefmt="github"),
            "",
        ]
    )


def main() -> None:
    rest = sys.argv[1] == "--rest"
    folder, names = Path(sys.argv[1 + rest]).resolve(), sys.argv[2 + rest :]
    before = recorded() if rest else []
    ended = {(one.repository, one.commit, one.path): one for one in before if one.ended}
    files = []
    for one in listed():
        if known := ended.get((one.repository, one.commit, one.path)):
            files.append(known)
            continue
        path = folder / one.repository.replace("/", "+") / one.path
        if names and not any(name in str(path) for name in names):
            continue
        tried = child("--one", path) or {}
        if not tried.get("launched"):  # perhaps since nobody knows its arguments
            tried |= {key: value for key, value in (child("--load", path) or {}).items() if value}
        for key, value in tried.items():
            setattr(one, key, value)
        if not one.launched and not one.why:
            one.why = f"takes longer than {_PATIENCE} s"
        files.append(one)
        if not names:
            (REPORTS / "public-files.json").write_text(json.dumps([asdict(one) for one in files], indent=1) + "\n")
            (REPORTS / "public-files.md").write_text(page(files))
        print(one.loaded, one.launched, one.clean, one.path, one.findings or one.why, flush=True)


def child(how: str, path: Path) -> dict[str, Any] | None:
    """What a process of its own finds: what a file leaves behind is no matter of the next. None: it takes too long."""
    words = [sys.executable, __file__, how, str(path)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, cwd=os.sep)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout) if done.returncode == 0 else {"why": _first_line(done.stderr)}


def again() -> None:
    """Writes the page of what has been tried."""
    (REPORTS / "public-files.md").write_text(page(recorded()))


def recorded() -> list[Tried]:
    """What has been tried, and what the list says of it by now."""
    read = {(one.repository, one.path): one.read for one in listed()}
    tried = [Tried(**found) for found in json.loads((REPORTS / "public-files.json").read_text())]
    return [replace(one, read=read.get((one.repository, one.path), "")) for one in tried]


def _one() -> None:
    tried = Tried("", "", "", "")
    (try_out if sys.argv[1] == "--one" else load)(tried, Path(sys.argv[2]))
    found = asdict(tried)
    json.dump({key: found[key] for key in ("tried", "loaded", "launched", "findings", "why")}, sys.stdout)


if __name__ == "__main__":
    {"--one": _one, "--load": _one, "--page": again}.get(sys.argv[1], main)()
