"""What was timed, and under which conditions."""

from __future__ import annotations

from collections.abc import Sequence

from .. import derived
from ..derived import duration, percent, three_digits
from ..markdown import one_line, table
from ..page import GAIN, Page
from ..pictures import alt


def timed(page: Page, charts: Sequence[str]) -> list[str]:
    parts = ["## What was timed"]
    if page.newest.device.kind == "emulator":
        return [
            *parts,
            "Nothing was timed: the emulator executes the kernels' PTX to check it, and says nothing about speed. Run "
            "`workbench run` on a machine with a GPU to get times.",
        ]
    if not page.ladders:
        return [*parts, "Nothing.", *_untimed(page)]
    parts.append(_conditions(page))
    parts += [f"![{alt(c)}]({c})" for c in charts] or [
        "There are no charts: matplotlib was not installed (`pip install 'kernel-workbench[plots]'`)."
    ]
    for ladder in page.ladders:
        parts += [f"### {page.operation} {ladder.label}", _ladder_table(page, ladder)]
        parts += [*_ladder_key(page, ladder), _floor(page, ladder)]
        parts += [*_host(page, ladder), *_warnings(ladder)]
    return [*parts, *_untimed(page)]


def _conditions(page: Page) -> str:
    measured = [r.measurement for ladder in page.ladders for r in ladder.rungs]
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
    overhead = f"The launch is {launch} of every cold time: an empty kernel takes that long. " if launch else ""
    graph = any(t.replayed for m in measured for t in (m.timing, *m.baselines))
    heated = ", once the device has been kept busy" if all(m.effort.get("heat_seconds") for m in measured) else ""
    reasons = sorted({reason for c in seen for reason in c.throttle_reasons})
    throttled = f"Clocks were held back by: {', '.join(reasons)}." if reasons else "No throttling was reported."
    return (
        "Cold: the L2 is flushed before every sample. Sustained: launches back to back"
        f"{', from a CUDA graph where they are short' if graph else ''}{heated}. {overhead}Times are medians, with "
        "the first and third quartile of the cold samples. Throughput, shares and gain use the cold median. "
        "Each stage and the baselines ran interleaved"
        f"{_of_peers(page)}. *Of vendor* compares with the fastest library in the stage's own samples. *Of roofline* "
        "compares with the least time that the device's peaks allow. *Gain* is "
        f"{GAIN}. " + (f"During timing: {state}. {throttled}" if state else "Clocks and power could not be read.")
    )


def _of_peers(page: Page) -> str:
    names = dict.fromkeys(peer.stage for ladder in page.ladders for peer in ladder.peers)
    return f", and {', '.join(names)} with the vendor's library alone" if names else ""


def _ladder_table(page: Page, ladder: derived.Ladder) -> str:
    headers = ("", "cold", "quartiles", "sustained", page.metric, "of vendor", "of roofline", "gain", "samples")
    rows: list[tuple[str, ...]] = []
    for rung in ladder.rungs:
        m = rung.measurement
        cells = (
            page.name(rung.stage, rung.run),
            *_times(m.timing.cold_us, m.timing.sustained_us),
            three_digits(derived.throughput(m, rung.cold_us, page.metric)),
            percent(derived.share_of_vendor(m)),
            percent(derived.share_of_roofline(m)),
            f"{rung.gain:.2f}x" if rung.gain else "-",
            str(len(m.timing.cold_us)),
        )
        rows.append(tuple(f"**{c}**" for c in cells) if rung is ladder.best else cells)
    m = ladder.rungs[0].measurement
    for baseline in ladder.baselines.values():
        cold = derived.median(baseline.cold_us)
        bound = m.roofline_us / cold if m.roofline_us > 0 else None
        speed = three_digits(derived.throughput(m, cold, page.metric))
        times = _times(baseline.cold_us, baseline.sustained_us)
        rows.append((baseline.name, *times, speed, "-", percent(bound), "-", str(len(baseline.cold_us))))
    for peer in ladder.peers:
        m, samples = peer.measurement, peer.measurement.timing.cold_us
        speed = three_digits(derived.throughput(m, peer.cold_us, page.metric))
        times = _times(samples, m.timing.sustained_us)
        shares = percent(derived.share_of_vendor(m)), percent(derived.share_of_roofline(m))
        rows.append((peer.stage, *times, speed, *shares, "-", str(len(samples))))
    return table(headers, rows, headers[1:])


def _ladder_key(page: Page, ladder: derived.Ladder) -> list[str]:
    """What letters and shares mean in a table of several runs."""
    key = page.key(rung.run for rung in ladder.rungs)
    if key and ladder.baselines:
        key.append(
            "A share compares with the vendor's library in the same run. The library's row covers all these runs, so "
            "equal throughput may have different shares."
        )
    return [" ".join(key)] if key else []


def _host(page: Page, ladder: derived.Ladder) -> list[str]:
    """Times of the CPU, which nothing else is compared with."""
    lines = []
    for timing, run in ladder.host:
        took = derived.median(timing.samples_us)
        speed = f"{three_digits(derived.throughput(timing, took, page.metric))} {page.metric}"
        lines.append(
            f"On the CPU ({run.environment.host}), by the host's clock and in fp32, {timing.name} takes "
            f"{duration(took)} ({speed}; {timing.version}, {len(timing.samples_us)} samples)."
        )
    return lines


def _times(cold: Sequence[float], sustained: Sequence[float]) -> tuple[str, str, str]:
    low, high = derived.quartiles(cold)
    back_to_back = duration(derived.median(sustained)) if sustained else "-"
    return duration(derived.median(cold)), f"{duration(low)} to {duration(high)}", back_to_back


def _floor(page: Page, ladder: derived.Ladder) -> str:
    m = ladder.rungs[0].measurement
    intensity = f"{three_digits(m.flops / m.bytes)} FLOP a byte"
    work = f"{m.flops / 1e9:,.3f} GFLOP, {m.bytes / 1e6:,.1f} MB at least, {intensity}"
    if m.roofline_us <= 0:
        return f"{work}; the device's peaks are unknown, so there is no roofline bound."
    speed = three_digits(derived.throughput(m, m.roofline_us, page.metric))
    return f"{work}; roofline bound {duration(m.roofline_us)} ({speed} {page.metric}), set by {m.roofline_by}."


def _warnings(ladder: derived.Ladder) -> list[str]:
    measured = [rung.measurement for rung in (*ladder.rungs, *ladder.peers)]
    found = derived.warnings(measured, ladder.rungs[0].run.device)
    return [f"Mind: {'; '.join(found)}."] if found else []


def _untimed(page: Page) -> list[str]:
    lines = [f"- `{s.stage}`, {label}: {reason}" for s, _ in page.entries for label, reason in s.untimed.items()]
    told = {(peer.stage, ladder.label) for ladder in page.ladders for peer in ladder.peers}
    for p in (p for run in page.runs for p in run.peers if p.operation == page.operation):
        lines += [f"- {p.name}, {label}: {why}" for label, why in p.untimed.items() if (p.name, label) not in told]
        told |= {(p.name, label) for label in p.untimed}
    return ["### Not timed", "\n".join(one_line(line) for line in lines)] if lines else []


def _range(name: str, values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    low, high = round(min(values)), round(max(values))
    return f"{name} {low:,} {unit}" if low == high else f"{name} {low:,} to {high:,} {unit}"
