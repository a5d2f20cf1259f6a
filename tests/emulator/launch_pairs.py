"""Pairs of launches with a fault and without: each named by two lines, or clean.

The sources are written for this test. Where there is a `report`, the fault is the one that is described there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.emulator import Output, Report, Session

N = 256
SYNC, TRIGGER = "cudaGridDependencySynchronize();", "cudaTriggerProgrammaticLaunchCompletion();"
SETUP = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
FILL = f"__global__ void fill(float* y) {{ {SETUP} {TRIGGER} y[i] = i; }}  // THERE\n"
"""A producer that triggers before it stores."""

Arrays = dict[str, np.ndarray[Any, Any]]
Steps = Callable[[Session, Arrays, bool], list[Report]]
"""Launches on some arrays, faulty or not."""


def launched(*kernels: str, grid: int = 2, block: int = 128) -> Steps:
    """Launches of one stream, programmatic but for the first: ``name array array``. No array has values before."""

    def steps(session: Session, arrays: Arrays, _: bool) -> list[Report]:
        reports = []
        for number, text in enumerate(kernels):
            name, *names = text.split()
            given = {one: arrays[one] if one in "xc" else Output(arrays[one]) for one in names}
            options = {"stream": 1, "programmatic": number > 0, "seed": number}
            reports.append(session.launch(name, grid, block, given, **options))
        return reports

    return steps


@dataclass(frozen=True)
class Pair:
    """What is wrong, the source with `#ifdef FIXED`, the launches. Lines of the fault have // HERE and // THERE.

    ``says`` is a part of the advice. A line without a mark is that of a copy or of the host.
    """

    name: str
    source: str
    says: str
    steps: Steps = field(default_factory=lambda: launched("fill y", "use y z"))
    report: str = ""


def _streams(session: Session, arrays: Arrays, fixed: bool) -> list[Report]:
    y, z = Output(arrays["y"]), Output(arrays["z"])
    first = session.launch("fill", 2, 128, {"y": y}, stream=1)
    event = session.event(1)
    return [first, session.launch("use", 2, 128, {"y": y, "z": z}, stream=2, after=[event] if fixed else [])]


def _early_event(session: Session, arrays: Arrays, fixed: bool) -> list[Report]:
    x, y, z = arrays["x"], Output(arrays["y"]), Output(arrays["z"])
    reports = [session.launch("use", 2, 128, {"y": x, "z": Output(arrays["w"])}, stream=1)]
    event = session.event(1)
    reports.append(session.launch("fill", 2, 128, {"y": y}, stream=1))
    event = session.event(1) if fixed else event
    return [*reports, session.launch("use", 2, 128, {"y": y, "z": z}, stream=2, after=[event])]


def _copied_over(session: Session, arrays: Arrays, fixed: bool) -> list[Report]:
    x, z = arrays["x"], Output(arrays["z"])
    report = session.launch("use", 2, 128, {"y": x, "z": z}, stream=1)
    session.copy(x, 0, stream=1 if fixed else 2)
    return [report]


def _host(session: Session, arrays: Arrays, fixed: bool) -> list[Report]:
    report = session.launch("fill", 2, 128, {"y": arrays["x"]}, stream=1)
    if fixed:
        session.synchronize(session.event(1))
    session.access(arrays["x"])
    return [report]


def behind(use: str = "use", **of_event: bool) -> Steps:
    """A launch, or ``copy``, in another stream behind an event of a launch, which is mended by an ordinary one."""

    def steps(session: Session, arrays: Arrays, fixed: bool) -> list[Report]:
        y, z = Output(arrays["y"]), Output(arrays["z"])
        reports = [session.launch("fill", 2, 128, {"y": y}, stream=1)]
        event = session.event(1, **({} if fixed and use != "waits" else of_event))
        if use == "copy":
            session.copy(arrays["z"], arrays["y"], stream=2, after=[event])
        else:
            reports.append(session.launch("use", 2, 128, {"y": y, "z": z}, stream=2, after=[event]))
        return reports

    return steps


PLAIN_USE = f"__global__ void use(const float* y, float* z) {{ {SETUP} z[i] = y[N - 1 - i]; }}  // HERE\n"

PAIRS = [
    Pair(
        "reads before the wait",
        FILL
        + f"""__global__ void use(const float* y, float* z) {{
    {SETUP}
    FIX({SYNC})
    float v = y[N - 1 - i];  // HERE
    {SYNC}
    z[i] = v;
}}""",
        "move cudaGridDependencySynchronize() from",
    ),
    Pair(
        "writes before the wait",
        f"""__global__ void add(float* z) {{ {SETUP} {TRIGGER} z[i] = i; }}  // THERE
