"""How long a call takes on the host: `workbench.ops` on arrays of CuPy and of PyTorch, beside PyTorch's own calls.

    python benchmarks/call_time.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/call_time.py write [OUTPUT.json]   # reports/call-time.md, of that file and nothing else

WORKBENCH_COMMIT names the commit where the files were copied to a machine without their history.

Problems are small, so that the device is done before the next call. Every call is timed by itself, 100 of one kind
after each other, then 100 of the next; the device is waited for in between and outside of the times. A first call of a
class whose kernel is loaded is timed on shapes that have not been seen: it has the choice and the packing in it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench import ops
from workbench.devices import open_device
from workbench.ops import launched

RECORD = Path(__file__).parents[1] / "reports/call-time.json"
CALLS, TOGETHER, CLASSES = 10_000, 100, 50
ROWS, COLUMNS = 64, 512

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Arguments of a call, as tensors, its options, and PyTorch's call for the same, where it has one."""

    arrays: tuple[Any, ...]
    options: dict[str, Any]
    theirs: Call | None


def cases(t: Any) -> Iterator[tuple[str, Case]]:
    """A small problem for every operation. `t` is PyTorch; what has no call of one kernel there has none here."""
    f, aten = t.nn.functional, t.ops.aten

    def drawn(*shape: int) -> Any:
        return t.randn(*shape, device="cuda", dtype=t.float16)

    x, y, w, b = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS), drawn(COLUMNS), drawn(COLUMNS)
    labels = t.randint(0, COLUMNS, (ROWS,), device="cuda", dtype=t.int32)
    long_labels, heads = labels.long(), drawn(2, 4, 64, 64)
    angles, scale = drawn(64, 32), t.ones(ROWS, device="cuda")
    bits = t.randint(0, 100, (ROWS, COLUMNS), device="cuda", dtype=t.uint8)
    transposed = y.T
    image, filters = drawn(2, 16, 16, 64), drawn(64, 3, 3, 64)
    named = image.permute(0, 3, 1, 2), filters.permute(0, 3, 1, 2)
    places, decays = drawn(2, 64, 4, 64).to(t.bfloat16), t.rand(2, 64, 4, device="cuda").neg()
    sequences, kernel = drawn(2, 8, 256).to(t.bfloat16), drawn(8, 256).float()
    spectrum, roots = drawn(8, 256, 2).float(), drawn(256, 2).float()
    mean, root = (t.zeros(ROWS, 1, device="cuda") for _ in "mr")
    yield "gemm", Case((x, y), {"trans_b": True}, lambda: t.matmul(x, transposed))
    yield "gemm_fp8", Case((bits, bits, scale, scale), {}, None)
    yield "matvec", Case((w, x), {}, lambda: t.mv(x, w))
    yield "vector_add", Case((w, b), {}, lambda: t.add(w, b))
    yield "softmax", Case((x,), {}, lambda: t.softmax(x, -1))
    yield "softmax_backward", Case((x, y), {}, lambda: aten._softmax_backward_data(y, x, -1, t.float16))
    yield "rms_norm", Case((x, w), {}, lambda: f.rms_norm(x, (COLUMNS,), w, 1e-6))
    yield "rms_norm_backward", Case((x, w, y), {}, None)
    yield "layer_norm", Case((x, w, b), {}, lambda: f.layer_norm(x, (COLUMNS,), w, b))
    wanted = [True, True, True]
    yield (
        "layer_norm_backward",
        Case((x, w, y), {}, lambda: aten.native_layer_norm_backward(y, x, [COLUMNS], mean, root, w, b, wanted)),
    )
    yield "residual_rms_norm", Case((x, y, w), {}, lambda: f.rms_norm(x + y, (COLUMNS,), w, 1e-6))
    yield "cross_entropy", Case((x, labels), {}, lambda: f.cross_entropy(x, long_labels, reduction="none"))
    yield "rotary", Case((heads, angles, angles), {}, None)
    yield "transpose", Case((x,), {}, lambda: x.T.contiguous())
    yield "reduce", Case((x,), {}, lambda: x.sum(1))
    yield "scan", Case((x,), {}, lambda: x.cumsum(-1))
    yield "attention", Case((heads, heads, heads), {}, lambda: f.scaled_dot_product_attention(heads, heads, heads))
    sums = t.zeros(2, 4, 64, device="cuda")
    yield "attention_backward", Case((heads, heads, heads, heads, sums, heads), {}, None)
    packed, offsets = drawn(256, 4, 64), t.arange(0, 257, 64, device="cuda", dtype=t.int32)
    varlen = (packed, packed, packed, offsets, offsets, 64, 64, 0.0, False, False)
    yield "attention_varlen", Case(varlen[:5], {}, lambda: aten._flash_attention_forward(*varlen))
    yield "conv2d", Case((image, filters), {"padding": 1}, lambda: f.conv2d(*named, padding=1))
    yield "ssd", Case((places, decays, places, places), {}, None)
    yield "fft_conv", Case((sequences, kernel, spectrum, roots), {}, None)


