"""Functions of libraries that are written in Triton, forward and backward, as they are, without a GPU.

    pip install --no-deps liger-kernel fla-core einops && pip install torch
    python benchmarks/triton_functions.py measure OUTPUT.json [--names NAME ...]
    python benchmarks/triton_functions.py write [OUTPUT.json]    # reports/triton-functions.md

Each function runs under ``workbench.triton.emulate`` on tensors of the CPU. It is right where its result and its
gradients are those of a reference in float64 by PyTorch, and clean where no launch has a failure. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

import workbench.triton
from workbench.records import environment

Case = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]
"""The library's function, its reference, and what both are given, by name."""

RECORD = recorded.REPORTS / "triton-functions.json"
FORWARD = "chunk_gla"
_SEED, _TOLERANCE = 1, 2e-2


def _liger_rows() -> dict[str, Case]:
    import torch
    from liger_kernel import ops
    from torch import randn
    from torch.nn import functional as F  # noqa: N812

    x, y, w, b = randn(6, 96), randn(6, 96), randn(96), randn(96)

    def polynomial(x: Any, w: Any, b: Any) -> Any:
        norm = [t * (t.square().mean(-1, keepdim=True) + 1e-6).rsqrt() for t in (x**3, x**2, x)]
        return w[0] * norm[0] + w[1] * norm[1] + w[2] * norm[2] + b

    def sparse(x: Any) -> Any:
        z = x.sort(-1, descending=True).values
        k = torch.arange(1, x.shape[-1] + 1)
        support = (1 + k * z > z.cumsum(-1)).sum(-1, keepdim=True)
        return (x - (z.cumsum(-1).gather(-1, support - 1) - 1) / support).clamp(min=0)

    def rms(x: Any, w: Any) -> Any:
        return F.rms_norm(x, (96,), w, 1e-6)

    return {
        "rms_norm": (lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6), rms, {"x": x, "w": w}),
        "layer_norm": (lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-6),
                       lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-6), {"x": x, "w": w, "b": b}),
        "fused_add_rms_norm": (lambda x, y, w: ops.LigerFusedAddRMSNormFunction.apply(x, y, w, 1e-6)[0],
                               lambda x, y, w: rms(x + y, w), {"x": x, "y": y, "w": w}),
        "group_norm": (lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 8, 4, 1e-6),
                       lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6),
                       {"x": randn(2, 8, 24), "w": randn(8), "b": randn(8)}),
        "poly_norm": (lambda x, w, b: ops.LigerPolyNormFunction.apply(x, w, b), polynomial,
                      {"x": x, "w": randn(3), "b": randn(())}),
        "dyt": (lambda x, a, w, b: ops.LigerDyTFunction.apply(x, a, w, b),
                lambda x, a, w, b: torch.tanh(a * x) * w + b, {"x": x, "a": randn(1), "w": w, "b": b}),
        "geglu": (lambda x, y: ops.LigerGELUMulFunction.apply(x, y),
                  lambda x, y: F.gelu(x, approximate="tanh") * y, {"x": x, "y": y}),
        "swiglu": (lambda x, y: ops.LigerSiLUMulFunction.apply(x, y), lambda x, y: F.silu(x) * y, {"x": x, "y": y}),
        "relu_squared": (lambda x: ops.LigerReLUSquaredFunction.apply(x), lambda x: F.relu(x) ** 2, {"x": x}),
        "softmax": (lambda x: ops.LigerSoftmaxFunction.apply(x), lambda x: x.softmax(-1), {"x": x}),
        "sparsemax": (lambda x: ops.LigerSparsemaxFunction.apply(x, -1), sparse, {"x": x}),
    }  # fmt: skip


