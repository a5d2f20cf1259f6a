"""Results to Markdown: a page an operation and device, with its charts, and an index over all of them.

Every figure is read from the JSON beside the page. The same JSON gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from string import ascii_uppercase

from tabulate import tabulate

from ..catalogue import registry
from ..model.origin import BUILT_IN
from ..model.results import (
    AgreementRun,
    HostTiming,
    PeerResult,
    Resources,
    ResultsError,
    Run,
    StageResult,
    Timing,
    Verdict,
)
from ..records import store
from . import derived
from .derived import duration, percent, three_digits
from .evidence import explain, failed, is_shrunk, tiers, wrong_elements

Entry = tuple[StageResult, Run]

GAIN = "the speed-up over its parent, or over the nearest ancestor timed on the problem in the same run"

REASONS = 4
"""Reasons for not taking problems that are written out for each stage."""


def write(output: Path, only: str | None = None) -> list[Path]:
    """Write the pages of every device folder in `output` (or of `only` that one) and the index; returns their paths.

    Raises ResultsError where there are no results or some cannot be read, OSError where nothing can be written.
    """
    folders = store.folders(output)
    if not folders:
        raise ResultsError(f"there are no results in {output}; make some with: workbench run --output {output}")
    loaded = {folder: store.load(folder) for folder in folders}
    written = []
    for folder, runs in loaded.items():
        if only in (None, folder.name):
            written += _write_folder(folder, runs)
    index = output / "README.md"
    pages = [page for pattern in ("*.md", "experiments/*/*.md") for page in sorted(output.glob(pattern))]
    others = {page.relative_to(output).as_posix(): page.read_text() for page in pages if page != index}
    index.write_text(_index({folder.name: runs for folder, runs in loaded.items()}, others))
    return [*written, index]


def _write_folder(folder: Path, runs: Sequence[Run]) -> list[Path]:
    """The pages and charts of one device."""
    written = []
    path = folder / store.AGREEMENT
    for page in _pages(runs, AgreementRun.load(path) if path.is_file() else None):
        charts, pictures = page.write_charts(folder), page.write_pictures(folder)
        target = folder / f"{page.operation}.md"
        target.write_text(page.text(_records(folder, page), [c.name for c in charts], {p.name for p in pictures}))
        written += [target, *charts, *pictures]
    return written


def _records(folder: Path, page: Page) -> list[str]:
    """The files that a page is made of: that of the operation, and of a folder of before, a file a run, all."""
    found = [path for path in store.files(folder) if path.parent == folder or path.stem == page.operation]
    return [path.relative_to(folder).as_posix() for path in found]


def _pages(runs: Sequence[Run], agreement: AgreementRun | None = None) -> list[Page]:
    """A page for each operation that has results, in the registry's order."""
    entries = store.current(runs)
    known = list(registry.operations())
    names = sorted({s.operation for s, _ in entries}, key=lambda n: (known.index(n) if n in known else len(known), n))
    return [Page.of(name, [e for e in entries if e[0].operation == name], runs, agreement) for name in names]


