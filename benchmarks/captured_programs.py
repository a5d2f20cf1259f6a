"""Programs of others under `workbench capture`, without a GPU: `reports/captured-programs.md`.

    python benchmarks/captured_programs.py measure OUTPUT.json [--samples FOLDER] [--hecbench FOLDER] [--llmc FOLDER]
    python benchmarks/captured_programs.py write [OUTPUT.json]     # the page, of that file and nothing else

The folders are checkouts of NVIDIA/cuda-samples, zjin-lcf/HeCBench and karpathy/llm.c; nothing is fetched. Samples are
the first thirty in alphabetical order of folders 0, 2, 3 and 6 whose CMakeLists.txt links no library, built with nvcc's
default flags. Programs of HeCBench are built by their own Makefiles and get small arguments, those of llm.c smaller
sizes. Each program judges itself: by its exit code, and by the words PASS and FAIL where it prints them. Rows that were
measured before stay. The header of llm.c needs cuBLAS; `NVCC_APPEND_FLAGS` says where that is.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench.records import environment

RECORD = recorded.REPORTS / "captured-programs.json"
SAMPLES, HECBENCH, LLM_C = "NVIDIA/cuda-samples", "zjin-lcf/HeCBench", "karpathy/llm.c"
FIRST, WAIVED = 30, 2
ARGUMENTS = {
    "accuracy": "64 100 10 1",
    "adam": "1000 10 1",
    "atomicIntrinsics": "10 1",
    "attention": "256 64 0 1",
    "backprop": "1024",
    "bincount": "10000 1",
    "bitonic-sort": "9 2",
    "bsearch": "4096 1",
    "channelSum": "32 32 1",
    "convolution1D": "4096 1",
    "haccmk": "1",
    "reverse": "2",
    "scan": "8192 1",
    "softmax": "64 128 0 1",
}
"""Programs of HeCBench, and arguments that make them small."""
SILENT = ("bsearch",)
"""Of these, those that say nothing where they are right."""
KERNELS = {
    "classifier_fused": (1, 2, 3),
    "crossentropy_forward": (1,),
    "crossentropy_softmax_backward": (1,),
    "encoder_backward": (1, 2),
    "layernorm_forward": (1, 2, 3, 4, 5, 6),
    "permute": (0,),
    "softmax_forward": (1, 2, 3, 4, 5, 6, 7, 8),
}
"""Programs of llm.c's `dev/cuda` that do not begin with cuBLAS, and their kernels."""
SMALL = {
    r"\bB = 8;": "B = 2;",
    r"\bT = 1024;": "T = 32;",
    r"\bV = 50257;": "V = 1057;",
    r"repeat_times = \d+;": "repeat_times = 1;",
}
OPTIONS = {"mergeSort": ["--sample", "1"], "simpleStreams": ["--sample", "1"]}
"""Samples that are large and take no arguments: other launches are executed without checks."""


@dataclass
class Program:
    """What came of a program: `ended` says how it judges itself, `refused` what is not emulated."""

    suite: str
    name: str
    arguments: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    ended: str = ""
    failures: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    launches: int = 0
    cpu_seconds: float = 0.0


def samples(folder: Path) -> Iterator[Program]:
    """The samples of the issue: no library, no OpenGL."""
    listed = sorted(path for digit in "0236" for path in folder.glob(f"Samples/{digit}_*/*/CMakeLists.txt"))
    plain = [path.parent for path in listed if "target_link_libraries" not in path.read_text()]
    for path in plain[:FIRST]:
        yield Program(SAMPLES, str(path.relative_to(folder / "Samples")), options=OPTIONS.get(path.name, []))


