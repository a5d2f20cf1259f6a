"""What was timed, and under which conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import derived, frame
from ..derived import duration, percent, three_digits
from ..markdown import one_line, table
from ..page import GAIN, Page, alt

if TYPE_CHECKING:
    from pandas import DataFrame


def timed(page: Page, charts: Sequence[str]) -> list[str]:
    parts = ["## What was timed"]
    if page.newest.device.kind == "emulator":
        return [
            *parts,
            "Nothing was timed: the emulator executes the kernels' PTX to check it, and says nothing about speed. Run "
            "`workbench run` on a machine with a GPU to get times.",
        ]
    if not page.timed:
        return [*parts, "Nothing.", *_untimed(page)]
    parts.append(_conditions(page))
    parts += [f"![{alt(c)}]({c})" for c in charts] or [
        "There are no charts: matplotlib was not installed (`pip install 'kernel-workbench[plots]'`)."
    ]
    for label, rows in frame.ladders(page.times):
        parts += [f"### {page.operation} {label}", _ladder_table(page, rows)]
        parts += [*_ladder_key(page, rows), _floor(page, rows)]
        parts += [*_host(page, rows), *_warnings(rows)]
    return [*parts, *_untimed(page)]


def _conditions(page: Page) -> str:
    measured = list(frame.only(page.times, frame.STAGE).measurement.dropna())
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
    names = frame.only(page.times, frame.OTHER).stage.unique()
    return f", and {', '.join(names)} with the vendor's library alone" if len(names) else ""


def _ladder_table(page: Page, rows: DataFrame) -> str:
    headers = ("", "cold", "quartiles", "sustained", page.metric, "of vendor", "of roofline", "gain", "samples")
    best, found = frame.best(rows).name, []
    for row in frame.only(rows, frame.STAGE, frame.LIBRARY, frame.OTHER).itertuples():
        cells = (
            page.name(row.stage, row.run) if row.kind == frame.STAGE else row.stage,
            duration(row.time_us),
            " to ".join(map(duration, row.quartiles)),
            duration(row.sustained_us),
            three_digits(getattr(row, frame.column(page.metric))),
            percent(row.of_vendor),
            percent(row.of_roofline),
            derived.times(row.gain),
            str(len(row.samples_us)),
        )
        found.append([f"**{c}**" for c in cells] if row.Index == best else cells)
    return table(headers, found, headers[1:])


def _ladder_key(page: Page, rows: DataFrame) -> list[str]:
    """What letters and shares mean in a table of several runs."""
    key = page.key(frame.only(rows, frame.STAGE).run)
    if key and len(frame.only(rows, frame.LIBRARY)):
        key.append(
            "A share compares with the vendor's library in the same run. The library's row covers all these runs. In a "
            "single run the library may be faster or slower, so two stages of the same throughput can have different "
            "shares."
        )
    return [" ".join(key)] if key else []


def _host(page: Page, rows: DataFrame) -> list[str]:
    """Times of the CPU, which nothing else is compared with."""
    lines = []
    for row in frame.only(rows, frame.HOST).itertuples():
        speed = f"{three_digits(getattr(row, frame.column(page.metric)))} {page.metric}"
        lines.append(
            f"On the CPU ({row.run.environment.host}), by the host's clock and in fp32, {row.stage} takes "
            f"{duration(row.time_us)} ({speed}; {row.measurement.version}, {len(row.samples_us)} samples)."
        )
    return lines


def _floor(page: Page, rows: DataFrame) -> str:
    m = rows.measurement.iloc[0]
    intensity = f"{three_digits(m.flops / m.bytes)} FLOP a byte"
    work = f"{m.flops / 1e9:,.3f} GFLOP, {m.bytes / 1e6:,.1f} MB at least, {intensity}"
    if m.roofline_us <= 0:
        return f"{work}; the device's peaks are unknown, so there is no roofline bound."
    speed = three_digits(derived.throughput(m, m.roofline_us, page.metric))
    return f"{work}; roofline bound {duration(m.roofline_us)} ({speed} {page.metric}), set by {m.roofline_by}."


def _warnings(rows: DataFrame) -> list[str]:
    measured = list(frame.only(rows, frame.STAGE, frame.OTHER).measurement)
    found = derived.warnings(measured, rows.run.iloc[0].device)
    return [f"Mind: {'; '.join(found)}."] if found else []


def _untimed(page: Page) -> list[str]:
    lines = [f"- `{s.stage}`, {label}: {reason}" for s, _ in page.entries for label, reason in s.untimed.items()]
    others = frame.only(page.times, frame.OTHER)
    told = set(zip(others.stage, others.label, strict=True))
    for p in (p for run in page.runs for p in run.peers if p.operation == page.operation):
        lines += [f"- {p.name}, {label}: {why}" for label, why in p.untimed.items() if (p.name, label) not in told]
        told |= {(p.name, label) for label in p.untimed}
    return ["### Not timed", "\n".join(one_line(line) for line in lines)] if lines else []


def _range(name: str, values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    low, high = round(min(values)), round(max(values))
    return f"{name} {low:,} {unit}" if low == high else f"{name} {low:,} to {high:,} {unit}"
