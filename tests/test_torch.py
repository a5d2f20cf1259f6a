"""Operations on tensors of PyTorch: at once, as operators that are traced and differentiated, and on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from emulated_gpu import EmulatedGpu  # noqa: E402

from workbench import ops  # noqa: E402
from workbench.devices.ready import LaunchConfig  # noqa: E402
from workbench.model import calls  # noqa: E402
from workbench.model.calls import ArraySpec, Call, Function  # noqa: E402
from workbench.ops import dispatch, torch_library  # noqa: E402
from workbench.ops.torch_arrays import TorchArrays, dtypes, spec_of, torch_dtype  # noqa: E402
from workbench.ops.torch_library import SchemaError, operator, recorded, schema  # noqa: E402

ops.torch_operators()  # where another test has imported `workbench.ops` before PyTorch


class HostTensors(TorchArrays):
    """Tensors of the CPU, as if they were on device 0."""

    def __init__(self, recorded: Any = None) -> None:
        super().__init__(recorded)
        self.current = 0
        self.current_device = lambda: self.current
        self.stream_of = lambda device: 7
        self.capturing = lambda: False
        self.current_stream = lambda: None

    def memory(self, nbytes: int, zero: bool) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def read(self, arrays: Sequence[Any]) -> Any:
        key, addresses = super().read(arrays)
        return tuple(0 if part == -1 else part for part in key), addresses

    def spec(self, array: Any, source: int) -> ArraySpec:
        found = spec_of(array, source)
        return ArraySpec(found.shape, found.strides, found.dtype, 0, source)

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        before, self.current = self.current, device
        yield
        self.current = before

    def maker(self, spec: ArraySpec) -> Any:
        def make(addresses: list[int]) -> Any:
            steps = tuple(step // spec.itemsize for step in spec.strides)
            made = torch.empty_strided(spec.shape, steps, dtype=torch_dtype(spec.dtype))
            addresses.append(made.data_ptr())
            return made

        return make


@pytest.fixture
def launched(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[int]]]:
    """Streams and pointers of what is launched on tensors, which is not executed."""
    found: list[tuple[int, list[int]]] = []

    def launch(config_at: int, function: int, parameters_at: int, extra: None) -> int:
        entry, made = gpu.entries[function - 1]
        places = (ctypes.c_void_p * len(entry.parameters)).from_address(parameters_at)
        pointers = [
            ctypes.c_uint64.from_address(place).value
            for place, argument in zip(places, made.args, strict=True)
            if isinstance(argument, str)
        ]
        found.append((LaunchConfig.from_address(config_at).stream or 0, pointers))
        return 0

    monkeypatch.setattr(gpu, "launch", launch)
    kind = HostTensors()
    for tensors in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(dispatch.KINDS, tensors, kind)
        monkeypatch.setitem(calls.READERS, tensors, kind.read)
    return found


def test_tensors_are_solved_at_once_into_tensors(launched, gpu: EmulatedGpu) -> None:
    x, w = torch.zeros(6, 64, dtype=torch.bfloat16), torch.nn.Parameter(torch.zeros(64, dtype=torch.bfloat16))
    with torch.no_grad():
        for _ in range(3):
            y = ops.rms_norm(x, w, eps=0.5)
            assert (type(y), y.shape, y.dtype) == (torch.Tensor, x.shape, torch.bfloat16)
            assert launched.pop() == (7, [x.data_ptr(), w.data_ptr(), y.data_ptr()])
        assert ops.rms_norm(x, w, eps=0.5, out=y) is y
        assert launched.pop() == (7, [x.data_ptr(), w.data_ptr(), y.data_ptr()])
        assert ops.softmax(x, out_dtype=torch.float32).dtype == torch.float32
    assert gpu.log["choose"] == 3


def test_tensors_that_need_a_gradient_are_not_prepared(launched) -> None:
    x, w = torch.zeros(6, 64), torch.nn.Parameter(torch.zeros(64))
    with pytest.raises(ValueError, match=r"rms_norm: tensors .* need a gradient: prepare under torch.no_grad\(\)"):
        ops.rms_norm.prepare(x, w)
    with torch.no_grad():
        prepared = ops.rms_norm.prepare(x, w)
        assert prepared(x, w).shape == x.shape
    with pytest.raises(ValueError, match="not of the class that was prepared"):
        prepared(x, w)


def test_results_lie_as_the_operation_says(launched) -> None:
    q = torch.zeros(2, 5, 4, 16, dtype=torch.float16)
    o, lse = ops.attention(q, q, q, layout="bshd")
    assert o.shape == q.shape and lse.shape == (2, 4, 5)
    ((_, pointers),) = launched
    assert {o.data_ptr(), lse.data_ptr()} < set(pointers)


def test_a_tensor_that_is_not_on_a_gpu_is_refused() -> None:
    with pytest.raises(TypeError, match="argument 1 is a tensor on cpu; it has to be on a GPU"):
        ops.softmax(torch.zeros(3, 4))
    with pytest.raises(TypeError, match=r"dtype torch.complex64, which is not supported here"):
        spec_of(torch.zeros(3, dtype=torch.complex64), 0)


def test_every_dtype_comes_back_as_it_was() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.uint8, torch.int32):
        assert torch_dtype(dtypes()[dtype]) == dtype
    assert dtypes()[torch.float8_e4m3fn] == np.uint8


class EmulatedTensors(HostTensors):
    """Tensors of the CPU whose memory an emulated GPU has, too."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        super().__init__(recorded)
        self.gpu, self.known = gpu, {}

    def address(self, array: Any) -> int:
        at, nbytes = array.untyped_storage().data_ptr(), array.untyped_storage().nbytes()
        if (at, nbytes) not in self.known:
            data = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(at), np.uint8)
            self.known[at, nbytes] = made = self.gpu.memory.allocate(nbytes, element_size=1, data=data)
            self.gpu.memory.write(made.address, data.copy())
        return int(self.known[at, nbytes].address + array.data_ptr() - at)

    def addresses(self, arrays: Sequence[Any]) -> list[int]:
        return [self.address(array) for array in arrays]

    def read(self, arrays: Sequence[Any]) -> Any:
        key, _ = super().read(arrays)
        return (*key[:-1], 8), self.addresses(arrays)

    def maker(self, spec: ArraySpec) -> Any:
        make = super().maker(spec)

        def made(addresses: list[int]) -> Any:
            found = make([])
            addresses.append(self.address(found))
            return found

        return made


