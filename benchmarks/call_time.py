"""How long a call takes on the host: `workbench.ops` on arrays of CuPy and of PyTorch, beside PyTorch's own calls.

    python benchmarks/call_time.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/call_time.py write [OUTPUT.json]   # reports/call-time.md, of that file and nothing else

WORKBENCH_COMMIT names the commit where the files were copied to a machine without their history.

Problems are small, so that the device is done before the next call. Every call is timed by itself, 100 of one kind
after each other, then 100 of the next; the device is waited for in between and outside of the times. Calls with tensors
that need a gradient are timed beside PyTorch's with the same, and so are the backward passes of one result of each. A
first call of a class whose kernel is loaded is timed on shapes that have not been seen: it has the choice and the
packing in it. The first call of a process is timed in processes of their own, whose kernels an earlier one compiled.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
    exponents = t.full((4, 512), 127, device="cuda", dtype=t.uint8)
    yield "gemm_block_scaled", Case((bits, bits, exponents, exponents), {}, None)
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


def with_gradients(t: Any) -> Iterator[tuple[str, Call, Call, tuple[Any, ...]]]:
    """A call of ours and of PyTorch of the same tensors, which need a gradient. Their first results agree in shape."""
    f = t.nn.functional

    def drawn(*shape: int) -> Any:
        return t.randn(*shape, device="cuda", dtype=t.float16, requires_grad=True)

    x, y, w, b = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS), drawn(COLUMNS), drawn(COLUMNS)
    yield "gemm", lambda: ops.gemm(x, y, trans_b=True), lambda: t.matmul(x, y.mT), (x, y)
    row = drawn(ROWS)
    yield "gemm with a bias", lambda: ops.gemm(x, y, row, trans_b=True), lambda: f.linear(x, y, row), (x, y, row)
    yield "softmax", lambda: ops.softmax(x), lambda: t.softmax(x, -1), (x,)
    yield "rms_norm", lambda: ops.rms_norm(x, w, eps=1e-6), lambda: f.rms_norm(x, (COLUMNS,), w, 1e-6), (x, w)
    yield "layer_norm", lambda: ops.layer_norm(x, w, b), lambda: f.layer_norm(x, (COLUMNS,), w, b), (x, w, b)
    q = drawn(2, 4, 64, 64)
    yield "attention", lambda: ops.attention(q, q, q).o, lambda: f.scaled_dot_product_attention(q, q, q), (q,)


def gradient_rows(t: Any) -> Iterator[dict[str, Any]]:
    """The median times of calls with gradients, and of backward passes."""
    for name, ours, theirs, leaves in with_gradients(t):
        calls: dict[str, Call] = {"ours": ours, "theirs": theirs}
        for who, result in (("ours", ours()), ("theirs", theirs())):
            dy = t.ones_like(result)
            calls[f"{who}_backward"] = partial(t.autograd.grad, result, leaves, dy, retain_graph=True)
        yield {"operation": name, **medians(calls, t.cuda.synchronize)}


FIRST = {
    "import torch": "import time; s = time.perf_counter(); import torch; print(time.perf_counter() - s)",
    "import workbench.ops": "import torch, time; s = time.perf_counter(); import workbench.ops; "
    "print(time.perf_counter() - s)",
    "gemm": "import torch, time; from workbench import ops; x = torch.ones(64, 512, device='cuda', dtype=torch.half); "
    "torch.cuda.synchronize(); s = time.perf_counter(); ops.gemm(x, x, trans_b=True); torch.cuda.synchronize(); "
    "print(time.perf_counter() - s)",
    "torch.matmul": "import torch, time; x = torch.ones(64, 512, device='cuda', dtype=torch.half); "
    "torch.cuda.synchronize(); s = time.perf_counter(); torch.matmul(x, x.T); torch.cuda.synchronize(); "
    "print(time.perf_counter() - s)",
}
"""What a process of its own does, which prints the seconds of its last step."""


def first_in_a_process() -> dict[str, float]:
    """The median time of five processes in milliseconds, after one whose time is left out."""

    def one(code: str) -> float:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout) * 1000

    return {name: statistics.median([one(code) for _ in range(6)][1:]) for name, code in FIRST.items()}


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
    record["gradients"] = list(gradient_rows(torch))
    recorded.save(record, output)
    print(record["first"], *record["gradients"], sep="\n", flush=True)
    record["process"] = first_in_a_process()
    recorded.save(record, output)
    print(record["process"], flush=True)


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
            *_more(record),
        )
    )


def _more(record: dict[str, Any]) -> Iterator[str]:
    """Calls with gradients, and first calls of a process, of a record that has them."""
    if rows := record.get("gradients"):
        cells = [
            [row["operation"]]
            + [part for k in ("", "_backward") for part in (f"{row['ours' + k]:.1f}", f"{row['theirs' + k]:.1f}")]
            + [f"{(row['ours'] + row['ours_backward']) / (row['theirs'] + row['theirs_backward']):.2f}"]
            for row in rows
        ]
        headers = ["operation", "ours, us", "PyTorch, us", "our backward pass, us", "PyTorch's, us", "ours / PyTorch's"]
        yield "Calls with tensors that need a gradient, and the backward pass by `torch.autograd.grad`:\n"
        yield tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=("left", *["right"] * 5)) + "\n"
    if process := record.get("process"):
        parts = ", ".join(f"`{name}` {ms:,.0f} ms" for name, ms in process.items())
        yield f"In a process of its own, whose kernels are kept on disk: {parts}.\n"


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
