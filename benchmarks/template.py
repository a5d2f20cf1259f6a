"""The kernel that `docs/template.md` builds, beside plain ones of the same result: makes `reports/template.md`.

    python benchmarks/template.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/template.py write [OUTPUT.json]   # the page, of that file and nothing else

Every answer is compared with NumPy's before it is timed. All kernels are timed interleaved, cold and sustained.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import recorded
from pandas import DataFrame
from tabulate import tabulate

from workbench.devices.cuda import CudaDevice
from workbench.measure import timing
from workbench.model.arrays import Array
from workbench.model.dtypes import BF16
from workbench.model.launch import Launch, Plan, ceil_div
from workbench.model.results import Conditions
from workbench.model.tensor_map import TensorMap
from workbench.report import derived, frame
from workbench.toolchain.compiler import compile_source

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "reports/template.json"
PAGE = ROOT / "docs/template.md"

SHAPES = ((4096, 4096), (16384, 8192), (20000, 13704))
"""Rows and columns of bf16 matrices."""

PLAIN = """
#include "tile/convert.cuh"
#include "tile/vector.cuh"
using Element = __nv_bfloat16;

__device__ __forceinline__ Element swiglu(Element gate, Element up) {
  const float x = to_float(gate);
  return from_float<Element>(to_float(up) * __fdividef(x, 1.f + __expf(-x)));
}

// out = up * silu(gate), an element a thread
extern "C" __global__ void plain(const Element* gate, const Element* up, Element* out, long long n) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = swiglu(gate[i], up[i]);
}

// the same, 16 bytes a thread. n is a multiple of 8
extern "C" __global__ void vectorized(const Element* gate, const Element* up, Element* out, long long n) {
  constexpr int COUNT = VECTOR_BYTES / sizeof(Element);
  const long long i = (blockIdx.x * 256ll + threadIdx.x) * COUNT;
  if (i >= n) return;
  const auto x = load_vector<COUNT>(gate + i), y = load_vector<COUNT>(up + i);
  Vector<Element, COUNT> v;
#pragma unroll
  for (int j = 0; j < COUNT; ++j) v.x[j] = swiglu(x.x[j], y.x[j]);
  store_vector(out + i, v);
}
"""


def launches(rows: int, columns: int) -> dict[str, tuple[str, Launch]]:
    """Sources and launches by name: the plain kernel, its vectorised form, and the two on the template."""
    text = PAGE.read_text()
    first, *middle, last = re.findall(r"^```cuda\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (stored,) = re.findall(r"^```cuda stored\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    count = np.int64(rows * columns)

    def flat(kernel: str, elements: int) -> Launch:
        grid = (ceil_div(rows * columns, 256 * elements), 1, 1)
        return Launch(kernel, grid, (256, 1, 1), ("gate", "up", "out", count))

    def on_template(out_rows: int) -> Launch:
        boxes = (TensorMap("gate", (128, 64)), TensorMap("up", (128, 64)), TensorMap("out", (out_rows, 64)))
        return Launch(
            "swiglu",
            (ceil_div(rows, 128) * ceil_div(columns, 64), 1, 1),
            (384, 1, 1),
            (*boxes, np.int32(rows), np.int32(columns)),
            shared_bytes=227 * 1024,
            persistent=True,
        )

    return {
        "plain": (PLAIN, flat("plain", 1)),
        "vectorized": (PLAIN, flat("vectorized", 8)),
        "template, its warps store": ("\n".join((first, *middle, last)), on_template(16)),
        "template, which stores": (f"{first}{stored}{last}", on_template(128)),
    }


def worst(out: np.ndarray[Any, Any], gate: np.ndarray[Any, Any], up: np.ndarray[Any, Any]) -> float:
    """The largest error / bound: half a unit in the last place of bf16, and what the approximated exponential adds."""
    x, y = gate.astype(np.float64), up.astype(np.float64)
    expected = y * x / (1 + np.exp(-x))
    return float(np.max(np.abs(out.astype(np.float64) - expected) / (2.0**-8 * np.abs(expected) + 1e-6)))


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once."""
    device = CudaDevice()
    info, rng = device.info(), np.random.default_rng(0)
    record = recorded.begin(info, "rows")
    for rows, columns in SHAPES:
        arrays = {name: Array((rows, columns), BF16, output=name == "out") for name in ("gate", "up", "out")}
        drawn = rng.standard_normal((2, rows * columns), dtype=np.float32).astype(ml_dtypes.bfloat16)
        storage = {"gate": drawn[0], "up": drawn[1], "out": arrays["out"].poisoned()}
        plans: dict[str, Any] = {}
        for name, (source, launch) in launches(rows, columns).items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{launch.kernel}.cu"
                path.write_text(source)
                plans[name] = device.bind(compile_source(path, {}), Plan((launch,)), arrays, storage)
            plans[name].run()
            error = worst(plans[name].read("out"), *drawn)
            if not error <= 1:
                raise SystemExit(f"{name} is wrong on {rows}x{columns}: {error:.3g} times the bound")
        timings = timing.measure({n: p.enqueue for n, p in plans.items()}, info.l2_bytes, timing.Effort(), Conditions())
        for name, found in timings.items():
            row = {"rows": rows, "columns": columns, "name": name, "cold_us": found.cold_us}
            record["rows"].append({**row, "sustained_us": found.sustained_us})
            print(rows, columns, name, derived.median(found.cold_us), derived.median(found.sustained_us), flush=True)
        recorded.save(record, output)
        for plan in plans.values():
            plan.close()