@pytest.fixture
def executed(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> EmulatedGpu:
    """Calls on tensors of the CPU are made at once, on the emulated GPU."""
    kind = EmulatedTensors(gpu)
    if kind.call is None:
        pytest.skip("PyTorch before 2.10 has no exchange in C")
    for tensors in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(dispatch.KINDS, tensors, kind)
        monkeypatch.setitem(calls.READERS, tensors, kind.read)
        monkeypatch.setitem(calls.HOT, tensors, kind.call)
    monkeypatch.setattr(torch_library, "on_gpu", lambda array: True)
    return gpu


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_gradients_of_products_are_computed_at_once(executed: EmulatedGpu, layout: str, activation: str) -> None:
    torch.manual_seed(2)
    dtype, shapes = torch.bfloat16 if layout[0] == "t" else torch.float32, ((2, 24, 40), (40, 16), (16,))
    made = zip(shapes, (*layout, "n"), strict=True)
    arrays = [_matrix(*shape, turned="t" in how, dtype=dtype) for shape, how in made]
    y = ops.gemm(*arrays, alpha=0.25, activation=activation)
    dy = torch.randn(2, 24, 16).to(dtype)
    y.backward(dy)
    assert y.grad_fn.name() == "gemmBackward"
    wide = [x.detach().double().requires_grad_() for x in arrays]
    sums = 0.25 * wide[0] @ wide[1] + wide[2]
    right = sums if activation == "none" else getattr(torch.nn.functional, activation)(sums)
    right.backward(dy.double())
    near = 0.02 if dtype is torch.bfloat16 else 1e-5
    assert torch.allclose(y.double(), right, near, near)
    for ours, theirs in zip(arrays, wide, strict=True):
        scale = float(theirs.grad.abs().max())
        assert ours.grad.dtype == dtype and float((ours.grad - theirs.grad).abs().max()) < near * scale
    assert len(executed.launched) == (4 if activation in ("gelu", "silu") else 3)


def test_a_wider_result_has_gradients_in_the_dtypes_of_its_arrays(executed: EmulatedGpu) -> None:
    torch.manual_seed(4)
    a, b, c = (_matrix(*n, dtype=t) for n, t in (((24, 40), torch.bfloat16), ((16, 40), torch.bfloat16), ((16,), None)))
    y = ops.gemm(a, b, c, trans_b=True, out_dtype=torch.float32)
    dy = torch.randn(24, 16)
    y.backward(dy)
    assert (y.dtype, a.grad.dtype, c.grad.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    assert torch.equal(c.grad, dy.sum(0))
    for ours, theirs in ((a.grad, dy @ b.detach().float()), (b.grad, dy.T @ a.detach().float())):
        assert float((ours - theirs).abs().max()) < 0.02 * float(theirs.abs().max())


def test_gradients_of_rows_and_of_attention_are_computed_at_once(executed: EmulatedGpu) -> None:
    torch.manual_seed(3)
    x, w = _matrix(6, 64, dtype=torch.float32), _matrix(64, dtype=torch.float32)
    given = [x.detach().requires_grad_() for x in (x, w)]
    y = ops.rms_norm(x, w, eps=0.1)
    y.sum().backward()
    torch.nn.functional.rms_norm(given[0], (64,), given[1], 0.1).sum().backward()
    assert all(torch.allclose(a.grad, b.grad, 1e-4, 1e-4) for a, b in zip((x, w), given, strict=True))
    q = _matrix(1, 2, 20, 64, dtype=torch.float16)
    found = ops.attention(q, q, q)
    assert found._fields == ("o", "lse") and not found.lse.requires_grad
    (dq,) = torch.autograd.grad(found.o.sum(), q)
    wide = q.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(wide, wide, wide).sum(), wide)
    assert torch.allclose(dq.double(), right, 0.02, 0.02)


def test_transforms_and_modes_see_the_operator(executed: EmulatedGpu) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen, x = [], _matrix(4, 8, dtype=torch.float32)

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(called)
            return args[0].clone()

    with Mode():
        ops.softmax(x)
    assert torch.ops.workbench.softmax.default in seen and not executed.launched


# operators


@pytest.fixture(scope="module")
def on_cpu() -> Any:
    """Kernels for the CPU, of PyTorch's own calls."""
    library = torch.library.Library("workbench", "FRAGMENT")

    def softmax_backward(y: Any, dy: Any, *, out_dtype: Any = None) -> Any:
        return y * (dy - (y * dy).sum(-1, keepdim=True))

    def rms_norm(x: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Any:
        return torch.nn.functional.rms_norm(x, w.shape, w, eps)

    def layer_norm(x: Any, w: Any, b: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Any:
        return torch.nn.functional.layer_norm(x, w.shape, w, b, eps)

    def rms_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Any:
        assert x.is_contiguous() and dy.is_contiguous() and x.dtype == dy.dtype
        root = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        dx = root * (w * dy - x * root.square() * (w * dy * x).mean(-1, keepdim=True))
        return dx, (dy * x * root).flatten(0, -2).sum(0)

    def layer_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Any:
        root = (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
        centred, g = (x - x.mean(-1, keepdim=True)) * root, w * dy
        dx = root * (g - g.mean(-1, keepdim=True) - centred * (g * centred).mean(-1, keepdim=True))
        return dx, (dy * centred).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)

    def softmax(x: Any, *, out_dtype: Any = None) -> Any:
        return torch.softmax(x, -1, dtype=out_dtype)

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None, **more: Any) -> Any:
        logits = scale * q @ k.mT
        return torch.softmax(logits, -1) @ v, torch.logsumexp(logits, -1)

    def attention_backward(q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, *, scale: Any = None, **more: Any) -> Any:
        assert do.is_contiguous()
        p = torch.exp(scale * q @ k.mT - lse[..., None])
        ds = p * (do @ v.mT - (do * o).sum(-1, keepdim=True)) * scale
        return ds @ k, ds.mT @ q, p.mT @ do

    def gemm(a: Any, b: Any, c: Any = None, *, trans_b: bool = False, activation: str = "none", **more: Any) -> Any:
        sums = more.get("alpha", 1.0) * (a @ (b.mT if trans_b else b))
        if c is not None:
            sums = sums + more.get("beta", 1.0) * c
        return sums if activation == "none" else getattr(torch.nn.functional, activation)(sums)

    for kernel in (attention, attention_backward, gemm):
        library.impl(kernel.__name__, kernel, "CPU")
    for kernel in (softmax, softmax_backward, rms_norm, rms_norm_backward, layer_norm, layer_norm_backward):
        library.impl(kernel.__name__, kernel, "CPU")
    library.impl("scan", lambda x, *, out_dtype=None: x.cumsum(-1), "CPU")
    return library


CASES = {
    "softmax": (ops.softmax, lambda x, w, b: torch.softmax(x, -1), "x"),
    "rms_norm": (
        lambda x, w: ops.rms_norm(x, w, eps=0.1),
        lambda x, w, b: torch.nn.functional.rms_norm(x, w.shape, w, 0.1),
        "xw",
    ),
    "layer_norm": (ops.layer_norm, lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b), "xwb"),
    "gemm": (
        lambda x, w, b: ops.gemm(x, torch.outer(w, b) / 16, b, activation="gelu"),
        lambda x, w, b: torch.nn.functional.gelu(x @ (torch.outer(w, b) / 16) + b),
        "xwb",
    ),
}


def _gradients_are_near(name: str, given: dict[str, Any], dy: Any, near: float, backend: str | None) -> bool:
    """Whether gradients of a case are those of PyTorch; compiled by a backend, or at once."""
    ours, theirs, names = CASES[name]
    if backend:
        ours = torch.compile(ours, fullgraph=True, backend=backend)
    found, right = ({n: t.detach().requires_grad_(n in names) for n, t in given.items()} for _ in "12")
    ours(*(found[n] for n in names)).backward(dy)
    theirs(**right).backward(dy)
    return all(torch.allclose(found[n].grad, right[n].grad, 10 * near, near) for n in names)


@pytest.mark.long
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("how", ["at once", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_pytorch(name: str, how: str) -> None:
    torch.manual_seed(0)
    given = {"x": torch.randn(3, 4, 10), "w": torch.randn(10), "b": torch.randn(10)}
    dy = torch.randn(4, 3, 10).transpose(0, 1)  # not contiguous
    assert _gradients_are_near(name, given, dy, 1e-5, "aot_eager" if how == "compiled" else None)


@pytest.mark.usefixtures("on_cpu")
def test_of_several_results_the_first_has_a_gradient() -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 3, n, 8, requires_grad=True) for n in (4, 5, 5)]
    theirs = [x.detach().requires_grad_() for x in given]
    o, lse = ops.attention(*given, scale=0.7)
    right = torch.nn.functional.scaled_dot_product_attention(*theirs, scale=0.7)
    do = torch.randn(3, 2, 4, 8).transpose(0, 1)
    o.backward(do)
    right.backward(do)
    assert all(torch.allclose(a.grad, b.grad, 1e-4, 1e-5) for a, b in zip(given, theirs, strict=True))
    assert not lse.requires_grad


def _matrix(*shape: int, turned: bool = False, dtype: Any = torch.float64) -> Any:
    found = torch.randn(*shape, dtype=dtype)
    return (found.mT.contiguous().mT if turned else found).requires_grad_()


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ((4, 6), (6, 5), None),
        ((4, 6), (6, 5), (5,)),
        ((3, 4, 6), (6, 5), (5,)),
        ((4, 6), (3, 6, 5), (3, 4, 5)),
        ((1, 4, 6), (3, 6, 5), (4, 5)),
        ((3, 4, 6), (3, 6, 5), (1, 1, 5)),
    ],
)
def test_gradients_of_products_are_those_of_differences(a: Any, b: Any, c: Any, activation: str) -> None:
    torch.manual_seed(1)
    for layout in ("nn", "nt", "tn", "tt"):
        arrays = [_matrix(*a, turned=layout[0] == "t"), _matrix(*b, turned=layout[1] == "t")]
        arrays += [] if c is None else [_matrix(*c)]
        how = {"alpha": 0.7, "beta": -1.3, "activation": activation}
        assert torch.autograd.gradcheck(lambda *x, how=how: ops.gemm(*x, **how), arrays, fast_mode=True)
        turned_b = [arrays[0], arrays[1].detach().mT.requires_grad_(), *arrays[2:]]
        assert torch.autograd.gradcheck(lambda *x, how=how: ops.gemm(*x, trans_b=True, **how), turned_b, fast_mode=True)
        found = torch.autograd.grad(ops.gemm(*arrays, **how).sum(), arrays)
        assert [x.stride()[-2:] for x in found[:2]] == [x.stride()[-2:] for x in arrays[:2]]  # which spares a copy
    assert torch.autograd.gradgradcheck(lambda *x: ops.gemm(*x, **how), arrays, fast_mode=True)