def _liger_losses() -> dict[str, Case]:
    import torch
    from liger_kernel import ops
    from torch import randn
    from torch.nn import functional as F  # noqa: N812

    logits, target = randn(6, 100), torch.randint(0, 100, (6,))
    p, q = F.log_softmax(randn(6, 64), -1), F.softmax(randn(6, 64), -1)
    angles = torch.arange(16)[:, None] / 100 ** (torch.arange(16) / 16)
    cos, sin = (torch.cat([f(angles), f(angles)], -1)[None] for f in (torch.cos, torch.sin))

    def turned(t: Any) -> Any:
        half = t.shape[-1] // 2
        return (t * cos + torch.cat([-t[..., half:], t[..., :half]], -1) * sin).reshape(-1)

    def jsd(x: Any) -> Any:
        mean = ((x.exp() + q) / 2).log()
        return ((q * (q.log() - mean)).sum() + (x.exp() * (x - mean)).sum()) / 12

    def entropy(*more: Any) -> Callable[..., Any]:
        return lambda x: ops.LigerCrossEntropyFunction.apply(x, target, None, *more)[0]

    return {
        "rope": (lambda q, k: torch.cat([t.reshape(-1) for t in ops.LigerRopeFunction.apply(q, k, cos, sin)]),
                 lambda q, k: torch.cat([turned(q), turned(k)]),
                 {"q": randn(1, 4, 16, 32), "k": randn(1, 2, 16, 32)}),
        "cross_entropy": (entropy(), lambda x: F.cross_entropy(x, target), {"x": logits}),
        "cross_entropy_smoothed": (entropy(-100, 0.0, 0.1),
                                   lambda x: F.cross_entropy(x, target, label_smoothing=0.1), {"x": logits}),
        "cross_entropy_summed": (entropy(-100, 0.0, 0.0, "sum"),
                                 lambda x: F.cross_entropy(x, target, reduction="sum"), {"x": logits}),
        "fused_linear_cross_entropy": (
            lambda x, w: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, target)[0],
            lambda x, w: F.cross_entropy(x @ w.T, target), {"x": randn(6, 96) / 4, "w": randn(100, 96) / 4}),
        "kl_div": (lambda x: ops.LigerKLDivLossFunction.apply(x, q),
                   lambda x: F.kl_div(x, q, reduction="batchmean"), {"x": p}),
        "jsd": (lambda x: ops.LigerJSDFunction.apply(x, q.log(), None, 0.5), jsd, {"x": p}),
        "tvd": (lambda x: ops.LigerTVDLossFunction.apply(x, q),
                lambda x: (x - q).abs().sum() / 12, {"x": F.softmax(randn(6, 64), -1)}),
    }  # fmt: skip


def _recurrence(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, a: Any = None, b: Any = None, u: Any = None,
                scale: float | None = None) -> Any:  # fmt: skip
    """State K by V that decays by exp(g), and that keys update, by the delta rule where there is a ``beta``."""
    import torch

    state, outputs = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[1]):
        before = state
        if g is not None:
            state = state * (g[:, t, :, None, None] if g.dim() == 3 else g[:, t, :, :, None]).exp()
        if a is not None:
            state = state + torch.einsum("bhk,bhv->bhkv", b[:, t], torch.einsum("bhk,bhkv->bhv", a[:, t], before))
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("bhk,bhkv->bhv", k[:, t], state))
        added = torch.einsum("bhk,bhv->bhkv", k[:, t], new)
        state = state + added
        seen = state if u is None else before + u[None, :, :, None] * added
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], seen) * (q.shape[-1] ** -0.5 if scale is None else scale))
    return torch.stack(outputs, 1)


