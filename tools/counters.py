"""Compares the emulator's counters with those of a GPU, and writes reports/counters.md.

    python tools/counters.py measure FOLDER           on a machine with a GPU and ncu: FOLDER/ncu.json, in 4 minutes
    python tools/counters.py report FOLDER/ncu.json   anywhere: counts the same in the emulator and writes the page

Measured is every stage on one to three problems, and single accesses of one warp (patterns.cu), which show the rules.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.model import compact
from workbench.records import environment
from workbench.toolchain import ncu

HERE = Path(__file__).resolve().parent
PATTERNS = HERE / "patterns.cu"
PAGE = HERE.parent / "reports/counters.md"
PATTERN_BYTES = 32 * 1024
STAGE_KERNELS = "^(gemm|matvec|vector_add)_"
PATTERN_KERNELS = "^(shared|global|matrix|copy)_"

PROBLEMS = {
    "gemm": (
        "256x256x256,dtype=bf16,out=bf16,layout=nt",
        "200x136x72,dtype=fp16,out=fp32,layout=nn",
        "136x200x72,dtype=fp32,out=fp32,layout=nn",
    ),
    "matvec": ("512x2048,dtype=bf16,out=bf16", "77x1000,dtype=fp32,out=fp32"),
    "vector_add": ("65536,dtype=fp32", "100001,dtype=bf16"),
}
PERSISTENT_BLOCKS = 132
"""Blocks of a persistent launch on an H200 where a block takes a multiprocessor."""


# ----------------------------------------------------------------------------------------------------- what is launched


def pattern_places() -> Iterator[tuple[str, str, list[int]]]:
    """Kernel, name of the pattern and byte offset of each lane."""
    drawn = random.Random(1)
    lanes = range(32)
    shuffled = drawn.sample(range(128), 32)
    for size in (4, 8, 16):
        rules = {
            "side by side": [size * i for i in lanes],
            "one place": [0] * 32,
            "neighbours share": [size * (i // 2) for i in lanes],
            "lanes 2 apart share": [size * (i & ~2) for i in lanes],
            "lanes 4 apart share": [size * (i & ~4) for i in lanes],
            "four share": [size * (i // 4) for i in lanes],
            "eight share": [size * (i // 8) for i in lanes],
            "quarters alike": [size * (i % 8) for i in lanes],
            "halves alike": [size * (i % 16) for i in lanes],
            "two places": [size * 40 * (i % 2) for i in lanes],
            "stride 2": [2 * size * i for i in lanes],
            "stride 3": [3 * size * i for i in lanes],
            "stride 4": [4 * size * i for i in lanes],
            "stride 128 B": [128 * i for i in lanes],
            "stride 144 B": [144 * i for i in lanes],
            "first quarter only": [size * i if i < 8 else -1 for i in lanes],
            "first half only": [size * i if i < 16 else -1 for i in lanes],
            "even lanes only": [size * i if i % 2 == 0 else -1 for i in lanes],
            "anywhere": [size * place for place in shuffled],
        }
        for name, places in rules.items():
            yield f"shared_load_{size}", name, places
            if name not in ("four share", "eight share", "two places", "stride 4"):
                yield f"shared_store_{size}", name, places
        for name in ("side by side", "one place", "neighbours share", "quarters alike", "halves alike", "stride 2"):
            yield f"global_load_{size}", name, rules[name]
            yield f"global_store_{size}", name, rules[name]
        for name in ("stride 128 B", "anywhere", "first half only"):
            yield f"global_load_{size}", name, rules[name]
        yield f"global_load_{size}", "16 B off", [16 + size * i for i in lanes]
        if size == 4:
            for name in ("side by side", "one place", "neighbours share", "stride 2", "stride 128 B", "anywhere"):
                for kernel in ("shared_atomic_4", "global_atomic_4", "global_reduction_4"):
                    yield kernel, name, rules[name]
        if size != 8:
            for name in ("side by side", "stride 2", "stride 128 B", "anywhere", "first half only"):
                yield f"copy_{size}", name, rules[name]
    rows = {
        "side by side": [16 * i for i in lanes],
        "rows of 32 B": [32 * i for i in lanes],
        "rows of 64 B": [64 * i for i in lanes],
        "rows of 128 B": [128 * i for i in lanes],
        "rows of 144 B": [144 * i for i in lanes],
        "one row": [0] * 32,
        "one tile": [16 * (i % 8) for i in lanes],
        "swizzled": [128 * (i % 8) + 16 * ((i % 8) ^ (i // 8)) for i in lanes],
    }
    for name, places in rows.items():
        for kernel in ("matrix_load_1", "matrix_load_4", "matrix_store_4"):
            yield kernel, name, places


@dataclass(frozen=True)
class Launched:
    """A kernel launch: of a stage on a problem, or of a pattern."""

    subject: str
    case: str
    kernel: str


def stages() -> Iterator[tuple[Any, Any]]:
    """Every stage with each problem that it takes."""
    from workbench.catalogue import registry

    for stage in registry.stages():
        for text in PROBLEMS[stage.operation]:
            problem = registry.operations()[stage.operation].problem.parse(text)
            if stage.supports(problem) is None:
                yield stage, problem


def bound_stages(device: Any) -> Iterator[tuple[list[Launched], Any]]:
    """What each launch of every stage is, and the plan bound to the device."""
    from workbench.harness import Case
    from workbench.toolchain.compiler import compile_stage

    for stage, problem in stages():
        case, plan = Case.of(problem), stage.plan(problem)
        bound = device.bind(compile_stage(stage, problem), plan, case.arrays, case.storage())
        yield [Launched(stage.spec, problem.label, launch.kernel) for launch in plan.launches], bound


def launch_all(target: Path) -> None:
    """Launches everything once, in order, on the GPU. This is what ncu watches."""
    import cupy

    from workbench.devices.cuda import CudaDevice
    from workbench.toolchain.compiler import compile_source

    log: list[Launched] = []
    module = cupy.RawModule(path=str(compile_source(PATTERNS, {}).cubin_path))
    for kernel, name, places in pattern_places():
        log.append(Launched("pattern", name, kernel))
        arguments = (cupy.asarray(np.array(places, np.int32)), cupy.zeros(PATTERN_BYTES, np.uint8))
        module.get_function(kernel)((1,), (32,), arguments, shared_mem=PATTERN_BYTES)
    cupy.cuda.runtime.deviceSynchronize()
    for launched, bound in bound_stages(CudaDevice()):
        log += launched
        bound.run()
        bound.close()
    target.write_text(json.dumps([vars(each) for each in log]))


# -------------------------------------------------------------------------------------------------------------- measure

MEMORY = (
    r"l1tex__t_(requests|sectors)_pipe_lsu_mem_(global|local)_op_(ld|st|red|atom)",
    r"l1tex__t_(requests|sectors)_pipe_lsu_mem_global_op_ldgsts(_cache_(access|bypass))?",
    r"l1tex__data_pipe_lsu_wavefronts_mem_shared(_op_(ld|st|atom|red|ldgsts|ldsm))?",
    r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared(_op_(ld|st|atom|red|ldgsts|ldsm))?",
    r"smsp__inst_executed_op_(shared|global|local|ldgsts|ldsm)\w*",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "memory": MEMORY,
    "tensor": (
        r"smsp__inst_executed|smsp__thread_inst_executed|smsp__thread_inst_executed_pred_on",
        r"sm__ops_path_tensor_src_(bf16|fp16)(_dst_fp(16|32))?",
        r"smsp?__inst_executed_pipe_(tensor\w*|lsu|uniform)",
        r"smsp__inst_executed_op_branch|smsp__branch_targets\w*|smsp__sass_branch_targets\w*",
    ),
    "l2": (
        r"l1tex__m_xbar2l1tex_read_(bytes|sectors)(_mem_\w+)?",
        r"l1tex__m_l1tex2xbar_write_(bytes|sectors)(_mem_\w+)?",
        r"\w+_op_tma\w*|\w+_op_utma\w*|\w+__tma_\w+|idc__\w*tma\w*",
        r"lts__t_(sectors|requests)_srcunit_tex(_op_(read|write|red|atom))?",
    ),
    "patterns": MEMORY,
    "source": (
        r"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared(_op_\w+)?",
        r"smsp__sass_inst_executed_op_(shared|ldgsts|ldsm)\w*",
        r"smsp__sass_data_bytes_mem_shared_op_\w+",
    ),
}
"""Metrics by pattern, in the order of their worth. Each group is a run of its own, so that none spoils another."""

FALLBACK: dict[str, tuple[str, ...]] = {
    "memory": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld",
        "l1tex__t_requests_pipe_lsu_mem_global_op_st",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",
    ),
    "tensor": ("smsp__inst_executed", "smsp__thread_inst_executed", "sm__ops_path_tensor_src_bf16_dst_fp32"),
    "l2": ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld", "lts__t_sectors_srcunit_tex_op_read"),
}
"""Asked for where ncu does not list what it has."""

MOST_METRICS = 48  # of a group


def measure(folder: Path, seconds: float) -> None:
    """Runs ncu for each group of metrics, as far as the time goes; ncu.json is written anew after every group."""
    end = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    try:
        path = ncu.find()
    except ncu.NcuUnavailable as error:
        raise SystemExit(str(error)) from None
    launches, names = folder / "launches.json", []
    found: dict[str, Any] = {"ncu": ncu.run([path, "--version"], 30)[1].strip(), "groups": {}, "problems": []}
    found["environment"] = asdict(environment.describe())
    for chips in (["--chips", "gh100"], []):
        text = ncu.run([path, "--query-metrics", *chips], 40)[1]
        (folder / "metrics.txt").write_text(text)
        if names := sorted({m[1] for m in re.finditer(r"^([a-z0-9_]+__\w+)\s", text, re.M)}):
            break
    code, said = ncu.run([sys.executable, __file__, "launch", str(launches)], 120)  # compiles, and shows that it works
    if code:
        raise SystemExit(f"the kernels do not run:\n{said[-3000:]}")
    found["launches"] = json.loads(launches.read_text())
    print(f"{len(names)} metrics, {len(found['launches'])} launches, {end - time.monotonic():.0f} s left", flush=True)
    for group, patterns in GROUPS.items():
        every = [n for n in names if any(re.fullmatch(p, n) for p in patterns)] or list(FALLBACK.get(group, ()))
        if len(every) > MOST_METRICS:
            found["problems"].append(f"{group}: left out {' '.join(every[MOST_METRICS:])}")
        left = end - time.monotonic()
        if left < 10:
            found["problems"].append(f"{group}: no time left")
        else:
            kernels = PATTERN_KERNELS if group == "patterns" else STAGE_KERNELS
            chosen = [f"{name}.sum" for name in every[:MOST_METRICS]]
            measured, trouble = collect(path, chosen, kernels, folder / f"{group}.csv", launches, min(left, 80))
            found["groups"][group] = measured
            found["problems"] += trouble
            print(
                f"{group}: {len(chosen)} metrics of {len(measured)} kernels, {end - time.monotonic():.0f} s left",
                flush=True,
            )
        (folder / "ncu.json").write_text(json.dumps(found))
    print("\n".join(found["problems"]))


def collect(
    path: str, metrics: list[str], kernels: str, log: Path, launches: Path, seconds: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """The metrics of the kernels, in order of their launches, and what went wrong."""
    if not metrics:
        return [], [f"{log.stem}: ncu has none of its metrics"]
    command = [sys.executable, __file__, "launch", str(launches)]
    found, trouble = ncu.collect(path, metrics, kernels, command, log, seconds)
    return found, [f"{log.stem}: {trouble}"] if trouble else []


# --------------------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class Compared:
    """A quantity: the sum of some of the emulator's counters, and of the metrics of ncu that match a pattern."""

    name: str
    counters: str
    metrics: str