@pytest.mark.usefixtures("on_cpu")
def test_of_a_product_is_kept_what_its_gradients_need() -> None:
    def kept(a: bool, b: bool, **how: Any) -> list[Any]:
        arrays = [_matrix(4, 6).detach().requires_grad_(a), _matrix(6, 4).detach().requires_grad_(b)]
        found = ops.gemm(*arrays, **how)
        names = {array.data_ptr(): name for name, array in zip("aby", (*arrays, found), strict=True)}
        return [names[x.data_ptr()] for x in found.grad_fn.saved_tensors if x is not None]

    assert (kept(True, False), kept(False, True), kept(True, True)) == (["b"], ["a"], ["a", "b"])
    assert kept(True, False, activation="relu") == ["b", "y"]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_tensors_that_stand_for_others_are_left_to_the_operator() -> None:
    x = torch.randn(3, 4, 8)
    assert torch.allclose(torch.func.vmap(ops.softmax)(x), torch.softmax(x, -1))


@pytest.mark.usefixtures("on_cpu")
def test_what_has_no_gradient_says_so_when_one_is_asked_for() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = ops.scan(x)
    with pytest.raises(NotImplementedError, match="scan has no gradient here"):
        y.sum().backward()
    with pytest.raises(ValueError, match=r"scan: out= is not recorded"):
        ops.scan(x, out=torch.empty(3, 4))