def _fla_rules() -> dict[str, Case]:
    import torch
    from fla import ops
    from torch import randn
    from torch.nn import functional as F  # noqa: N812

    shape, both = (1, 64, 2, 32), ("chunk", "fused_recurrent")
    qkv = {"q": randn(shape), "k": F.normalize(randn(shape), dim=-1), "v": randn(shape)}
    each, one, beta = F.logsigmoid(randn(shape)), F.logsigmoid(randn(shape[:3])), torch.rand(shape[:3])
    gamma = (1 - 2.0 ** (-5 - torch.arange(2.0))).log().expand(1, 64, 2)
    low = {"a": F.normalize(randn(shape), dim=-1)}
    low["b"] = -low["a"] * torch.rand(shape)
    state = {"r": qkv["q"], "k": qkv["k"], "v": qkv["v"]}

    def of(name: str, **fixed: Any) -> Callable[..., Any]:
        function = getattr(ops, name)
        return lambda **given: function(**given, **fixed)[0]

    def of_halves(**given: Any) -> Any:
        return ops.chunk_delta_rule(**{name: tensor.half() for name, tensor in given.items()})[0].float()

    def rwkv6(r: Any, k: Any, v: Any, w: Any, u: Any) -> Any:
        return _recurrence(r, k, v, w, u=u)

    def rwkv7(r: Any, w: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
        return _recurrence(r, k, v, w, a=a, b=b, scale=1.0)

    rules: dict[str, tuple[tuple[str, ...], dict[str, Any], Callable[..., Any], dict[str, Any]]] = {
        "simple_gla": ((*both, "parallel", "fused_chunk"), {}, _recurrence, {**qkv, "g": one}),
        "linear_attn": ((*both, "fused_chunk"), {"normalize": False}, _recurrence, qkv),
        "retention": ((*both, "parallel", "fused_chunk"), {}, lambda q, k, v: _recurrence(q, k, v, gamma), qkv),
        "gated_delta_rule": (both, {}, _recurrence, {**qkv, "g": one, "beta": beta}),
        "kda": (both, {}, _recurrence, {**qkv, "g": each, "beta": beta}),
        "rwkv6": (both, {}, rwkv6, {**state, "w": each, "u": randn(2, 32)}),
        "rwkv7": (both, {"scale": 1.0}, rwkv7, {**state, "w": each / 2, **low}),
        "iplr_delta_rule": (both, {}, lambda q, k, v, a, b: _recurrence(q, k, v, a=a, b=b), {**qkv, **low}),
        "dplr_delta_rule": (both, {}, lambda q, k, v, a, b, gk: _recurrence(q, k, v, gk, a=a, b=b),
                            {**qkv, **low, "gk": each / 2}),
    }  # fmt: skip
    return {
        "chunk_gla": (of("chunk_gla"), _recurrence, {**qkv, "g": each}),
        "fused_recurrent_gla": (of("fused_recurrent_gla"), lambda q, k, v, gk: _recurrence(q, k, v, gk),
                                {**qkv, "gk": each}),
        "chunk_delta_rule": (of_halves, _recurrence, {**qkv, "beta": beta}),
        "fused_recurrent_delta_rule": (of("fused_recurrent_delta_rule"), _recurrence, {**qkv, "beta": beta}),
        **{f"{way}_{rule}": (of(f"{way}_{rule}", **fixed), reference, given)
           for rule, (ways, fixed, reference, given) in rules.items() for way in ways},
    }  # fmt: skip


def _fla_modules() -> dict[str, Case]:
    import torch
    from fla import ops
    from fla.modules.activations import logsigmoid, sigmoid, swiglu, swish
    from fla.modules.fused_cross_entropy import FusedCrossEntropyLoss
    from fla.modules.norm.fused_norm_gate import rms_norm_gated
    from fla.modules.norm.l2norm import l2norm
    from fla.modules.norm.layernorm import layer_norm, rms_norm
    from fla.modules.rotary.ops import rotary_embedding
    from fla.modules.token_shift import token_shift
    from torch import randn
    from torch.nn import functional as F  # noqa: N812

    x, y, w, b, logits, target = *(randn(6, 96) for _ in "xy"), randn(96), randn(96), randn(6, 99), torch.arange(6)
    qkv = {name: randn(1, 64, 2, 32) for name in "qkv"}
    turn = torch.arange(64)[:, None] / 100 ** (torch.arange(16) / 16)

    def attention(q: Any, k: Any, v: Any, g: Any = None) -> Any:
        bias = torch.zeros(64, 64, dtype=q.dtype).masked_fill(torch.ones(64, 64).triu(1).bool(), -torch.inf)
        if g is not None:
            sums = g.cumsum(1).transpose(1, 2)
            bias = bias + sums[..., :, None] - sums[..., None, :]
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=bias).transpose(1, 2)

    def rotated(x: Any) -> Any:
        cos, sin, half = turn.cos()[:, None], turn.sin()[:, None], x.shape[-1] // 2
        return torch.cat([x[..., :half] * cos - x[..., half:] * sin, x[..., :half] * sin + x[..., half:] * cos], -1)

    def hgrn(x: Any, g: Any) -> Any:
        state, found = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = state * g[:, t].exp() + x[:, t]
            found.append(state)
        return torch.stack(found, 1)

    return {
        "fused_recurrent_hgrn": (lambda x, g: ops.fused_recurrent_hgrn(x, g)[0], hgrn,
                                 {"x": randn(1, 64, 32), "g": F.logsigmoid(randn(1, 64, 32))}),
        "parallel_attn": (lambda q, k, v: ops.parallel_attn(q, k, v), attention, qkv),
        "parallel_forgetting_attn": (lambda q, k, v, g: ops.parallel_forgetting_attn(q, k, v, g), attention,
                                     {**qkv, "g": F.logsigmoid(randn(1, 64, 2))}),
        "swish": (lambda x: swish(x), lambda x: F.silu(x), {"x": x}),
        "sigmoid": (lambda x: sigmoid(x), lambda x: torch.sigmoid(x), {"x": x}),
        "logsigmoid": (lambda x: logsigmoid(x), lambda x: F.logsigmoid(x), {"x": x}),
        "fla_swiglu": (lambda x, y: swiglu(x, y), lambda x, y: F.silu(x) * y, {"x": x, "y": y}),
        "fla_layer_norm": (lambda x, w, b: layer_norm(x, w, b), lambda x, w, b: F.layer_norm(x, (96,), w, b),
                           {"x": x, "w": w, "b": b}),
        "fla_rms_norm": (lambda x, w: rms_norm(x, w, None), lambda x, w: F.rms_norm(x, (96,), w, 1e-5),
                         {"x": x, "w": w}),
        "rms_norm_gated": (lambda x, y, w: rms_norm_gated(x, y, w, None),
                           lambda x, y, w: F.rms_norm(x, (96,), w, 1e-5) * F.silu(y), {"x": x, "y": y, "w": w}),
        "l2norm": (lambda x: l2norm(x), lambda x: F.normalize(x, dim=-1), {"x": x}),
        "rotary": (lambda x: rotary_embedding(x, turn.cos(), turn.sin()), rotated, {"x": qkv["q"]}),
        "token_shift": (lambda x: token_shift(x), lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1] - x,
                        {"x": randn(2, 16, 32)}),
        "fla_cross_entropy": (lambda x: FusedCrossEntropyLoss()(x, target),
                              lambda x: F.cross_entropy(x, target), {"x": logits}),
    }  # fmt: skip