def build(one: Program, folder: Path, target: Path) -> Path:
    """The program, and where it runs. Raises `CalledProcessError` where a compiler refuses it."""
    if one.suite == SAMPLES:
        place = folder / "Samples" / one.name
        listed = re.search(r"add_executable\(\S+\s+([^)]*)\)", (place / "CMakeLists.txt").read_text())
        sources = [path for path in listed[1].split() if path.endswith((".cu", ".cpp"))] if listed else []
        command = ["nvcc", f"-I{folder / 'Common'}", *sources, "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=place)
        return place
    if one.suite == LLM_C:
        place = folder / "dev" / "cuda"
        text = (place / f"{one.name}.cu").read_text()
        for pattern, instead in SMALL.items():
            text = re.sub(pattern, instead, text)
        source = target.with_suffix(".cu")
        source.write_text(text)
        command = ["nvcc", "-O3", "--use_fast_math", "-lineinfo", "-arch=sm_90", f"-I{place}", str(source)]
        command += ["-lcublas", "-lcublasLt", "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return target.parent
    place = folder / "src" / f"{one.name}-cuda"
    command = ["make", "-B", f"program={target}", "ARCH=sm_90", "VERIFY=yes"]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=place)
    subprocess.run(["make", "clean", f"program={target}.no"], capture_output=True, cwd=place)
    return place


def try_out(one: Program, folder: Path, seconds: float) -> None:
    """Builds a program and runs it: fills in what came of it. The limit is one of CPU time of the program's launches,
    so that other work on the machine changes nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        target, output, errors = (Path(temporary) / name for name in ("program", "output", "errors"))
        place = build(one, folder, target)
        command = [sys.executable, "-m", "workbench", "capture", "--json", *one.options, "--", str(target)]
        before = _cpu()
        with output.open("w") as out, errors.open("w") as err:
            subprocess.run(
                ["prlimit", f"--cpu={int(seconds)}", *command, *one.arguments], cwd=place, stdout=out, stderr=err
            )
        one.cpu_seconds = round(_cpu() - before, 1)
        try:
            document = json.loads(output.read_text())["result"]
        except ValueError:
            one.ended = f"not in {seconds:.0f} s"
            return
        judge(one, document, errors.read_text(errors="replace"))


def judge(one: Program, result: dict[str, Any], said: str) -> None:
    """What the document of a run and what the program has printed say."""
    one.launches = sum(result["launches"].values())
    found = [*result["findings"], *result["host"]]
    one.failures = [each["text"].splitlines()[0] for each in found if each["severity"] == "error"]
    one.refused = list(result["refused"])
    passed, failed = (len(re.findall(rf"\b(?:{words})", said)) for words in ("PASS", "FAIL|incorrect"))
    if result["exit_code"] == WAIVED and "aiv" in said:
        one.ended = "waives itself"
    elif result["exit_code"] or failed or (one.suite == HECBENCH and not passed and one.name not in SILENT):
        one.ended = f"fails, exit code {result['exit_code']}"
    else:
        one.ended = "passes"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(given: argparse.Namespace) -> None:
    """Tries all programs, or those that are named, and saves after each."""
    made = environment.describe()
    if made.dirty:
        raise SystemExit("the checkout has uncommitted changes: commit them first, so that the record names its code")
    record = recorded.read(given.file) if given.file.exists() else {"programs": []}
    record["environment"] = asdict(made)
    wanted = [(one, given.samples) for one in samples(given.samples)] if given.samples else []
    if given.llmc:
        wanted += [(Program(LLM_C, name, [str(k)]), given.llmc) for name, kernels in KERNELS.items() for k in kernels]
    if given.hecbench:
        wanted += [(Program(HECBENCH, name, how.split()), given.hecbench) for name, how in ARGUMENTS.items()]
    for one, folder in wanted:
        if given.names and Path(one.name).name not in given.names:
            continue
        try:
            try_out(one, folder.resolve(), given.seconds)
        except subprocess.CalledProcessError as error:
            one.ended = f"does not compile: {(error.stderr.splitlines() or [''])[0]}"
        key = (one.suite, one.name, one.arguments)
        kept = [row for row in record["programs"] if (row["suite"], row["name"], row["arguments"]) != key]
        record["programs"] = [*kept, asdict(one)]
        recorded.save(record, given.file)
        print(one.name, one.ended, one.cpu_seconds, "s", one.failures, one.refused, flush=True)


def page(record: recorded.Record) -> str:
    """The report."""
    programs = [Program(**row) for row in record["programs"]]
    made = record["environment"]
    lines = ["# Whole programs without a GPU", ""]
    lines += [
        "Programs of others under [`workbench capture`](../docs/capture.md). Written by "
        "`benchmarks/captured_programs.py` from [the JSON beside it](captured-programs.json), the last row at commit "
        f"`{made['commit'][:12]}`, {made['date'][:10]}. No GPU took part. Seconds are of CPU time, of all processes."
    ]
    for suite, how in HEADINGS.items():
        rows = [one for one in programs if one.suite == suite]
        passed = sum(one.ended == "passes" for one in rows)
        lines += ["", f"## {suite}", "", f"{passed} of {len(rows)} pass their own checks. {how}", ""]
        lines += [tabulate(map(_row, rows), ("program", "its own check", "found", "launches", "s"), tablefmt="github")]
    return "\n".join(lines) + "\n"


def _row(one: Program) -> tuple[str, str, str, int, float]:
    found = [f"`{text}`" for text in one.failures] + one.refused
    name = " ".join((one.name, *one.arguments, *one.options)).partition("/")
    said = "<br>".join(found).replace("|", "\\|") or ("nothing" if one.ended in ("passes", "waives itself") else "-")
    return name[2] or name[0], one.ended, said, one.launches, one.cpu_seconds


HEADINGS = {
    SAMPLES: f"They are the first {FIRST} of folders 0, 2, 3 and 6 in alphabetical order that link no library and no "
    "OpenGL, built by `nvcc` without flags. With `--sample 1` the first launch of each kernel is checked.",
    HECBENCH: "They are built by their own Makefiles for sm_90, and get small arguments.",
    LLM_C: "They are the programs of `dev/cuda` that do not begin with cuBLAS, built for sm_90 with smaller sizes: "
    "B = 2, T = 32, and V about a thousand. Each compares its kernel with its own loops on the host.",
}

if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        samples={"type": Path, "help": "a checkout of NVIDIA/cuda-samples"},
        llmc={"type": Path, "help": "a checkout of karpathy/llm.c"},
        hecbench={"type": Path, "help": "a checkout of zjin-lcf/HeCBench"},
        names={"nargs": "*", "default": [], "help": "programs; all unless given"},
        seconds={"type": float, "default": 300.0, "help": "CPU time that a program may take"},
    )