def medians(calls: dict[str, Call], wait: Call) -> dict[str, float]:
    """The median time of a call of each, in microseconds, of as many as CALLS."""
    taken: dict[str, list[int]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(TOGETHER):
            call()
    gc.collect()
    gc.disable()
    for _ in range(CALLS // TOGETHER):
        for name, call in calls.items():
            wait()
            for _ in range(TOGETHER):
                start = time.perf_counter_ns()
                call()
                taken[name].append(time.perf_counter_ns() - start)
    gc.enable()
    return {name: statistics.median(times) / 1000 for name, times in taken.items()}


def first_calls(t: Any) -> dict[str, float]:
    """The median time, in microseconds, of the first call of a class whose kernel is loaded, of CLASSES of them."""
    found = {}
    for name in ("gemm", "softmax"):
        function, times = getattr(ops, name), []
        for rows in range(ROWS, ROWS + 8 * (CLASSES + 5), 8):
            x = t.randn(rows, COLUMNS, device="cuda", dtype=t.float16)
            given = (x, x) if name == "gemm" else (x,)
            options = {"trans_b": True} if name == "gemm" else {}
            start = time.perf_counter_ns()
            function(*given, **options)
            times.append((time.perf_counter_ns() - start) / 1000)
        found[name] = statistics.median(times[5:])
    return found


def measure(output: Path) -> None:
    """Fill the record."""
    import cupy
    import torch

    record = recorded.begin(open_device("cuda").info(), "rows")
    record["torch"] = torch.__version__
    if launched.kind() is None:
        raise SystemExit("workbench.ops._launch is not built: pip install . builds it; without it calls take longer")
    print(record["environment"]["commit"], record["environment"]["code_sha256"], flush=True)
    a = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.float16)
    b = a.T
    with torch.no_grad():
        for name, case in cases(torch):
            function, options, tensors = getattr(ops, name), case.options, case.arrays
            ours = [cupy.from_dlpack(array) for array in tensors]
            calls: dict[str, Call] = {
                "cupy": lambda f=function, x=ours, o=options: f(*x, **o),
                "torch": lambda f=function, x=tensors, o=options: f(*x, **o),
                "matmul": lambda: torch.matmul(a, b),
            }
            if case.theirs:
                calls["theirs"] = case.theirs
            record["rows"].append({"operation": name, **medians(calls, torch.cuda.synchronize)})
            recorded.save(record, output)
            print(record["rows"][-1], flush=True)
        record["first"] = first_calls(torch)
    recorded.save(record, output)
    print(record["first"], flush=True)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    cells = []
    for row in record["rows"]:
        slower = max(row["cupy"], row["torch"])
        theirs = f"{row['theirs']:.1f}" if "theirs" in row else "-"
        share = f"{slower / row['matmul']:.2f}"
        cells.append([row["operation"], *(f"{row[k]:.1f}" for k in ("cupy", "torch")), theirs, share])
    headers = ["operation", "CuPy arrays, us", "tensors, us", "PyTorch's call, us", "of `torch.matmul`"]
    align = ("left", *["right"] * 4)
    matmul = statistics.median(row["matmul"] for row in record["rows"])
    first = ", ".join(f"{name} {us:,.0f} us" for name, us in record["first"].items())
    return "\n".join(
        (
            "# Time of a call on the host\n",
            f"Written by `benchmarks/call_time.py` from [the JSON beside it](call-time.json). Medians of {CALLS:,} "
            "calls of `workbench.ops` on small problems, by the host's clock. The last column is the slower of our "
            "two times divided by the time of `torch.matmul`. The two were timed alternately; the median of "
            f"`torch.matmul` is {matmul:.1f} us.\n",
            recorded.made_on(record) + f"PyTorch {record['torch']}.\n",
            tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=align) + "\n",
            f"First call of a class whose kernel is loaded: {first}.\n",
        )
    )


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
