"""Figures derived from a record: medians, throughput, shares of the vendor's figure and of the roofline bound."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from ..model.dtypes import DTYPES
from ..model.results import DeviceInfo, HostTiming, Measurement, Resources, Timing

TFLOPS, GBPS = "TFLOP/s", "GB/s"


def median(samples: Sequence[float]) -> float:
    """The median of at least one sample, in the unit of the samples."""
    return float(statistics.median(samples))


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """First and third quartile (inclusive method); a single sample is both."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def throughput(measurement: Measurement | HostTiming, microseconds: float, metric: str) -> float:
    """TFLOP/s or GB/s (1e9 bytes) of the measured problem when it takes this long."""
    work = measurement.bytes / 1e9 if metric == GBPS else measurement.flops / 1e12
    return work / (microseconds * 1e-6)


def vendor(measurement: Measurement) -> Timing | None:
    """The fastest library that was interleaved with the stage, by cold median; None where there was none."""
    libraries = [b for b in measurement.baselines if b.solves]
    return min(libraries, key=lambda b: median(b.cold_us), default=None)


def share_of_vendor(measurement: Measurement) -> float | None:
    """Throughput as a fraction of the fastest library's, both cold; None without one."""
    best = vendor(measurement)
    return median(best.cold_us) / median(measurement.timing.cold_us) if best else None


def beside_vendor(measurement: Measurement) -> str:
    """That share with the name of the library, `103.5 % of cuBLAS`; empty without one."""
    best = vendor(measurement)
    return f"{percent(share_of_vendor(measurement))} of {best.name}" if best else ""


def gain(before: Measurement, now: Measurement) -> float:
    """How many times as fast a stage has become on a problem, cold: beside the vendor's library where both were timed
    interleaved with it, since clocks differ from one run to the next; else from time to time."""
    shares = share_of_vendor(before), share_of_vendor(now)
    if shares[0] and shares[1]:
        return shares[1] / shares[0]
    return median(before.timing.cold_us) / median(now.timing.cold_us)


def dtype(measurement: Measurement) -> str:
    """The type whose peak bounds the measured problem, `bf16`; empty where that is not known.

    Records made before it was kept have it in the text of the problem, or in its label."""
    if measurement.dtype:
        return measurement.dtype
    found = re.search(r"\bdtype=(\w+)", measurement.problem)
    return found[1] if found else next((word for word in re.findall(r"\w+", measurement.label) if word in DTYPES), "")


def variants(resources: Sequence[Resources]) -> tuple[str, list[str]]:
    """The defines that all compiled variants of a stage share, and for each variant those that it does not share."""
    defines = [r.variant.split() for r in resources]
    shared = [d for d in defines[0] if all(d in others for others in defines)] if defines else []
    return " ".join(shared), [" ".join(d for d in own if d not in shared) for own in defines]


def three_digits(value: float) -> str:
    """A number with three significant digits and no exponent: `0.123`, `45.6`, `1,234`."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3g}"


def duration(microseconds: float) -> str:
    """A time in the unit that suits it: `12.3 µs`, `4.56 ms`, `1.20 s`, or a dash for NaN."""
    if math.isnan(microseconds):
        return "-"
    for limit, scale, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if microseconds < limit:
            return f"{three_digits(microseconds / scale)} {unit}"
    return f"{three_digits(microseconds / 1e6)} s"


def percent(share: float | None) -> str:
    """A fraction as `87.5 %`, or a dash where there is none."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def times(factor: float) -> str:
    """A speed-up as `1.25x`, or a dash for NaN."""
    return "-" if math.isnan(factor) else f"{factor:.2f}x"


HELD_BACK = 0.95
"""A share of the highest SM clock seen; below it the clock fell while something was measured."""


def warnings(measured: Sequence[Measurement], device: DeviceInfo) -> list[str]:
    """What makes the figures of measurements of one problem worth less than they look, in words."""
    seen, found = [m.conditions for m in measured], []
    if not all(c.clock_steady for c in seen):
        found.append("the SM clock had not settled when the first samples were taken")
    if fell := [
        c.sm_clock_mhz for c in seen if c.sm_clock_mhz and min(c.sm_clock_mhz) < HELD_BACK * max(c.sm_clock_mhz)
    ]:
        high, low = max(map(max, fell)), min(map(min, fell))
        found.append(f"the SM clock fell from {high:,} MHz to as low as {low:,} MHz while samples were taken")
    if reasons := sorted({reason for c in seen for reason in c.throttle_reasons}):
        found.append(f"clocks were held back by {', '.join(reasons)}")
    for name, reason in sorted({pair for m in measured for pair in m.rejected.items()}):
        found.append(f"{name} was left out: {reason}")
    if (least := min(m.bytes for m in measured)) <= device.l2_bytes and any(m.timing.sustained_us for m in measured):
        found.append(f"{least / 1e6:,.1f} MB stay in the L2: sustained times say nothing about device memory")
    return found
