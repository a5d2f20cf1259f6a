"""Calls that cannot be expanded in place: recursion, pointers to functions, virtual functions, structs by value."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import line_of, module

from workbench.emulator import FindingKind, LaunchError, UnsupportedInstruction, launch, load

RECURSION = """
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__device__ __noinline__ bool odd(unsigned n);
__device__ __noinline__ bool even(unsigned n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(unsigned n) { return n != 0 && even(n - 1); }
__device__ __noinline__ double sum(const double* x, int n, double scale, bool twice) {
    double own[2] = {scale * x[0], scale * x[n - 1]};
    if (n == 1) return own[0];
    int half = n / 2;
    double left = sum(x, half, scale + 1, !twice), right = sum(x + half, n - half, scale, twice);
    return twice ? 2 * left + right + own[n & 1] : left + right;
}
extern "C" __global__ void k(int* a, int* b, double* c, const double* x) {
    int i = threadIdx.x;
    a[i] = ackermann(i % 3, i % 5);
    b[i] = i % 2 ? odd(i) : even(i + 1);
    if (i % 3) c[i] = sum(x, 1 + i, 0.5, i & 1);
}
"""


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def total(x: list[float], scale: float, twice: bool) -> float:
    own = [scale * x[0], scale * x[-1]]
    if len(x) == 1:
        return own[0]
    half = len(x) // 2
    left, right = total(x[:half], scale + 1, not twice), total(x[half:], scale, twice)
    return 2 * left + right + own[len(x) & 1] if twice else left + right


@pytest.mark.parametrize("seed", range(3))
def test_functions_that_call_themselves_keep_their_registers_and_variables(seed: int) -> None:
    a, b = np.zeros(64, np.int32), np.zeros(64, np.int32)
    c, x = np.zeros(64), np.random.default_rng(seed).integers(-9, 9, 64).astype(np.float64)
    assert launch(RECURSION, "k", 1, 64, [a, b, c, x], seed=seed).ok
    assert a.tolist() == [ackermann(i % 3, i % 5) for i in range(64)]
    assert b.tolist() == [i % 2 for i in range(64)]
    assert c.tolist() == [total(x[: 1 + i].tolist(), 0.5, bool(i & 1)) if i % 3 else 0 for i in range(64)]


def test_recursion_without_end_overflows_the_stack() -> None:
    source = """
__device__ __noinline__ int down(int n) { return n == -1 ? 5 : down(n - 1) * n / 3; }  // deeper
extern "C" __global__ void k(int* x) { x[0] = down(1 << 30); }
"""
    (finding,) = launch(source, "k", 1, 1, [np.zeros(1, np.int32)]).findings
    assert finding.kind is FindingKind.OUT_OF_BOUNDS
    assert finding.location is not None and finding.location.line == line_of(source, "// deeper")
    assert "stack" in finding.message and "recursion" in finding.advice


POINTERS = """
struct Pair { int a; double b; };
typedef Pair (*Step)(Pair, int);
__device__ Pair add(Pair p, int i) { return {p.a + i, p.b + 0.5}; }
__device__ Pair scale(Pair p, int i) { return {p.a * i, p.b * 2}; }
__device__ Pair twice(Pair p, int i);
__device__ Step steps[3] = {add, scale, twice};
__device__ Pair twice(Pair p, int i) { return steps[i & 1](steps[(i + 1) & 1](p, i), i); }

struct Shape { __device__ virtual float area() const = 0; };
struct Square : Shape {
    float s;
    __device__ Square(float s) : s(s) {}
    __device__ float area() const override { return s * s; }
};
struct Bar : Square {
    float t;
    __device__ Bar(float s, float t) : Square(s), t(t) {}
    __device__ float area() const override { return Square::area() + t; }
};
extern "C" __global__ void k(double* out, float* areas, Step* given) {
    int i = threadIdx.x;
    Pair p = {i, 0.25};
    for (int k = 0; k < 5; ++k) p = steps[(i + k) % 3](p, k + 1);
    out[i] = p.a + p.b;
    Square square(i);
    Bar bar(i, 0.5f);
    const Shape* shape = i & 2 ? (const Shape*)&bar : (const Shape*)&square;
    areas[i] = shape->area();
    if (given) out[i] = given[i](p, 1).a;  // wrong
}
"""


def test_pointers_to_functions_and_virtual_functions() -> None:
    out, areas = np.zeros(32), np.zeros(32, np.float32)
    program = load(POINTERS)
    assert launch(program, "k", 1, 32, [out, areas, None]).ok

    def add(p: tuple[int, float], i: int) -> tuple[int, float]:
        return p[0] + i, p[1] + 0.5

    def scale(p: tuple[int, float], i: int) -> tuple[int, float]:
        return p[0] * i, p[1] * 2

    def twice(p: tuple[int, float], i: int) -> tuple[int, float]:
        return steps[i & 1](steps[(i + 1) & 1](p, i), i)

    steps = [add, scale, twice]
    expected = []
    for i in range(32):
        pair = (i, 0.25)
        for k in range(5):
            pair = steps[(i + k) % 3](pair, k + 1)
        expected.append(pair[0] + pair[1])
    assert out.tolist() == expected
    assert areas.tolist() == [i * i + (0.5 if i & 2 else 0) for i in range(32)]

    given = np.full(32, 0x1234567, np.uint64)
    (finding,) = launch(program, "k", 1, 32, [out, areas, given]).findings
    assert finding.kind is FindingKind.TRAP and "pointer" in finding.message
    assert finding.location is not None and finding.location.line == line_of(POINTERS, "// wrong")


def test_a_struct_by_value_is_read_in_other_pieces_than_it_was_stored() -> None:
    source = """
    struct Mixed { int a; double b; float c[5]; char d; };
    __device__ __noinline__ Mixed change(Mixed s, int i) { s.a += i; s.b *= 2; s.c[i % 5] += 1; s.d -= 1; return s; }
    extern "C" __global__ void k(float* out, Mixed s, int n) {
        for (int i = 0; i < n; ++i) s = change(s, i);
        out[threadIdx.x] = s.a + s.b + s.c[n % 5] + s.c[threadIdx.x % 5] + s.d;
    }
    """
    mixed = np.zeros(1, np.dtype([("a", "i4"), ("b", "f8"), ("c", "f4", 5), ("d", "i1")], align=True))
    mixed["a"], mixed["b"], mixed["d"] = 3, 1.5, 9
    mixed["c"] = np.arange(5)
    out = np.zeros(8, np.float32)
    assert launch(source, "k", 1, 8, [out, mixed[0], 7]).ok
    c = [0 + 2, 1 + 2, 2 + 1, 3 + 1, 4 + 1]
    assert out.tolist() == [3 + 21 + 1.5 * 2**7 + c[2] + c[i % 5] + 2 for i in range(8)]


def test_what_a_call_does_not_reach_is_refused() -> None:
    text = module(
        "{ .param .b64 a; st.param.b64 [a], 8; .param .b64 r; call (r), elsewhere, (a); } ret;",
        before=".extern .func (.param .b64 r) elsewhere(.param .b64 a);",
    )
    with pytest.raises(UnsupportedInstruction, match="cannot call elsewhere"):
        load(text)
    launching = module(
        "{ .param .b64 r; .reg .b64 d; mov.u64 d, k; call (r), __cudaCDP2GetParameterBufferV2; } ret;",
        before=".extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2;",
    )
    with pytest.raises(UnsupportedInstruction, match="the kernel launches another one: launch both from the host"):
        load(launching)
    with pytest.raises(LaunchError, match="local memory"):  # 4 KiB of stack a thread fit, 300 KiB of variables do not
        body = POINTERS.replace("Pair p = {i", "volatile char z[300000]; z[i] = 0; Pair p = {i")
        launch(body, "k", 10_000, 1024, [np.zeros(1024), np.zeros(1024, np.float32), None])


def test_what_is_refused_in_a_header_is_named_at_the_line_of_the_kernel() -> None:
    source = """
extern "C" __global__ void k(cudaTextureObject_t texture, float* x) {
    bool resident;
    x[threadIdx.x] = tex2D<float>(texture, threadIdx.x, 0, &resident);
}
"""
    with pytest.raises(UnsupportedInstruction, match=r"^kernel\.cu:4: .*tex\.2d") as refused:
        load(source)
    assert refused.value.location.line == 4


def test_a_recursion_that_fills_the_stack_with_its_arrays_is_told_so() -> None:
    source = """
__device__ __noinline__ int deep(const int* x, int n) {
    int own[16];
    for (int i = 0; i < 16; ++i) own[i] = x[i] + n;
    int below = n ? deep(x, n - 1) * 3 : 0;
    return own[below & 15] + below;
}
extern "C" __global__ void k(const int* x, int* y, int n) { y[threadIdx.x] = deep(x, n); }
"""
    x, y = np.arange(16, dtype=np.int32), np.zeros(1, np.int32)
    assert launch(source, "k", 1, 1, [x, y, 3]).ok
    below = 0
    for n in range(4):
        below = 3 * below + (3 * below & 15) + n
    assert y[0] == below
    (finding,) = launch(source, "k", 1, 1, [x, y, 300]).findings
    assert finding.kind is FindingKind.OUT_OF_BOUNDS
    assert "the call stack" in finding.message and finding.advice.startswith("see that the recursion ends")