_T, _DATA = "l1tex__t_{}_pipe_lsu_mem_global_op_{}", "data_pipe_lsu_wavefronts_mem_shared"
_ATOMIC = "(atom|red)"
_GLOBAL_QUANTITIES = (
    # ncu counts what cp.async reads among the loads
    Compared("global load requests", "global_(load|copy)_requests", _T.format("requests", "ld")),
    Compared("global load sectors", "global_(load|copy)_sectors", _T.format("sectors", "ld")),
    Compared("global store requests", "global_store_requests", _T.format("requests", "st")),
    Compared("global store sectors", "global_store_sectors", _T.format("sectors", "st")),
)
STAGE_QUANTITIES = (
    *_GLOBAL_QUANTITIES,
    # by instruction: those of the whole device also count how often an access waited for TMA, wgmma or cp.async
    Compared("shared load wavefronts", "shared_load_wavefronts", f"smsp__sass_l1tex_{_DATA}_op_(ld|ldsm)"),
    Compared("shared store wavefronts", "shared_store_wavefronts", f"smsp__sass_l1tex_{_DATA}_op_(st|stsm)"),
    Compared("TMA load sectors", "bulk_load_sectors", "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld"),
    Compared("tensor operations", "tensor_operations", r"sm__ops_path_tensor_src_(bf16|fp16)_dst_fp(16|32)"),
    Compared("warp instructions", "warp_instructions", "smsp__inst_executed"),
)
PATTERN_QUANTITIES = (
    *_GLOBAL_QUANTITIES,
    Compared("shared load wavefronts", "shared_load_wavefronts", f"l1tex__{_DATA}_op_ld"),
    Compared("shared store wavefronts", "shared_store_wavefronts", f"l1tex__{_DATA}_op_st"),
    Compared("global atomic requests", "global_atomic_requests", _T.format("requests", _ATOMIC)),
    Compared("global atomic sectors", "global_atomic_sectors", _T.format("sectors", _ATOMIC)),
)


