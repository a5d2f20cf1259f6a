"""A record with figures of the right order of magnitude, for tests of what reads records. Nothing was measured."""

from __future__ import annotations

import random
from dataclasses import replace

from workbench.catalogue import registry
from workbench.model.results import (
    Conditions,
    DeviceInfo,
    Environment,
    Failure,
    Measurement,
    Resources,
    Run,
    StageResult,
    Timing,
    Verdict,
    Verification,
    WrongElement,
)

H200 = DeviceInfo(
    kind="cuda",
    name="NVIDIA H200",
    architecture="sm_90",
    sm_count=132,
    memory_bytes=150 * 10**9,
    l2_bytes=60 * 2**20,
    driver="580.1",
    sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    power_limit_w=700.0,
    peak_bytes_per_s=4.917e12,
    peak_flops={"bf16": 1070.5e12, "fp16": 1070.5e12, "fp32": 66.9e12},
    peak_formulas={
        "bf16": "132 SMs x 1980 MHz x 4096 operations a clock",
        "bytes_per_s": "3201 MHz x 2 x 6144 bit / 8",
    },
)
EMULATOR = DeviceInfo(kind="emulator", name="emulated H200", architecture="sm_90a", sm_count=132)


def environment(**changes: object) -> Environment:
    """An environment that no machine has."""
    fields = {
        "date": "2026-01-02T03:04:05Z",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "host": "AMD EPYC 9554, 16 cores",
        "python": "3.12.1",
        "packages": {"numpy": "2.4.0", "cupy-cuda13x": "14.0.0"},
    }
    return Environment(**{**fields, **changes})


def verification(verdict: Verdict = Verdict.PASS, failure: Failure | None = None) -> Verification:
    """A verification of 50 problems."""
    return Verification(
        verdict,
        seed=7,
        problems=50,
        tiers={"exact": 50, "bounded": 49},
        covered={"dtype": {"bf16": 20, "fp16": 17, "fp32": 13}, "layout": {"nn": 26, "nt": 24}},
        unsupported={"rows have to be a multiple of 16 bytes apart": 12} if verdict is Verdict.PASS else {},
        worst_error=0.2134,
        seconds=3.21,
        failure=failure,
    )


MISMATCH = Failure(
    Verdict.MISMATCH,
    "m=2,n=3,k=1,dtype=bf16,out=fp32,layout=nt,tier=exact,seed=0",
    "3 of 6 elements of C are wrong",
    "workbench verify gemm:naive --problem 'm=2,n=3,k=1'",
    [WrongElement("C", [0, i], "nan" if i else "1.5", "2", 0.0) for i in range(3)],
    wrong_count=3,
    element_count=6,
)


def timing(name: str, median: float, rng: random.Random) -> Timing:
    """Samples around a median, in microseconds."""
    cold = [round(median * rng.gauss(1.0, 0.01), 3) for _ in range(21)]
    return Timing(name, cold, [round(median * 0.97 * rng.gauss(1.0, 0.003), 3) for _ in range(5)])


def stage(operation: str, name: str, **changes: object) -> StageResult:
    """A stage that passed and was not timed."""
    fields = {
        "operation": operation,
        "stage": name,
        "idea": f"what {name} adds",
        "source": f"{operation}/{name}.cu",
        "source_sha256": "ab" * 32,
        "verification": verification(),
        "resources": [
            Resources("T=float TRANS_B=1", f"{operation}_{name}", 40, 0, 81920, 0, 256, 2, 0.25, "shared memory")
        ],
    }
    return StageResult(**{**fields, **changes})


def timed_run(operation: str = "gemm", seed: int = 1) -> Run:
    """A run of every stage of an operation on a GPU, each roughly three times as fast as the one before."""
    rng = random.Random(seed)
    ladder = registry.operations()[operation]
    run = Run(H200, environment(), seed=7, examples=50)
    for i, declared in enumerate(ladder.stages):
        behind = len(ladder.stages) - 1 - i
        result = stage(operation, declared.name, idea=declared.idea, source=declared.source)
        for problem in ladder.suite:
            cost, dtype = problem.cost, getattr(problem, "dtype", "fp32")
            if dtype == "fp32" and operation == "gemm" and i >= 3:
                result.untimed[problem.label] = "tensor cores multiply bf16 and fp16 here, not fp32"
                continue
            memory, compute = 1e6 * cost.bytes / H200.peak_bytes_per_s, 1e6 * cost.flops / H200.peak_flops[dtype]
            bound = max(memory, compute)
            best = bound / 0.75 + 2
            slow = min(2.6**behind, 150.0)
            result.measurements.append(
                Measurement(
                    problem=str(problem),
                    label=problem.label,
                    flops=cost.flops,
                    bytes=cost.bytes,
                    roofline_us=bound,
                    roofline_by="memory" if memory >= compute else "compute",
                    timing=timing(declared.spec, best * slow, rng),
                    baselines=[timing("cuBLAS", best * 0.98, rng)]
                    + ([replace(timing("copy", best * 0.93, rng), solves=False)] if operation == "vector_add" else []),
                    conditions=Conditions([1755, 1980], [3201], [412.5, 688.0], [44, 61], ["SwPowerCap"]),
                )
            )
        run.stages.append(result)
    return run


def emulated_run(operation: str = "gemm") -> Run:
    """A run of every stage of an operation in the emulator; the first one failed."""
    run = Run(EMULATOR, environment(), seed=7, examples=50)
    for i, declared in enumerate(registry.operations()[operation].stages):
        outcome = verification() if i else verification(Verdict.MISMATCH, MISMATCH)
        run.stages.append(stage(operation, declared.name, verification=outcome))
    return run
