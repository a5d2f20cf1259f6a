"""Products of fp32 and of scaled fp8 against cuBLAS and cuBLASLt, by `workbench.ops`: makes `reports/gemm-types.md`.

    python benchmarks/gemm_types.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/gemm_types.py write [OUTPUT.json]   # the page, of that file and nothing else

Timed and compared with NumPy as in `gemm_suite.py`. cuBLASLt is asked for sums that are promoted to fp32 on the way,
as ours are; PyTorch calls it so by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recorded
from gemm_suite import Product, compared, measure

from workbench.kernels.gemm import GemmProblem
from workbench.kernels.gemm_fp8 import ScaledGemmProblem

RECORD = Path(__file__).parents[1] / "reports/gemm-types.json"
FP32_SIZES, FP8_SIZES = (4096, 8192), (1024, 2048, 4096, 8192)


def suite() -> Iterator[Product]:
    """Cubes of fp32 in both layouts, and of e4m3 with a scale a row."""
    for size in FP32_SIZES:
        for layout in ("nn", "nt"):
            yield "gemm", GemmProblem(m=size, n=size, k=size, dtype="fp32", out="fp32", layout=layout)
    for size in FP8_SIZES:
        yield "gemm_fp8", ScaledGemmProblem(m=size, n=size, k=size)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    single = [row for row in record["rows"] if "dtype=fp32" in row["problem"]]
    scaled = [row for row in record["rows"] if row not in single]
    return "\n".join(
        (
            "# Products of fp32 and of scaled fp8\n",
            "Written by `benchmarks/gemm_types.py` from [the JSON beside it](gemm-types.json). Each product is computed"
            " by the stage that `workbench.ops` takes for it and timed interleaved with the library; above 1 ours is "
            "faster. Cold: the L2 is flushed before each sample, medians; sustained: launches back to back.\n",
            recorded.made_on(record),
            "## fp32 on CUDA cores\n",
            "cuBLAS without TF32.\n",
            compared(single, "cuBLAS").table,
            "## e4m3 with a scale a row of A and of B, C of bf16\n",
            "The library is cuBLASLt as PyTorch calls it by default: like ours, it promotes sums to fp32.\n",
            compared(scaled, "cuBLASLt").table,
        )
    )


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file, suite()), page)