ALIKE = 0.01
"""Largest relative difference that needs no reason."""

REASONS = (
    (
        "warp instructions",
        "",
        "ptxas makes other instructions of the PTX, and warps poll barriers as often as the hardware lets them",
    ),
    (
        "shared store wavefronts",
        "gemm:(tma_pipeline|persistent|split_k|fitted_tiles|multicast|ping_pong|streamed) .* bf16",
        "ptxas joins the stores of two neighbouring 16-bit values",
    ),
    (
        "shared load wavefronts",
        "gemm:(tma_pipeline|streamed) .*200x",
        "ptxas puts loads of rows behind the test that they lie in C",
    ),
    (
        "global load requests",
        "matvec:warp_parallel",
        "ptxas unrolls the loop, and loads whose lanes are all switched off are requests without sectors",
    ),
    (
        "global load sectors",
        "gemm:cp_async",
        "a sector whose halves cp.async puts into different lines of shared memory counts twice, as in the patterns",
    ),
    ("tensor operations", "fp16", "the metric of this ncu is that of bf16"),
)
"""(quantity, launch as a regular expression, why the two differ)."""


def reason(launch: str, quantity: str, ours: float, theirs: float) -> str:
    """Why two figures differ by more than `ALIKE`; nothing where they do not."""
    if abs(ours - theirs) <= ALIKE * theirs:
        return ""
    return next((why for what, where, why in REASONS if what == quantity and re.search(where, launch)), "not known")