WITHOUT = {"plain": "which has an element a thread", "vectorized": "which has 16 bytes a thread"}
"""The kernels that are not on the template."""


def reading(times: DataFrame) -> str:
    """What the table says, in words: beside which kernel those on the template are faster, and by how much."""
    sentences = []
    for other, what in WITHOUT.items():
        found, every = [], []
        for how in ("cold", "sustained"):
            by_name = times.pivot(index="shape", columns="name", values=f"{how}_us").loc[times["shape"].unique()]
            ratios = by_name.drop(columns=list(WITHOUT)).div(by_name[other], axis=0)
            every += ratios.stack().tolist()
            spans = zip(ratios.index, ratios.min(axis=1), ratios.max(axis=1), strict=True)
            parts = [f"{' to '.join(dict.fromkeys((f'{a:.2f}', f'{b:.2f}')))} on {shape}" for shape, a, b in spans]
            found.append(f"{how}, {'; '.join(parts)}")
        verdict = "faster than" if max(every) < 1 else "slower than" if min(every) > 1 else "not always slower than"
        sentences.append(
            f"- They are **{verdict}** `{other}`, {what}. Their time as a fraction of its time:\n"
            + "".join(f"    - {one}\n" for one in found)
        )
    return "The two kernels on the template, compared with kernels without it:\n\n" + "".join(sentences)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    times = frame.medians(record["rows"])
    times["shape"] = times["rows"].astype(str) + "x" + times["columns"].astype(str)
    plain = times[times.name == "plain"].set_index("shape").cold_us
    gain = times["shape"].map(plain) / times.cold_us
    moved = 3 * 2 * times["rows"] * times["columns"] / times.cold_us / 1e3
    figures = zip(times["shape"], times.name, times.cold_us, moved, gain, times.sustained_us, strict=True)
    table = [[*map(str.format, ("{}", "{}", "{:,.1f}", "{:,.0f}", "{:.2f}x", "{:,.1f}"), row)] for row in figures]
    headers = ["bf16", "kernel", "cold, us", "GB/s", "plain / this", "sustained, us"]
    return "\n".join(
        (
            "# A kernel on the template that is no GEMM\n",
            "The kernels compute out = up silu(gate). Two are those that [the page on the "
            "template](../docs/template.md) builds; the others are plain. Written by `benchmarks/template.py` from "
            "[the JSON beside it](template.json). Times are medians of interleaved samples.\n",
            recorded.made_on(record),
            reading(times),
            tabulate(table, headers, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
