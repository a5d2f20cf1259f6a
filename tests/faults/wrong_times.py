"""Times that a weak harness believes (41 to 49).

On a GPU each is planted in a real kernel, or in the device. Elsewhere nothing is timed, and `timing.bench` gets the
samples of a device whose clock is a number. A new one is one more entry; the tests and `harness_report.py` take all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness_planting import HEAD, HarnessFault, planted_stage
from planting import Change, Outcome
from synthetic_clock import IDLE_MHZ, timed_by_clock

from workbench.catalogue import registry
from workbench.devices import Device, Fault, IsolatedDevice
from workbench.devices.cuda import CudaDevice, CudaPlan
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.matvec import MatvecProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import timing
from workbench.model.problem import Problem
from workbench.model.results import Measurement
from workbench.report import derived
from workbench.run.timer import TimedSession
from workbench.toolchain import nvml

LONG = MatvecProblem(n=4096, k=4096, dtype="fp32", out="fp32")
"""Takes matvec:naive some 400 us on an H200, on 32 blocks."""


@dataclass(frozen=True)
class Timed:
    """Something that must not be timed: on a GPU a planted stage, or a `device` that cheats; elsewhere a synthetic
    clock, with the `cheat` of that name."""

    spec: str
    cheat: str
    changes: tuple[Change, ...] = ()
    problem: Problem = LONG
    device: Callable[[], Device] | None = None

    def __call__(self, device: Device) -> Outcome:
        if device.name != "cuda":
            return time_of(timed_by_clock(self.cheat))
        stage = planted_stage(self.spec, *self.changes)
        if self.device is None:
            return time_of(timing.bench(stage, device, self.problem, EFFORT))
        cheating = IsolatedDevice(self.device)
        try:
            return time_of(timing.bench(stage, cheating, self.problem, EFFORT))
        finally:
            cheating.close()


EFFORT = timing.Effort(relative_error=0.0, seconds=5.0, enough=40, most=40, warm_up_seconds=0.0, sustained_seconds=0.01)
"""Always 40 samples, which are launches 3 to 42 of the plan."""

NOT_TIMED, TIMED = "not timed", "timed"


def time_of(outcome: Measurement | str) -> Outcome:
    """A measurement, or why there is none."""
    if isinstance(outcome, str):
        return Outcome(NOT_TIMED, outcome)
    return Outcome(TIMED, f"cold {median(outcome.timing.cold_us):.1f} us")


COUNT_LAUNCHES = """__shared__ unsigned launch;  // how many there were before this one
  if (threadIdx.x == 0) launch = atomicAdd(&blocks, 1u) / gridDim.x;
  __syncthreads();
  """
ROWS = "if (n >= N) return;"
COUNTER = Change(HEAD, f"__device__ unsigned blocks;\n{HEAD}")
COUNTED = (COUNTER, Change(ROWS, COUNT_LAUNCHES + ROWS))
LOOP = "for (int k = 0; k < K; ++k) sum += to_float(a[k]) * to_float(b[k]);"
STORE = "c[n] = from_float<OUT>(sum);"
LAST_BLOCK = """__threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&blocks, 1u) % gridDim.x == gridDim.x - 1)"""

REPLAYED = (
    Change(HEAD, f"__device__ unsigned blocks;\n__device__ float kept[4096], kept_for;\n{HEAD}"),
    Change(LOOP, f"if (kept_for == to_float(a[0])) sum = kept[n];\n  else {LOOP}"),
    Change(STORE, f"kept[n] = sum;\n  {STORE}\n  {LAST_BLOCK} kept_for = to_float(a[0]);"),
)
ONCE = (
    COUNTER,
    Change(ROWS, f"if (*static_cast<volatile unsigned*>(&blocks) >= gridDim.x) return;\n  {ROWS}"),
    Change(STORE, f"{STORE}\n  __syncthreads();\n  if (threadIdx.x == 0) atomicAdd(&blocks, 1u);"),
)
DRIFTING = (*COUNTED, Change(STORE, "c[n] = from_float<OUT>(launch < 20 ? sum : sum + 1.f);"))
SLOWER = (
    *COUNTED,
    Change(
        LOOP,
        f"""for (int times = launch < 18 ? 1 : 3; times > 0; --times) {{
    asm volatile("" : "+l"(b) : : "memory");  // all of it again
    sum = 0.f;
    {LOOP}
  }}""",
    ),
)
FIRST_OF_BLOCK = """const long long first = static_cast<long long>(blockIdx.x) * THREADS * WIDTH;
  if (__syncthreads_and(first < n && to_float(c[first]) == to_float(a[first]) + to_float(b[first]))) return;
  """
STRIDE = "const long long stride = static_cast<long long>(gridDim.x)"
SAMPLED = (Change(STRIDE, FIRST_OF_BLOCK + STRIDE),)


class OtherStream(CudaDevice):
    """The GPU, with all work left on a stream that whoever times it does not watch."""

    def bind(self, *arguments: Any, **more: Any) -> CudaPlan:
        from cupy.cuda import Stream

        plan, stream = super().bind(*arguments, **more), Stream(non_blocking=True)
        enqueue = plan.enqueue

        def elsewhere() -> None:
            with stream:
                enqueue()

        plan.enqueue = elsewhere  # type: ignore[method-assign]
        return plan


def in_the_l2(device: Device) -> Outcome:
    """A right stage on 33 MB: its cold time has to be one of cold memory, whatever it takes back to back."""
    if device.name != "cuda":
        outcome = timed_by_clock("")
    else:
        (stage,) = registry.select(["matvec:split_k"])
        problem = MatvecProblem(n=4096, k=4096, dtype="bf16", out="bf16")
        outcome = timing.bench(stage, device, problem, timing.Effort(seconds=0.2, sustained_seconds=0.1))
    if isinstance(outcome, str):
        return Outcome(NOT_TIMED, outcome)
    cold, sustained = (median(samples) for samples in (outcome.timing.cold_us, outcome.timing.sustained_us))
    apart = "is told apart" if cold > 1.2 * sustained else "is not told apart"
    return Outcome(TIMED, f"{sustained:.1f} us out of the L2 {apart} from {cold:.1f} us, cold: it is flushed each time")


IDLE_SECONDS = 4.0
"""How long a GPU is left alone for its clock to fall."""


def cold_clocks(device: Device) -> Outcome:
    """A GPU that was idle, timed with the usual warm-up and without any."""
    outcomes = []
    usual = timing.Effort(seconds=0.1, sustained_seconds=0.01)
    for effort in (replace(usual, warm_up_seconds=0.0, most_warm_up_seconds=0.0), usual):
        if device.name != "cuda":
            outcomes.append((IDLE_MHZ, timed_by_clock("idle", effort.most_warm_up_seconds)))
            continue
        (stage,) = registry.select(["matvec:naive"])
        time.sleep(IDLE_SECONDS)
        clock = nvml.sm_clock()
        outcomes.append((clock, timing.bench(stage, device, LONG, effort)))
    said = []
    for (clock, outcome), when in zip(outcomes, ("without a warm-up", "with it"), strict=True):
        if isinstance(outcome, str):
            said.append(f"{when}: not timed: {outcome}")
            continue
        settled = "had" if outcome.conditions.clock_steady else "had not"
        samples = f"samples of {min(outcome.timing.cold_us):.1f} to {max(outcome.timing.cold_us):.1f} us"
        said.append(f"{when}: the clock, {clock} MHz before, {settled} settled; {samples}")
    return Outcome(TIMED, "; ".join(said))


def power_cap(device: Device) -> Outcome:
    """The heaviest work there is, which the GPU cannot do at its highest clock."""
    if device.name != "cuda":
        outcome = timed_by_clock("capped")
    else:
        (stage,) = registry.select(["gemm:tma_pipeline"])
        effort = timing.Effort(relative_error=0.0, seconds=2.0, enough=200, most=200, sustained_seconds=1.0)
        outcome = timing.bench(stage, device, GemmProblem(m=8192, n=8192, k=8192, dtype="bf16", out="bf16"), effort)
    if isinstance(outcome, str):
        return Outcome(NOT_TIMED, outcome)
    return Outcome(TIMED, "; ".join(derived.warnings([outcome], device.info())))


class ConstantInputs(VectorAddProblem):
    """Vectors of zeros."""

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: values * 0 for name, values in super().inputs().items()}


def constant(device: Device) -> Outcome:
    (stage,) = registry.select(["vector_add:naive"])
    return time_of(timing.bench(stage, device, ConstantInputs(n=1000, dtype="fp32")))


class Editor:
    """Listens to a session, and edits the source that was verified when it is about to be timed."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def verified(self, problems: int) -> None:
        pass

    def timing(self, label: str) -> None:
        self.source.write_text(self.source.read_text() + "// faster\n")