@dataclass(frozen=True)
class Page:
    """One operation on one device. `entries` are its stages in ladder order, each with the run it is from."""

    operation: str
    summary: str
    metric: str
    entries: list[Entry]
    runs: list[Run]
    ladders: list[derived.Ladder]
    agreement: AgreementRun | None = None

    @classmethod
    def of(cls, name: str, entries: list[Entry], runs: Sequence[Run], agreement: AgreementRun | None = None) -> Page:
        """A page; an operation that the registry no longer has is reported all the same."""
        operation = registry.operations().get(name)
        tree = registry.tree(name)
        order = list(tree)
        entries = sorted(entries, key=lambda e: order.index(e[0].stage) if e[0].stage in order else len(order))
        labels = [p.label for p in operation.suite] if operation else []
        ladders = derived.ladders(entries, tree, labels, runs)
        others = [run for x in ladders for run in (*(p.run for p in x.peers), *(run for _, run in x.host))]
        shown = [*(run for _, run in entries), *others]
        used = [run for run in runs if any(r is run for r in shown)]
        return cls(
            name,
            operation.summary if operation else "",
            operation.metric if operation else derived.TFLOPS,
            entries,
            used,
            ladders,
            agreement,
        )

    @property
    def newest(self) -> Run:
        """The run whose device the page describes."""
        return self.runs[0]

    def missing(self) -> list[str]:
        """Stages that are declared and that no run has."""
        found = {s.stage for s, _ in self.entries}
        return [name for name in registry.tree(self.operation) if name not in found]

    def mark(self, run: Run) -> str:
        """`A`, `B` ... for the run, where there are several."""
        return next(ascii_uppercase[i % 26] for i, r in enumerate(self.runs) if r is run)

    def key(self, runs: Iterable[Run]) -> list[str]:
        """What the marks of these runs in a table stand for, as a line below it; nothing where there is one run."""
        if len(self.runs) == 1:
            return []
        marks = sorted({(self.mark(run), run.environment.date) for run in runs})
        return [f"The letter behind a stage is its run: {', '.join(f'{mark} of {date}' for mark, date in marks)}."]

    def name(self, stage: str, run: Run) -> str:
        """A stage's name in a table, with the mark of its run where there are several."""
        return f"`{stage}`" + (f" ({self.mark(run)})" if len(self.runs) > 1 else "")

    def write_charts(self, folder: Path) -> list[Path]:
        """The charts, where something was timed: ladder, heat map, roofline, spread of samples."""
        if not self.ladders:
            return []
        try:
            from . import plots
        except ImportError:
            return []  # the page says so

        charts = {
            "ladder": plots.ladder(self.ladders, self.metric),
            "heat-map": plots.heat_map(self.ladders),
            "roofline": plots.roofline(self.ladders, self.newest.device),
            "spread": plots.spread(self.ladders),
        }
        return [
            plots.save(figure, folder / f"{self.operation}-{name}.png")
            for name, figure in charts.items()
            if figure is not None
        ]

    def write_pictures(self, folder: Path) -> list[Path]:
        """A picture of each stage's wrong elements; those of stages that no longer have any are removed."""
        written = []
        for s, _ in self.entries:
            path = folder / _picture(s)
            path.unlink(missing_ok=True)
            failure = s.verification.failure
            if failure and failure.cells:
                try:
                    from . import plots
                except ImportError:
                    continue  # the page has the map in characters
                written.append(plots.save(plots.wrong_elements(f"{s.operation}:{s.stage}", failure.cells), path))
        return written

    def text(self, records: Sequence[str], charts: Sequence[str], pictures: Collection[str] = ()) -> str:
        """The Markdown of the page; it is made of the files `records`; `charts` and `pictures` were written."""
        links = " and ".join(f"[{name}]({name})" for name in records)
        parts = [
            f"# {self.operation} on {self.newest.device.name}",
            f"{_sentence(self.summary)} Generated by `workbench run`; every figure is read from {links}.",
            *self._ladder(),
            *self._verified(pictures),
            *self._timed(charts),
            *self._resources(),
            *self._environment(),
        ]
        return "\n\n".join(parts) + "\n"

    def _ladder(self) -> list[str]:
        gains = {s.stage: _gain(s.stage, self.ladders) for s, _ in self.entries} if self.ladders else {}
        tree = registry.tree(self.operation)
        parents = {s.stage: tree[s.stage].parent if s.stage in tree else None for s, _ in self.entries}
        tracks = len({place.track for place in tree.values()}) > 1
        rows = [
            (
                *([tree[s.stage].track if s.stage in tree else "-"] if tracks else []),
                tree[s.stage].shown(self.name(s.stage, run)) if s.stage in tree else self.name(s.stage, run),
                f"`{parents[s.stage]}`" if parents[s.stage] else "-",
                s.idea,
                *([gains[s.stage]] if gains else []),
                _source(s),
                f"`{s.source_sha256[:12]}`",
            )
            for s, run in self.entries
        ]
        named = (*(["track"] if tracks else []), "stage", "parent", "what it adds")
        headers = (*named, *(["what it gained"] if gains else []), "source", "SHA-256 with headers")
        parts = ["## Stages", table(headers, rows), *self.key(run for _, run in self.entries)]
        if gains:
            parts.append(f"Gained: {GAIN}, the geometric mean over all problems (and range).")
        parts.append(
            "The SHA-256 is of the source and the headers that it includes. Both, and the source's name, are as they "
            "were when the stage was run, at the commit under Environment."
        )
        if missing := self.missing():
            parts.append(f"Never run here: {', '.join(f'`{name}`' for name in missing)}.")
        return parts

    def _verified(self, pictures: Collection[str]) -> list[str]:
        worst_seed = ("worst error / bound", "seed")
        headers = ("stage", "verdict", "problems", "comparisons", "covered", "negative controls rejected", *worst_seed)
        rows = []
        for s, run in self.entries:
            v = s.verification
            verdict = f"**{v.verdict}**" if failed(v) else str(v.verdict)
            covered = "; ".join(
                f"{field}: {', '.join(f'{value} {count}' for value, count in sorted(counts.items()))}"
                for field, counts in sorted(v.covered.items())
            )
            worst = f"{v.worst_error:.3f}" if v.tiers.get("bounded") else "-"
            counts = (f"{v.problems:,}", tiers(v.tiers), covered or "-", v.wrong_rejected or "-", worst, v.seed)
            rows.append((self.name(s.stage, run), verdict, *counts))
        where = "in the emulator" if self.newest.device.kind == "emulator" else "on the device"
        parts = [
            "## What was verified",
            f"Random problems, solved {where} and compared element by element with a float64 NumPy reference, before "
            "anything was timed. Exact: small-integer inputs, bit-equal results. Bounded: zero-mean inputs, every "
            "element's error within its a-priori bound (1 in the column of errors). Answers of broken kernels "
            "(all zeros, a dropped term, the last row missing ...) had to be rejected by it.",
            table(headers, rows, headers[2:3] + headers[5:]),
            *self.key(run for _, run in self.entries),
        ]
        if earlier := [f"`{s.stage}` on {s.verification.date}" for s, _ in self.entries if s.verification.date]:
            parts.append(f"Verified by an earlier run, of exactly this code on this device: {', '.join(earlier)}.")
        refused = [line for s, _ in self.entries for line in _refused(s)]
        if refused:
            parts += ["Problems that a stage does not take were drawn too and left out:", "\n".join(refused)]
        for s, _ in self.entries:
            if failed(s.verification):
                parts += self._failure(s, pictures)
        return [*parts, *self._agreement()]

    def _agreement(self) -> list[str]:
        if self.agreement is None:
            return []
        rows = [
            (f"`{s.stage}`", f"{s.problems:,}", tiers(s.tiers), s.seed, s.disagreement or "they agree")
            for s in self.agreement.stages
            if s.operation == self.operation
        ]
        if not rows:
            return []
        made = self.agreement.environment
        compared = {s.stage for s in self.agreement.stages if s.operation == self.operation}
        others = [f"`{s.stage}`" for s, _ in self.entries if s.stage not in compared]
        parts = [
            "### The device and the emulator",
            "The same random problems were solved on this device and in the emulator: bit-equal results in the exact "
            f"tier, both within the bound in the other ([{store.AGREEMENT}]({store.AGREEMENT}), {made.date}, commit "
            f"`{made.commit[:12]}`" + (" with uncommitted changes)." if made.dirty else ")."),
            table(("stage", "problems", "agreeing comparisons", "seed", "outcome"), rows, ("problems", "seed")),
        ]
        return [*parts, f"Not compared in this way yet: {', '.join(others)}."] if others else parts

    @staticmethod
    def _failure(s: StageResult, pictures: Collection[str]) -> list[str]:
        parts = [f"### `{s.operation}:{s.stage}` failed: {s.verification.verdict}"]
        failure = s.verification.failure
        if failure is None:
            return [*parts, _fenced(explain(f"{s.operation}:{s.stage}", s.verification))]
        if is_shrunk(failure):
            parts.append(f"Smallest failing problem: `{failure.problem}`")
        parts.append(_fenced(failure.message.rstrip()))
        if failure.looks_like:
            parts += [f"Looks like: {_one_line(failure.looks_like)}", _fenced(failure.map)]
        if _picture(s) in pictures:
            parts.append(f"![{_alt(_picture(s))}]({_picture(s)})")
        if failure.wrong:
            shown = f"The first {len(failure.wrong)} of {failure.wrong_count:,} wrong elements"
            parts += [f"{shown} ({failure.element_count:,} in all):", wrong_elements(failure, "pipe")]
        return [*parts, f"Replay: `{failure.replay}`"] if failure.replay else parts

    def _timed(self, charts: Sequence[str]) -> list[str]:
        parts = ["## What was timed"]
        if self.newest.device.kind == "emulator":
            return [
                *parts,
                "Nothing: the emulator executes the kernels' PTX to check it and says nothing about speed. Times come "
                "from `workbench run` on a machine with a GPU.",
            ]
        if not self.ladders:
            return [*parts, "Nothing.", *self._untimed()]
        parts.append(self._conditions())
        parts += [f"![{_alt(c)}]({c})" for c in charts] or [
            "There are no charts: matplotlib was not installed (`pip install 'kernel-workbench[plots]'`)."
        ]
        for ladder in self.ladders:
            parts += [f"### {self.operation} {ladder.label}", self._ladder_table(ladder)]
            parts += [*self._ladder_key(ladder), self._floor(ladder)]
            parts += [*self._host(ladder), *self._warnings(ladder)]
        return [*parts, *self._untimed()]

    def _conditions(self) -> str:
        measured = [r.measurement for ladder in self.ladders for r in ladder.rungs]
        seen = [m.conditions for m in measured]
        observed = [
            _range("SM clock", [x for c in seen for x in c.sm_clock_mhz], "MHz"),
            _range("memory clock", [x for c in seen for x in c.memory_clock_mhz], "MHz"),
            _range("power", [x for c in seen for x in c.power_w], "W"),
            _range("temperature", [x for c in seen for x in c.temperature_c], "°C"),
        ]
        state = "; ".join(o for o in observed if o)
        nothing = [c.launch_overhead_us for c in seen if c.launch_overhead_us]
        launch = duration(derived.median(nothing)) if nothing else ""
        overhead = (
            f"Of every cold time {launch} are the launch: a kernel that does nothing takes as long. " if launch else ""
        )
        graph = any(t.replayed for m in measured for t in (m.timing, *m.baselines))
        heated = ", once the device has been kept busy" if all(m.effort.get("heat_seconds") for m in measured) else ""
        reasons = sorted({reason for c in seen for reason in c.throttle_reasons})
        throttled = f"Clocks were held back by: {', '.join(reasons)}." if reasons else "No throttling was reported."
        return (
            "Cold: the L2 is flushed before every sample. Sustained: launches back to back"
            f"{', from a CUDA graph where they are short' if graph else ''}{heated}. {overhead}Times are medians, with "
            "the first and third quartile of the cold samples; throughput, shares and gain are of the cold median. "
            "Each stage and the baselines ran interleaved"
            f"{self._of_peers()}; *of vendor* compares with the fastest library in the "
            "stage's own samples, *of floor* with the time that the device's peaks allow at best, *gain* is "
            f"{GAIN}. " + (f"During timing: {state}. {throttled}" if state else "Clocks and power could not be read.")
        )

    def _of_peers(self) -> str:
        names = dict.fromkeys(peer.stage for ladder in self.ladders for peer in ladder.peers)
        return f", and {', '.join(names)} with the vendor's library alone" if names else ""

    def _ladder_table(self, ladder: derived.Ladder) -> str:
        headers = ("", "cold", "quartiles", "sustained", self.metric, "of vendor", "of floor", "gain", "samples")
        rows: list[tuple[str, ...]] = []
        for rung in ladder.rungs:
            m = rung.measurement
            cells = (
                self.name(rung.stage, rung.run),
                *self._times(m.timing.cold_us, m.timing.sustained_us),
                three_digits(derived.throughput(m, rung.cold_us, self.metric)),
                percent(derived.share_of_vendor(m)),
                percent(derived.share_of_floor(m)),
                f"{rung.gain:.2f}x" if rung.gain else "-",
                str(len(m.timing.cold_us)),
            )
            rows.append(tuple(f"**{c}**" for c in cells) if rung is ladder.best else cells)
        m = ladder.rungs[0].measurement
        for baseline in ladder.baselines.values():
            cold = derived.median(baseline.cold_us)
            floor = m.floor_us / cold if m.floor_us > 0 else None
            speed = three_digits(derived.throughput(m, cold, self.metric))
            times = self._times(baseline.cold_us, baseline.sustained_us)
            rows.append((baseline.name, *times, speed, "-", percent(floor), "-", str(len(baseline.cold_us))))
        for peer in ladder.peers:
            m, samples = peer.measurement, peer.measurement.timing.cold_us
            speed = three_digits(derived.throughput(m, peer.cold_us, self.metric))
            times = self._times(samples, m.timing.sustained_us)
            shares = percent(derived.share_of_vendor(m)), percent(derived.share_of_floor(m))
            rows.append((peer.stage, *times, speed, *shares, "-", str(len(samples))))
        return table(headers, rows, headers[1:])

    def _ladder_key(self, ladder: derived.Ladder) -> list[str]:
        """What letters and shares mean in a table of several runs."""
        key = self.key(rung.run for rung in ladder.rungs)
        if key and ladder.baselines:
            key.append(
                "A share is of the vendor's library in the same run, and the library's row is of all these runs: equal "
                "throughput may have different shares."
            )
        return [" ".join(key)] if key else []

    def _host(self, ladder: derived.Ladder) -> list[str]:
        """Times of the CPU, which nothing else is compared with."""
        lines = []
        for timing, run in ladder.host:
            took = derived.median(timing.samples_us)
            speed = f"{three_digits(derived.throughput(timing, took, self.metric))} {self.metric}"
            lines.append(
                f"On the CPU ({run.environment.host}), by the host's clock and in fp32, {timing.name} takes "
                f"{duration(took)} ({speed}; {timing.version}, {len(timing.samples_us)} samples)."
            )
        return lines

    @staticmethod
    def _times(cold: Sequence[float], sustained: Sequence[float]) -> tuple[str, str, str]:
        low, high = derived.quartiles(cold)
        back_to_back = duration(derived.median(sustained)) if sustained else "-"
        return duration(derived.median(cold)), f"{duration(low)} to {duration(high)}", back_to_back

    def _floor(self, ladder: derived.Ladder) -> str:
        m = ladder.rungs[0].measurement
        intensity = f"{three_digits(m.flops / m.bytes)} FLOP a byte"
        work = f"{m.flops / 1e9:,.3f} GFLOP, {m.bytes / 1e6:,.1f} MB at least, {intensity}"
        if m.floor_us <= 0:
            return f"{work}; the device's peaks are unknown, so there is no physical floor."
        speed = three_digits(derived.throughput(m, m.floor_us, self.metric))
        return f"{work}; physical floor {duration(m.floor_us)} ({speed} {self.metric}), set by {m.floor_by}."

    @staticmethod
    def _warnings(ladder: derived.Ladder) -> list[str]:
        measured = [rung.measurement for rung in (*ladder.rungs, *ladder.peers)]
        found = derived.warnings(measured, ladder.rungs[0].run.device)
        return [f"Mind: {'; '.join(found)}."] if found else []

    def _untimed(self) -> list[str]:
        lines = [f"- `{s.stage}`, {label}: {reason}" for s, _ in self.entries for label, reason in s.untimed.items()]
        told = {(peer.stage, ladder.label) for ladder in self.ladders for peer in ladder.peers}
        for p in (p for run in self.runs for p in run.peers if p.operation == self.operation):
            lines += [f"- {p.name}, {label}: {why}" for label, why in p.untimed.items() if (p.name, label) not in told]
            told |= {(p.name, label) for label in p.untimed}
        return ["### Not timed", "\n".join(_one_line(line) for line in lines)] if lines else []

    def _resources(self) -> list[str]:
        numeric = ("registers", "static shared", "dynamic shared", "spills", "threads", "blocks / SM", "occupancy")
        headers = ("stage", "kernel", "variant", *numeric, "limited by")
        rows, shared = [], []
        for s, run in self.entries:
            common, own = derived.variants(s.resources)
            shared += [f"- {self.name(s.stage, run)}: `{common}`"] if common else []
            rows += [
                (self.name(s.stage, run), *_resource_cells(r, variant))
                for r, variant in zip(s.resources, own, strict=True)
            ]
        if not rows:
            return []
        note = "Registers a thread, bytes of shared memory a block; occupancy is theoretical and leaves clusters out."
        parts = ["## Resources", note, table(headers, rows, numeric), *self.key(run for _, run in self.entries)]
        return [*parts, "In every variant of a stage:", "\n".join(shared)] if shared else parts

    def _environment(self) -> list[str]:
        names = ["value"] if len(self.runs) == 1 else [self.mark(run) for run in self.runs]
        columns = [_environment_rows(run) for run in self.runs]
        keys = list(dict.fromkeys(key for column in columns for key in column))
        rows = [(key, *(column.get(key, "-") for column in columns)) for key in keys]
        parts = ["## Environment", table(("", *names), rows)]
        if len(self.runs) > 1:
            parts.insert(
                1, "The stages were not all run at once; the letter behind a stage says which run its figures are from."
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


def _gain(stage: str, ladders: Sequence[derived.Ladder]) -> str:
    """What a stage gained over its parent, on the problems that both were timed on in one run."""
    gains = [rung.gain for ladder in ladders for rung in ladder.rungs if rung.stage == stage and rung.gain]
    if not gains:
        return "-"
    return f"{geometric_mean(gains):.2f}x ({min(gains):.2f}x to {max(gains):.2f}x)"


def _refused(s: StageResult) -> list[str]:
    """Why a stage left problems out, the most frequent reasons first."""
    ordered = sorted(s.verification.unsupported.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"- `{s.stage}`: {_one_line(reason)} ({count:,} drawn)" for reason, count in ordered[:REASONS]]
    if rest := ordered[REASONS:]:  # reasons that name sizes can be as many as the problems
        lines.append(f"- `{s.stage}`: {len(rest)} more such reasons ({sum(count for _, count in rest):,} drawn)")
    return lines


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


def _index(devices: dict[str, list[Run]], others: Mapping[str, str]) -> str:
    """The page over all devices and operations; `others` are the texts, by path, of pages that are made elsewhere."""
    headers = ("operation", "device", "stages passed", "fastest stage", "best throughput", "of vendor", "run", "commit")
    rows = []
    for folder, runs in devices.items():
        for page in _pages(runs):
            passed = sum(s.verification.verdict is Verdict.PASS for s, _ in page.entries)
            newest, missing = page.newest.environment, page.missing()
            rows.append(
                (
                    f"[{page.operation}]({folder}/{page.operation}.md)",
                    page.newest.device.name,
                    f"{passed} of {len(page.entries)}" + (f", {len(missing)} not run" if missing else ""),
                    *_best(page),
                    newest.date[:10],
                    f"`{newest.commit[:12]}`" + (" *" if newest.dirty else ""),
                )
            )
    rows.sort(key=lambda row: row[0])
    parts = [
        "# Reports",
        "One page an operation and device, generated by `workbench run` from the JSON in the device's folder. On the "
        "emulator kernels are verified and never timed.",
        table(headers, rows, ("stages passed", "best throughput", "of vendor")),
    ]
    if any(run.environment.dirty for runs in devices.values() for run in runs):
        parts.append("\\* with uncommitted changes")
    if others:
        titles = [text.partition("\n")[0].lstrip("# ") for text in others.values()]
        links = [f"- [{title}]({path})" for title, path in zip(titles, others, strict=True)]
        parts += ["Reports of their own:", "\n".join(links)]
    return "\n\n".join(parts) + "\n"


def _best(page: Page) -> tuple[str, str, str]:
    """Stage, throughput and share of the vendor's figure where the operation is fastest."""
    best = max(
        ((ladder, ladder.best) for ladder in page.ladders),
        key=lambda pair: derived.throughput(pair[1].measurement, pair[1].cold_us, page.metric),
        default=None,
    )
    if best is None:
        return "-", "-", "-"
    ladder, rung = best
    speed = three_digits(derived.throughput(rung.measurement, rung.cold_us, page.metric))
    share = percent(derived.share_of_vendor(rung.measurement))
    return f"`{rung.stage}`", f"{speed} {page.metric} ({ladder.label})", share


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[str] = ()) -> str:
    """A Markdown table; the columns named in `numeric` are right-aligned."""
    cells = [[_one_line(str(cell)).replace("|", "\\|") for cell in row] for row in rows]
    align = ["right" if header in numeric else "left" for header in headers]
    return str(tabulate(cells, list(headers), tablefmt="pipe", disable_numparse=True, colalign=align))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


def _range(name: str, values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    low, high = round(min(values)), round(max(values))
    return f"{name} {low:,} {unit}" if low == high else f"{name} {low:,} to {high:,} {unit}"


def _picture(s: StageResult) -> str:
    """The file with the picture of a stage's wrong elements."""
    return f"{s.operation}-{s.stage}-wrong-elements.png"


def _alt(chart: str) -> str:
    return Path(chart).stem.replace("-", " ")