def matching(values: Mapping[str, float], pattern: str) -> float | None:
    """The sum of the values whose names match, None where none does."""
    found = [value for name, value in values.items() if re.fullmatch(pattern, name)]
    return sum(found) if found else None


def emulated() -> Iterator[tuple[Launched, Mapping[str, float]]]:
    """Every launch with what the emulator counts of it."""
    from workbench.devices.emulated import EmulatedDevice
    from workbench.emulator import Checks, launch, load

    program = load(PATTERNS)
    for kernel, name, places in pattern_places():
        arguments = [np.array(places, np.int32), np.zeros(PATTERN_BYTES, np.uint8)]
        options: dict[str, Any] = {"shared": PATTERN_BYTES, "checks": Checks.NONE, "counters": True}
        yield (
            Launched("pattern", name, kernel),
            launch(program, kernel, 1, 32, arguments, **options).counters.totals(),
        )
    for launched, bound in bound_stages(EmulatedDevice(counters=True, persistent_blocks=PERSISTENT_BLOCKS)):
        bound.run()
        yield from zip(launched, (each.counters.totals() for each in bound.statistics), strict=True)
        bound.close()


def metrics_of(measured: Mapping[str, Any]) -> dict[Launched, dict[str, float]]:
    """What ncu measured of every launch. Raises ValueError where its kernels are not those that were launched."""
    found = {Launched(**each): {} for each in measured["launches"]}  # type: dict[Launched, dict[str, float]]
    for group, kernels in measured["groups"].items():
        expected = [each for each in found if (each.subject == "pattern") == (group == "patterns")]
        if kernels and [k["kernel"] for k in kernels] != [each.kernel for each in expected]:
            raise ValueError(f"the kernels of the group {group} are not those that were launched")
        for each, kernel in zip(expected, kernels, strict=False):
            found[each] |= kernel["metrics"]
    return found