def _differs(case: Case) -> str:
    """What is not as the reference has it: the result, or the gradient of an argument."""
    import torch

    function, reference, given = case

    def results(call: Callable[..., Any], dtype: Any) -> list[Any]:
        used = {n: t.detach().clone().to(dtype).requires_grad_() for n, t in given.items()}
        result = call(**used)
        if not result.requires_grad:  # there is no backward
            return [result]
        weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).reshape(result.shape).to(dtype)
        try:
            gradients = torch.autograd.grad((result * weights).sum(), list(used.values()), allow_unused=True)
        except NotImplementedError:
            gradients = ()
        return [result.detach(), *gradients]

    found, wanted = results(function, torch.float32), results(reference, torch.float64)
    for name, a, b in zip(("the result", *given), found, wanted, strict=False):
        if (a is None) != (b is None):
            return f"{name}: no gradient"
        if b is not None and not (a.double() - b).abs().max() <= _TOLERANCE * max(float(b.abs().max()), 1e-3):
            return f"{name}: off by {float((a.double() - b).abs().max()):.2g} of {float(b.abs().max()):.2g}"
    return ""


@dataclass
class Tried:
    """A function: what is wrong, the first failure, launches, and CPU time with what is compiled on the way."""

    name: str
    wrong: str
    failure: str
    launches: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether it is right and clean, and was launched."""
        return not self.wrong and not self.failure and self.launches > 0


def _cases(target: str) -> dict[str, Case]:
    with workbench.triton.emulate(target, configurations="first"):
        import torch

        torch.set_num_threads(1)  # of the references
        torch.manual_seed(_SEED)
        return {**_liger_rows(), **_liger_losses(), **_fla_rules(), **_fla_modules()}


def _try_out(name: str, case: Case, target: str) -> Tried:
    begun = _cpu()
    with workbench.triton.emulate(target, configurations="first", raise_on_hazard=False) as run:
        try:
            wrong = _differs(case)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}".split("\n")[0][:160]
    failures = [finding for launched in run.launches for finding in launched.failures]
    said = f"{failures[0].kind} at {failures[0].location}" if failures else ""
    return Tried(name, wrong, said, len(run.launches), round(_cpu() - begun, 1))


def _cpu() -> float:
    """Seconds of CPU time of this process and of compilers: other work on the machine changes nothing of them."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _forward(target: str) -> None:
    """Prints seconds and launches of one function's forward pass, with every configuration of its autotuners."""
    warnings.simplefilter("ignore")
    function, _, given = _cases(target)[FORWARD]
    begun = _cpu()
    with workbench.triton.emulate(target, configurations="all") as run:
        function(**given)
    print(json.dumps([round(_cpu() - begun, 1), len(run.launches)]))