@pytest.mark.parametrize("grad", [True, False])
def test_a_function_gets_pairs_as_tuples_and_no_array_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, grad: bool
) -> None:
    x, found = torch.ones(2, 2), []
    library = torch.library.Library("workbench", "FRAGMENT")

    def calls(name: str, results: Any) -> Any:
        made = operator(getattr(ops, name))
        monkeypatch.setattr(
            made, "function", lambda *arrays, **options: found.append((len(arrays), options)) or results
        )
        library.impl(name, made._solve, "CPU")
        return made.call

    with torch.set_grad_enabled(grad):
        calls("conv2d", x)(x, x, stride=(2, 1), padding=(0, 3))
        calls("ssd", (x, x))(x, x, x, x, None)
    assert found == [(2, {"stride": (2, 1), "padding": (0, 3)}), (4, {})]


@pytest.mark.long
@pytest.mark.usefixtures("on_cpu")
def test_the_checks_of_pytorch_for_operators_find_nothing() -> None:
    x, w = torch.randn(3, 10, requires_grad=True), torch.randn(10, requires_grad=True)
    operators = torch.ops.workbench
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operators.softmax.default, (x,), test_utils=tests)
    torch.library.opcheck(operators.rms_norm.default, (x, w), {"eps": 0.1}, test_utils=tests)