def difference(ours: float, theirs: float) -> str:
    """In percent of what ncu says."""
    if ours == theirs:
        return "="
    return f"{100 * (ours - theirs) / theirs:+.1f} %" if theirs else "only here"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns but the first are right-aligned."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def compared_alone(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What ncu measured, without the metrics that nothing is compared with."""
    wanted = "|".join(quantity.metrics for quantity in {*STAGE_QUANTITIES, *PATTERN_QUANTITIES})
    groups = {}
    for group, kernels in measured["groups"].items():
        groups[group] = [
            {**k, "metrics": {name: value for name, value in k["metrics"].items() if re.fullmatch(wanted, name)}}
            for k in kernels
        ]
    return {**measured, "groups": groups}


def page(measured: Mapping[str, Any]) -> str:
    """The Markdown page."""
    theirs, ours = metrics_of(measured), dict(emulated())
    rows = []
    for launched in ours:
        if launched.subject == "pattern":
            continue
        for quantity in STAGE_QUANTITIES:
            counted = matching(ours[launched], quantity.counters) or 0
            metric = matching(theirs.get(launched, {}), quantity.metrics)
            if metric is not None and (counted or metric):
                label = f"{launched.subject} `{launched.kernel}` {launched.case}"
                why = reason(label, quantity.name, counted, metric)
                shown = f"{counted:,.0f}", f"{metric:,.0f}", difference(counted, metric)
                rows.append((label, quantity.name, *shown, why))
    patterns = []
    alike = 0
    for launched in ours:
        if launched.subject != "pattern":
            continue
        for quantity in PATTERN_QUANTITIES:
            counted = matching(ours[launched], quantity.counters) or 0
            metric = matching(theirs.get(launched, {}), quantity.metrics)
            if metric is None or counted == metric:
                alike += metric is not None and metric > 0
            else:
                patterns.append((f"`{launched.kernel}` {launched.case}", quantity.name, f"{counted:g}", f"{metric:g}"))
    agree = sum(not row[-1] for row in rows)
    made = measured["environment"]
    version = measured["ncu"].splitlines()[-1] if measured["ncu"] else "unknown"
    return "\n".join(
        (
            "# Counters: the emulator and ncu on an H200\n",
            "Written by `tools/counters.py` from [the JSON beside it](counters.json.gz). Measured at commit "
            f"`{made['commit'][:12]}`, {made['date'][:10]}. ncu: {version}.\n",
            "## Stages\n",
            f"{agree} of {len(rows)} figures agree within {ALIKE:.0%}. Wavefronts of shared memory are ncu's by "
            "instruction; those of the device also count how often an access waited for TMA, wgmma or cp.async.\n",
            table(("launch", "quantity", "emulator", "ncu", "difference", "why"), rows),
            "## Single accesses of a warp\n",
            f"{alike} quantities of patterns are the same; these are not:\n",
            table(("pattern", "quantity", "emulator", "ncu"), patterns),
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("measure")
    measured.add_argument("target", type=Path)
    measured.add_argument("--seconds", type=float, default=210, help="limit of it all")
    for name in ("launch", "report"):
        commands.add_parser(name).add_argument("target", type=Path)
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.target, given.seconds)
    elif given.command == "launch":
        launch_all(given.target)
    else:
        all_of_it = json.loads(given.target.read_text())
        PAGE.write_text(page(all_of_it))
        compact.write(compared_alone(all_of_it), PAGE.with_suffix(".json.gz"))