def measure(given: argparse.Namespace) -> None:
    """Tries all functions, or those that are named; and one with all configurations, twice, in processes of its own."""
    made = environment.describe()
    if made.dirty:
        raise SystemExit("the checkout has uncommitted changes: commit them first, so that the record names its code")
    warnings.simplefilter("ignore")
    packages = {name: metadata.version(name) for name in ("torch", "triton", "liger-kernel", "fla-core")}
    record: recorded.Record = {"environment": asdict(made), "packages": packages, "target": given.target}
    record |= {"forward": [], "functions": []}
    with tempfile.TemporaryDirectory() as folder:
        script = f"import triton_functions; triton_functions._forward({given.target!r})"
        command, variables = [sys.executable, "-c", script], {**os.environ, "TRITON_CACHE_DIR": folder}
        for _ in range(2):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent, env=variables)
            record["forward"].append(json.loads(done.stdout.splitlines()[-1]))
    cases = _cases(given.target)
    if unknown := sorted(set(given.names) - set(cases)):
        sys.exit(f"there is no function {', '.join(unknown)}; there are {', '.join(cases)}")
    for name in given.names or cases:
        tried = _try_out(name, cases[name], given.target)
        print(tried, flush=True)
        record["functions"].append(asdict(tried))
        recorded.save(record, given.file)


def page(record: recorded.Record) -> str:
    """The report."""
    functions, made = [Tried(**row) for row in record["functions"]], record["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    (first, launches), (second, _) = record["forward"]
    rows = [(one.name, one.wrong or "right", one.failure or "clean", one.launches, one.seconds) for one in functions]
    good = sum(one.good for one in functions)
    return f"""# Functions of Triton libraries

{good} of {len(functions)} functions of Liger and flash-linear-attention are right and clean, forward and backward where
there is one, on CPU tensors for {record["target"]}. Written by `benchmarks/triton_functions.py` from
[the JSON beside it](triton-functions.json), commit `{made["commit"][:12]}`, {made["date"][:10]}, {made["host"]},
{versions}. No GPU took part. Of autotuners the first configuration is launched.

Seconds are of CPU time, with what is compiled. With every configuration, `{FORWARD}` forward makes {launches} launches:
{first} s in a first run, and {second} s in a second process, which finds all compiled.

{tabulate(rows, ("function", "result", "findings", "launches", "s"), tablefmt="github")}
"""


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        names={"nargs": "*", "default": [], "help": "functions; all unless given"},
        target={"default": "sm_90a", "help": "what kernels are compiled for"},
    )
