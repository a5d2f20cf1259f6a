"""Which stages there are, what they use on the device, and where they were run."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

from ...catalogue import registry
from ...model.origin import BUILT_IN
from ...model.results import HostTiming, PeerResult, Resources, Run, StageResult, Timing
from .. import derived
from ..derived import three_digits
from ..markdown import table
from ..page import GAIN, Page


def stages(page: Page) -> list[str]:
    gains = {s.stage: _gain(s.stage, page) for s, _ in page.entries} if page.timed else {}
    tree = registry.tree(page.operation)
    parents = {s.stage: tree[s.stage].parent if s.stage in tree else None for s, _ in page.entries}
    tracks = len({place.track for place in tree.values()}) > 1
    rows = [
        (
            *([tree[s.stage].track if s.stage in tree else "-"] if tracks else []),
            tree[s.stage].shown(page.name(s.stage, run)) if s.stage in tree else page.name(s.stage, run),
            f"`{parents[s.stage]}`" if parents[s.stage] else "-",
            s.idea,
            *([gains[s.stage]] if gains else []),
            _source(s),
            f"`{s.source_sha256[:12]}`",
        )
        for s, run in page.entries
    ]
    named = (*(["track"] if tracks else []), "stage", "parent", "what it adds")
    headers = (*named, *(["what it gained"] if gains else []), "source", "SHA-256 with headers")
    parts = ["## Stages", table(headers, rows), *page.key(run for _, run in page.entries)]
    if gains:
        parts.append(f"Gained: {GAIN}, the geometric mean over all problems (and range).")
    parts.append(
        "The SHA-256 covers the source and the headers that it includes. It and the name of the source are those at "
        "the time of the run, at the commit under Environment."
    )
    return parts


def _source(s: StageResult) -> str:
    """Where a stage's source is, from the top of the workbench or of the project that its operation belongs to."""
    operation, project = registry.operations().get(s.operation), registry.loaded().project
    if operation is None:
        return f"`{s.source}`"
    if operation.origin == BUILT_IN:
        return f"`cuda_src/{s.source}`"
    if any(known.name == s.stage and known.code is not None for known in operation.stages):
        return "in its declaration"
    path = (operation.sources or Path()).resolve() / s.source
    if project and path.is_relative_to(root := project.root.resolve()):
        return f"`{path.relative_to(root)}`"
    return f"`{s.source}`"


def _gain(stage: str, page: Page) -> str:
    """What a stage gained over its parent, on the problems that both were timed on in one run."""
    gains = page.times.gain[page.times.stage == stage].dropna()
    if gains.empty:
        return "-"
    return f"{geometric_mean(gains):.2f}x ({min(gains):.2f}x to {max(gains):.2f}x)"


def resources(page: Page) -> list[str]:
    numeric = ("registers", "static shared", "dynamic shared", "spills", "threads", "blocks / SM", "occupancy")
    headers = ("stage", "kernel", "variant", *numeric, "limited by")
    rows, shared = [], []
    for s, run in page.entries:
        common, own = derived.variants(s.resources)
        shared += [f"- {page.name(s.stage, run)}: `{common}`"] if common else []
        rows += [
            (page.name(s.stage, run), *_resource_cells(r, variant)) for r, variant in zip(s.resources, own, strict=True)
        ]
    if not rows:
        return []
    note = "Registers a thread, bytes of shared memory a block; occupancy is theoretical and leaves clusters out."
    parts = ["## Resources", note, table(headers, rows, numeric), *page.key(run for _, run in page.entries)]
    return [*parts, "In every variant of a stage:", "\n".join(shared)] if shared else parts


def _resource_cells(r: Resources, variant: str) -> tuple[str, ...]:
    return (
        f"`{r.kernel}`",
        f"`{variant}`" if variant else "-",
        str(r.registers),
        f"{r.static_shared:,} B",
        f"{r.dynamic_shared:,} B",
        f"{r.spill_bytes:,} B",
        str(r.block_threads),
        str(r.blocks_per_sm),
        f"{100 * r.occupancy:.0f} %",
        r.limiter,
    )


def environment(page: Page) -> list[str]:
    names = ["value"] if len(page.runs) == 1 else [page.mark(run) for run in page.runs]
    columns = [_environment_rows(run) for run in page.runs]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    rows = [(key, *(column.get(key, "-") for column in columns)) for key in keys]
    parts = ["## Environment", table(("", *names), rows)]
    if len(page.runs) > 1:
        parts.insert(
            1, "The stages come from several runs. The letter behind a stage says from which run its figures are."
        )
    return parts


def _environment_rows(run: Run) -> dict[str, str]:
    d, e = run.device, run.environment
    rows = {
        "date": e.date,
        "commit": f"`{e.commit[:12]}`" + (" with uncommitted changes" if e.dirty else ""),
        "seed, examples": f"{run.seed}, {run.examples} problems a stage",
        "device": f"{d.name}, {d.architecture}, {d.sm_count} SMs",
    }
    if d.memory_bytes:
        rows["memory, L2"] = f"{d.memory_bytes / 2**30:.0f} GiB, {d.l2_bytes / 2**20:.0f} MiB"
    if d.driver:
        rows["driver"] = d.driver
    if d.sm_clock_mhz:
        rows["maximum clocks"] = f"SM {d.sm_clock_mhz:,} MHz, memory {d.memory_clock_mhz:,} MHz"
    if d.power_limit_w:
        rows["power limit"] = f"{d.power_limit_w:.0f} W"
    if d.peak_bytes_per_s:
        rows["peak bandwidth"] = _peak(d.peak_bytes_per_s / 1e9, derived.GBPS, d.peak_formulas.get("bytes_per_s"))
    for name, value in sorted(d.peak_flops.items()):
        rows[f"peak {name}"] = _peak(value / 1e12, derived.TFLOPS, d.peak_formulas.get(name))
    rows |= {"host": e.host, "Python": e.python} | ({"CUDA": e.cuda} if e.cuda else {})
    measured = [baseline for s in run.stages for m in s.measurements for baseline in m.baselines]
    named: list[Timing | PeerResult | HostTiming] = [*measured, *run.peers, *run.host]
    if versions := sorted({f"{b.name}: {b.version}" for b in named if b.version}):
        rows["baselines"] = "; ".join(versions)
    return rows | dict(sorted(e.packages.items()))


def _peak(value: float, unit: str, formula: str | None) -> str:
    return f"{three_digits(value)} {unit}" + (f" ({formula})" if formula else "")
