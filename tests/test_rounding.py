"""Where an operation has no bound of its own, kernels are judged by what rounding may change, and by no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workbench import Launch, Operation, harness, simple_operation
from workbench.devices import Device, open_device
from workbench.judge.case import Case
from workbench.model.problem import Tier
from workbench.model.results import Verdict

F32 = np.float32


def made(function: Callable[..., Any], arrays: str, **more: Any) -> Operation[Any]:
    found: Operation[Any] = simple_operation("tried", arrays, terms="n", not_exact="rounded", **more)(function)
    return found


def widened(operation: Operation[Any], **inputs: Any) -> list[bool]:
    """Of which elements of y more is allowed than by default, or anything."""
    problem = operation.problem(n=2, tier=Tier.BOUNDED)
    expected = problem.reference(inputs)
    case = Case(problem, problem.arrays(), inputs, expected, problem.bound(inputs, expected))
    return [not allowed <= bound for allowed, bound in zip(case.allowed["y"], case.bound["y"], strict=True)]


@pytest.mark.parametrize(
    ("function", "out", "x", "more"),
    [
        (lambda x, z: x == z, "bool", [1.5, 2.0], [False, False]),
        (lambda x, z: np.argmax(x) + 0 * z, "int32", [3.0, 3.0], [False, False]),
        (lambda x, z: np.cumsum(x) > z, "bool", [7.0, 8.0], [False, False]),
        (lambda x, z: np.rint(x / F32(1.1) - z), "int32", [1.65, 1.0], [True, False]),
        (lambda x, z: np.sqrt(x * x) - z, "fp32", [1e-30, 2e-30], [True, True]),
        (lambda x, z: 1 / np.sqrt(x * x) - z, "fp32", [1e-30, 1.0], [True, False]),
        (lambda x, z: np.sin(x * F32(1e5)) - z, "fp32", [1234.567, 0.0], [True, False]),
        (lambda x, z: (x + F32(1e6)) - F32(1e6) - z, "fp32", [0.3, 8.0], [True, False]),
    ],
)
def test_more_is_allowed_only_where_rounding_changes_an_element(
    function: Callable[..., Any], out: str, x: list[float], more: list[bool]
) -> None:
    operation = made(function, f"x: n fp32, z: n fp32 -> y: n {out}")
    z = [1.5, 2.0] if out == "bool" else [0.0, 0.0]
    assert widened(operation, x=np.array(x, F32), z=np.array(z, F32)) == more


def test_a_function_that_takes_plain_arrays_alone_has_the_default_bound() -> None:
    def norm(x: Any, z: Any) -> Any:
        assert type(x) is np.ndarray
        return np.sqrt(x * x) - z

    x = np.array([1.65, 0.5], F32)
    assert widened(made(norm, "x: n fp32, z: n fp32 -> y: n fp32"), x=x, z=0 * x) == [False, False]


ROW = 'extern "C" __global__ void tried(const float* x, const float* z, {out}* y, int rows, int n) {{\n'
ROW += "  int r = blockIdx.x * 64 + threadIdx.x;\n  if (r >= rows) return;\n  x += (long long)r * n;\n{body}\n}}"

COSINE = "float s = 0, u = 0, v = 0; for (int i = 0; i < n; ++i) s += x[i] * z[i], u += x[i] * x[i], v += z[i] * z[i];"
NEAREST = "float best = 0; int at = 0; for (int i = 0; i < n; ++i) { float d = x[i] - *z, s = d * d;"
NEAREST += " if (!i || s < best || (s != s && best == best)) best = s, at = i; } y[r] = at;"


def cosine(x: Any, z: Any) -> Any:
    return (x * z).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (z * z).sum())


def norm(x: Any) -> Any:
    return np.sqrt((x * x).sum(axis=1))


def nearest(x: Any, z: Any) -> Any:
    return np.argmin((x - z[0]) ** 2, axis=1)


def levels(x: Any) -> Any:
    return np.rint(np.tanh(x[:, 0]) * x.dtype.type(90.5))


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.mark.parametrize(
    ("function", "out", "body", "wrong"),
    [
        (
            norm,
            "float",
            "float s = 0; for (int i = 0; i < n; ++i) s += x[i] * x[i]; y[r] = sqrtf(s);",
            ("i < n", "i < n - 1"),
        ),
        (cosine, "float", COSINE + " y[r] = s / sqrtf(u * v);", ("sqrtf(u * v)", "(sqrtf(u) * v)")),
        (nearest, "int", NEAREST, ("s < best", "s <= best")),
        (levels, "int", "y[r] = (int)rintf(tanhf(*x) * 90.5f);", ("rintf", "floorf")),
    ],
)
def test_a_kernel_as_a_newcomer_writes_it_passes_and_a_wrong_one_does_not(
    emulator: Device, function: Callable[..., Any], out: str, body: str, wrong: tuple[str, str]
) -> None:
    both = function in (cosine, nearest)
    text = "x: rows n fp32, z: n fp32" if both else "x: rows n fp32"
    kind = "fp32" if out == "float" else "int32"
    operation = made(function, f"{text} -> y: rows {kind}")
    arguments = ("x", "z" if both else "x", "y")
    for code, verdicts in ((body, {Verdict.PASS}), (body.replace(*wrong), {Verdict.MISMATCH, Verdict.STALE})):
        stage = operation.stage(f"tried{len(verdicts)}", code=ROW.format(out=out, body=code), idea="a thread a row")(
            lambda p, size: Launch(
                "tried", (-(-p.rows // 64), 1, 1), (64, 1, 1), (*arguments, np.int32(p.rows), np.int32(p.n))
            )
        )
        for seed in range(3):
            found = harness.verify(stage, emulator, examples=50, seed=seed)
            assert found.verdict in verdicts, found.failure