def edited(device: Device) -> Outcome:
    (stage,) = registry.select(["vector_add:naive"])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / stage.path.name
        source.write_text(stage.path.read_text())
        result = TimedSession(device, examples=2, seed=0).stage(replace(stage, source=str(source)), Editor(source))
    if result.verification.failure:
        raise Fault(result.verification.verdict, result.verification.failure.message)
    reasons = set(result.untimed.values())
    return Outcome(TIMED if result.measurements else NOT_TIMED, "\n".join(sorted(reasons)))


TIMES = (
    HarnessFault("41-other-stream", "work left on another stream",
        Timed("matvec:naive", "stream", device=OtherStream), "work that was not timed", NOT_TIMED,
        where="`enqueue` of the device"),
    HarnessFault("42-replay", "an earlier answer given again, by content of the inputs",
        Timed("matvec:naive", "content", REPLAYED), "answers are kept and given again", NOT_TIMED),
    HarnessFault("43-once", "does the work once and skips later calls", Timed("matvec:naive", "once", ONCE),
        r"wrong after timing: (\d+) of \1 elements", NOT_TIMED),
    HarnessFault("44-drift", "drifts after twenty calls", Timed("matvec:naive", "drift", DRIFTING),
        r"wrong after timing: (\d+) of \1 elements", NOT_TIMED),
    HarnessFault("45-l2", "data in the L2 presented as bandwidth of the device", in_the_l2, "is told apart from",
        TIMED, where="a problem of 33 MB, `matvec:split_k`"),
    HarnessFault("46-throttled", "slower from some call on, as when the clock falls",
        Timed("matvec:naive", "throttled", SLOWER), "not steady", NOT_TIMED),
    HarnessFault("46-cold-clocks", "clocks that are still rising after idleness", cold_clocks,
        "without a warm-up: .*(had not settled|not steady).*; with it: .*had settled", TIMED,
        where="nothing: the device was idle"),
    HarnessFault("46-power-cap", "clocks held back by the power limit", power_cap,
        r"clocks were held back by .*(Power|Thermal|Slowdown)", TIMED,
        where="nothing: a product of 8192 x 8192 x 8192 draws more than the device may"),
    HarnessFault("47-below-roofline", "looks at one element of each block and skips the rest: faster than memory",
        Timed("vector_add:grid_stride", "impossible", SAMPLED, VectorAddProblem(n=5 << 20, dtype="fp32")),
        "below the roofline bound|answers are kept and given again", NOT_TIMED),
    HarnessFault("48-constant-inputs", "zeros as inputs", constant, "every element of a, b has the same value",
        NOT_TIMED, where="`inputs` of vector_add"),
    HarnessFault("49-other-binary", "the source edited after it was verified", edited,
        "the source has changed since it was verified", NOT_TIMED, where="`vector_add:naive`"),
)  # fmt: skip

ON_A_CLOCK = range(41, 48)
"""Faults whose time, where there is no GPU, is that of a synthetic clock."""