__global__ void use(const float* y, float* z) {{
    {SETUP}
    FIX({SYNC})
    z[i] = 1;  // HERE
    {SYNC}
    z[i] += 1;
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("add z", "use y z"),
    ),
    Pair(
        "never waits",
        FILL
        + f"""__global__ void use(const float* y, float* z) {{
    {SETUP}
    FIX({SYNC})
    __shared__ float s[128];
    s[t] = y[i];  // HERE
    for (int half = 64; half > 0; half /= 2) {{
        __syncthreads();
        float sum = s[t] + s[t ^ half], difference = s[t ^ half] - s[t];
        __syncthreads();
        s[t] = t & half ? difference : sum;
    }}
    z[i] = s[t];
}}""",
        "cudaGridDependencySynchronize() has to come before kernels.cu:",
        report="https://github.com/ggml-org/llama.cpp/pull/23690",
    ),
    Pair(
        "a warp that does not wait",
        FILL
        + f"""__global__ void use(const float* y, float* z) {{
    {SETUP}
    __shared__ float s[32];
    if (t < 32) {{
        {SYNC}
        s[t] = y[t];
    }}
#ifdef FIXED
    __syncthreads();
    float bias = y[N - 1 - i];
#else
    float bias = y[N - 1 - i];  // HERE
    __syncthreads();
#endif
    z[i] = s[t % 32] + bias;
}}""",
        "not all threads come to cudaGridDependencySynchronize()",
        report="https://github.com/flashinfer-ai/flashinfer/pull/4685",
    ),
    Pair(
        "array kernel without a wait",
        f"""__global__ void pack(const float** p, float* y) {{
    {SETUP} {TRIGGER}
    y[i] = i;
    if (t == 0) p[blockIdx.x] = y + 128 * blockIdx.x;  // THERE
}}
__global__ void grouped(const float* const* p, float* z) {{
    {SETUP}
    __shared__ const float* mine;
    FIX({SYNC})
    if (t == 0) mine = p[blockIdx.x];  // HERE
    __syncthreads();
    z[i] = mine[t];
}}""",
        "cudaGridDependencySynchronize() has to come before kernels.cu:",
        launched("pack p y", "grouped p z"),
        report="https://github.com/NVIDIA/cutlass/issues/2760",
    ),
    Pair(
        "sizes read by a constructor before the wait",
        f"""struct Sizes {{ int m, n; }};
struct Scheduler {{
    Sizes first;
    __device__ Scheduler(const Sizes* sizes) : first(sizes[0]) {{}}  // HERE
}};
__global__ void route(Sizes* sizes) {{ {TRIGGER} if (threadIdx.x == 0) sizes[blockIdx.x] = Sizes{{64, 2}}; }}  // THERE
__global__ void grouped(const Sizes* sizes, float* z) {{
    {SETUP}
#ifdef FIXED
    {SYNC}
    Scheduler scheduler(sizes);
#else
    Scheduler scheduler(sizes);
    {SYNC}
#endif
    if (i < scheduler.first.m * scheduler.first.n) z[i] = i;
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("route c", "grouped c z"),
        report="https://github.com/NVIDIA/cutlass/issues/2962",
    ),
    Pair(
        "loads of a warp behind no wait",
        f"""__global__ void preprocess(const float* x, float* d) {{
    {SETUP}
    float v = x[i];
    {TRIGGER}
    d[i] = v * v;  // THERE
}}
__global__ void gradient(const float* x, const float* d, float* q) {{
    {SETUP}
    __shared__ float s[128];
    if (t / 32 == 3) {{
        FIX({SYNC})
        for (int k = t % 32; k < 128; k += 32) s[k] = d[128 * blockIdx.x + k];  // HERE
    }}
    __syncthreads();
    q[i] = x[i] * s[t];
}}""",
        "cudaGridDependencySynchronize() has to come before kernels.cu:",
        launched("preprocess x d", "gradient x d q"),
        report="https://github.com/Dao-AILab/flash-attention/pull/2498",
    ),
    Pair(
        "a bulk copy begins before the wait",
        f"""__global__ void quantize(float* y) {{ {SETUP} {TRIGGER} y[i] = i; }}  // THERE
__global__ void product(const float* y, float* z) {{
    {SETUP}
    __shared__ alignas(128) float tile[128];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned b = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
    if (t == 0) {{
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(b) : "memory");
        FIX({SYNC})
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" ::"r"(b) : "memory");
        const float* from = y + 128 * blockIdx.x;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];"  // HERE
                     ::"r"(to), "l"(from), "r"(b) : "memory");
    }}
    __syncthreads();
    asm volatile("{{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }}"
                 ::"r"(b) : "memory");
    z[i] = tile[t];
}}""",
        "cudaGridDependencySynchronize() has to come before kernels.cu:",
        launched("quantize y", "product y z"),
        report="https://github.com/flashinfer-ai/flashinfer/pull/3361",
    ),
    Pair(
        "members read by a constructor",
        f"""struct Fused {{
    float residual;
    __device__ Fused(const float* r, int i) : residual(r[i]) {{}}  // HERE
    __device__ float update(float v) {{ return residual + v; }}
}};
__global__ void embed(float* r) {{ {SETUP} {TRIGGER} r[i] = i; }}  // THERE
__global__ void fused(const float* r, float* z) {{
    {SETUP}
#ifdef FIXED
    {SYNC}
    Fused op(r, i);
#else
    Fused op(r, i);
    {SYNC}
#endif
    z[i] = op.update(1);
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("embed r", "fused r z"),
        report="https://github.com/flashinfer-ai/flashinfer/pull/5081",
    ),
    Pair(
        "merge behind a partition that does not wait",
        f"""__global__ void sort_blocks(const float* x, float* k) {{ {SETUP} {TRIGGER} k[i] = x[i]; }}  // THERE
__global__ void partition(float* p) {{
    {SETUP} {TRIGGER}
    FIX({SYNC})
    if (t == 0) p[blockIdx.x] = 128 * blockIdx.x;
}}
__global__ void merge(const float* p, const float* k, float* z) {{
    {SETUP}
    {SYNC}
    int first = p[blockIdx.x];
    z[i] = k[first + t];  // HERE
}}""",
        "call cudaGridDependencySynchronize() in partition, too",
        launched("sort_blocks x k", "partition p", "merge p k z"),
        report="https://github.com/NVIDIA/cccl/issues/3131",
    ),
    Pair(
        "overwrites what the first still reads",
        f"""__global__ void total(const float* x, float* y) {{ {SETUP} {TRIGGER} y[i] = x[N - 1 - i]; }}  // THERE
__global__ void next(float* x, const float* y) {{
    {SETUP}
    FIX({SYNC})
    x[i] = i;  // HERE
    {SYNC}
    x[i] += y[i];
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("total x y", "next x y"),
    ),
    Pair(
        "third of three overwrites the input of the first",
        f"""__global__ void one(const float* x, float* y) {{ {SETUP} {TRIGGER} y[i] = x[N - 1 - i]; }}  // THERE
__global__ void two(float* w) {{
    {SETUP} {TRIGGER}
    FIX({SYNC})
    w[i] = i;
}}
__global__ void three(float* x, const float* w) {{ {SETUP} {SYNC} x[i] = w[i]; }}  // HERE""",
        "call cudaGridDependencySynchronize() in two, too",
        launched("one x y", "two w", "three x w"),
    ),
    Pair(
        "a counter is reset too early",
        f"""__global__ void count(unsigned* c) {{ {TRIGGER} atomicAdd(c, 1); }}  // THERE
__global__ void reset(unsigned* c, float* z) {{
    {SETUP}
    FIX({SYNC})
    if (i == 0) *c = 0;  // HERE
    {SYNC}
    z[i] = i;
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("count c", "reset c z"),
    ),
    Pair(
        "a counter is reset too early by an atomic",
        f"""__global__ void count(unsigned* c) {{ {TRIGGER} atomicAdd(c, 1); }}  // THERE
__global__ void reset(unsigned* c, float* z) {{
    {SETUP}
    FIX({SYNC})
    if (i == 0) atomicExch(c, 0);  // HERE
    {SYNC}
    z[i] = i;
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("count c", "reset c z"),
    ),
    Pair(
        "a workspace is cleared too early",
        f"""__global__ void combine(const float* x, float* y) {{ {SETUP} {TRIGGER} y[i] = x[N - 1 - i]; }}  // THERE
__global__ void split(float* x) {{
    {SETUP}
    FIX({SYNC})
    if (i < N / 4) reinterpret_cast<float4*>(x)[i] = float4{{}};  // HERE
    {SYNC}
}}""",
        "move cudaGridDependencySynchronize() from",
        launched("combine x y", "split x", block=32, grid=8),
    ),
    Pair(
        "a wait in a branch",
        FILL
        + f"""__global__ void use(const float* y, float* z) {{
    {SETUP}
#ifdef FIXED
    {SYNC}
#else
    if (blockIdx.x == 0) {SYNC}
#endif
    z[i] = y[i];  // HERE
}}""",
        "not all threads come to cudaGridDependencySynchronize()",
    ),
    Pair(
        "a trigger by some warps, taken for a flag",
        f"""__global__ void fill(float* y) {{
    {SETUP}
    if (t >= 96) {{
        __threadfence();
        {TRIGGER}
    }}
    y[i] = i;  // THERE
}}
__global__ void use(const float* y, float* z) {{
    {SETUP}
    FIX({SYNC})
    z[i] = y[N - 1 - i];  // HERE
}}""",
        "lets this kernel begin, and makes nothing visible",
    ),
    Pair(
        "the end without a trigger, taken for a wait",
        f"""__global__ void fill(float* y) {{ {SETUP} y[i] = i; }}  // THERE
__global__ void use(const float* y, float* z) {{
    {SETUP}
    FIX({SYNC})
    z[i] = y[i];  // HERE
}}""",
        "this kernel may begin before what fill has stored is visible",
    ),
    Pair("two streams", FILL + PLAIN_USE, "they are in streams 1 and 2; record an event behind fill", _streams),
    Pair("an event that is recorded too early", FILL + PLAIN_USE, "record an event behind fill", _early_event),
    Pair("an event of the trigger", FILL + PLAIN_USE, "has to come before kernels.cu:", behind(programmatic=True)),
    Pair(
        "an event of the start of blocks, and no wait",
        FILL + PLAIN_USE.replace("z[i]", f"\n#ifdef FIXED\n{SYNC}\n#endif\nz[i]"),
        "this kernel may begin before what fill has stored is visible",
        behind("waits", programmatic=True, launch_completion=True),
    ),
    Pair(
        "a launch completion event, which the wait does not wait for",
        FILL + PLAIN_USE.replace("z[i]", f"{SYNC} z[i]"),
        "recorded behind fill: cudaGridDependencySynchronize() does not wait for it",
        behind(launch_completion=True),
    ),
    Pair(
        "a copy behind an event of the trigger",
        FILL,
        "wait for an event that is recorded behind fill",
        behind("copy", programmatic=True),
    ),
    Pair(
        "a memset over what a kernel reads",
        PLAIN_USE.replace("HERE", "THERE"),
        "record an event behind use and let the memset of",
        _copied_over,
    ),
    Pair("the host reads pinned memory", FILL, "record an event behind fill and let the host's read of", _host),
]