def test_fake_tensors_get_results_of_the_right_shape_and_dtype_on_their_device() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 64, device="cuda", dtype=torch.bfloat16)
        y = ops.gemm(x, x, trans_b=True, out_dtype=torch.float32)
        assert (y.shape, y.dtype, y.device.type) == ((4, 4), torch.float32, "cuda")
        q = torch.empty(1, 5, 2, 64, device="cuda", dtype=torch.bfloat16)
        found = ops.attention(q, q, q, layout="bshd")
        assert found._fields == ("o", "lse")
        assert found.o.shape == q.shape and found.lse.shape == (1, 2, 5)
        with pytest.raises(ValueError, match=r"gemm: b has shape \(5, 64\)"):
            ops.gemm(x, torch.empty(5, 64, device="cuda", dtype=torch.bfloat16))


def test_every_operation_is_an_operator() -> None:
    functions = [value for value in vars(ops).values() if isinstance(value, Function)]
    assert len(functions) >= 17
    for function in functions:
        operator = getattr(torch.ops.workbench, function.operation.name).default
        assert [a.name for a in operator._schema.arguments] == [*function.arrays, *function.options]


def test_an_option_that_no_operator_has_is_named() -> None:
    def build(x: Any, *, windows: tuple[int, ...] = ()) -> Call:
        raise NotImplementedError

    with pytest.raises(SchemaError, match=r"option windows of softmax is of type tuple"):
        schema(Function(ops.softmax.operation, build), 1)


# on a GPU


@pytest.fixture
def generator() -> Any:
    return torch.Generator("cuda").manual_seed(0)


@pytest.mark.gpu
def test_answers_are_tensors_and_those_of_pytorch(generator: Any) -> None:
    x = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16, generator=generator)
    w = torch.randn(512, device="cuda", dtype=torch.bfloat16, generator=generator)
    for _ in range(2):
        assert torch.allclose(ops.gemm(x, x, trans_b=True), x @ x.T, 0.02, 0.5)
        assert torch.allclose(ops.softmax(x), torch.softmax(x, -1), 0.02, 1e-3)
        assert torch.allclose(ops.rms_norm(x, w), torch.nn.functional.rms_norm(x, w.shape, w, 1e-6), 0.02, 0.02)
    bits = torch.randint(0, 100, (64, 128), device="cuda", dtype=torch.uint8, generator=generator)
    scale = torch.ones(64, device="cuda")
    as_bits = ops.gemm_fp8(bits, bits, scale, scale)
    assert torch.equal(as_bits, ops.gemm_fp8(*(bits.view(torch.float8_e4m3fn),) * 2, scale, scale))


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["at once", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_on_a_gpu_are_those_of_pytorch(generator: Any, name: str, how: str) -> None:
    given = {
        n: torch.randn(s, device="cuda", generator=generator) for n, s in (("x", (32, 256)), ("w", 256), ("b", 256))
    }
    dy = torch.randn(32, 256, device="cuda", generator=generator)
    assert _gradients_are_near(name, given, dy, 1e-4, "inductor" if how == "compiled" else None)


@pytest.mark.gpu
def test_calls_are_captured_into_graphs_of_pytorch_and_made_on_its_streams(generator: Any) -> None:
    x = torch.randn(300, 20_000, device="cuda", generator=generator)
    ops.softmax(x), ops.reduce(x, over="all")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, total = ops.softmax(x), ops.reduce(x, over="all")
    for _ in range(3):
        x.normal_(generator=generator)
        graph.replay()
        assert torch.allclose(y, torch.softmax(x, -1), 1e-4, 1e-6)
        assert torch.allclose(total, x.double().sum().float(), 1e-3, 0.1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = ops.softmax(x)
    stream.synchronize()
    assert torch.allclose(found, torch.softmax(x, -1), 1e-4, 1e-6)
