"""Instructions of sm_100 and later outside of tensor memory, against NumPy: bit by bit, on inputs that are exact."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import softfloat
from softfloat import F32
from tensor_programs import TYPES, small_float

from workbench.emulator import Report, UnsupportedInstruction, _engine, launch, load


def ok(result: Report) -> None:
    assert result.ok, [str(finding) for finding in result.findings]


def kernel(body: str, arch: str = "sm_100a", registers: str = "", arrays: int = 3, version: str = "8.8") -> str:
    """A warp executes ``body`` with its lane in %t and the arrays' addresses in %p0, %p1 ..."""
    return f"""
.version {version}
.target {arch}
.address_size 64
.visible .entry k({", ".join(f".param .u64 a{n}" for n in range(arrays))}) .reqntid 32 {{
    .reg .b32 %t; .reg .b32 %r<64>; .reg .b64 %d<16>; .reg .b64 %p<{arrays}>; .reg .f32 %f<16>; .reg .f64 %e<8>;
    .reg .b16 %h<8>; .reg .pred %q; {registers}
    mov.u32 %t, %tid.x;
    {" ".join(f"ld.param.u64 %p{n}, [a{n}]; cvta.to.global.u64 %p{n}, %p{n};" for n in range(arrays))}
    {body}
    ret;
}}
"""


def run(text: str, arrays: list[np.ndarray], arch: str = "sm_100a", **options: object) -> Report:
    return launch(load(text, arch=arch), "k", 1, 32, arrays, strict=True, **options)


# ---- 256 bits


def opcodes(pattern: str) -> list[str]:
    """The engine's names that match."""
    return [name for name, _ in _engine.operations() if re.fullmatch(pattern, name)]


WIDE = opcodes(r"ld\..*(v8\.|v4\.[bsuf]64).*")
HINTS = ["", ".relaxed.gpu", ".L1::no_allocate.L2::evict_first", ".L2::evict_last", ".L2::cache_hint"]


def hinted(opcode: str, hint: str) -> str:
    base, space, rest = re.fullmatch(r"(ld|st)(|\.global)(\.v.*)", opcode).groups()  # type: ignore[union-attr]
    return f"{base}{hint}{space}{rest}" if "relaxed" in hint else f"{base}{space}{hint}{rest}"


@pytest.mark.parametrize("opcode", WIDE)
def test_loads_and_stores_of_256_bits(opcode: str) -> None:
    kind = opcode.rpartition(".")[2]
    letter = {"f32": "f", "f64": "e"}.get(kind, "d" if kind.endswith("64") else "r")
    names = ", ".join(f"%{letter}{k}" for k in range(4 if kind.endswith("64") else 8))
    given = np.random.default_rng(0).integers(0, 2**32, 32 * 8, dtype=np.uint32)
    found = np.zeros_like(given)
    store = opcode.replace("ld", "st", 1)
    for hint in HINTS:
        policy = ", %d9" if "cache_hint" in hint else ""
        body = f"""
    shl.b32 %r20, %t, 5; cvt.u64.u32 %d8, %r20; add.u64 %p0, %p0, %d8; add.u64 %p1, %p1, %d8; mov.b64 %d9, 0;
    {hinted(opcode, hint)} {{{names}}}, [%p0]{policy};
    {hinted(store, hint)} [%p1], {{{names}}}{policy};"""
        found[:] = 0
        ok(run(kernel(body, arrays=2), [given, found]))
        assert np.array_equal(given, found), hint


def test_256_bits_are_aligned_to_their_size() -> None:
    body = "add.u64 %p0, %p0, 16; ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%p0];"
    result = run(kernel(body, arrays=1), [np.zeros(64, np.uint32)])
    assert result.findings[0].code == "misaligned" and "32" in str(result.findings[0])


def test_256_bits_beside_each_other_race_with_what_overlaps_them() -> None:
    names = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}"
    body = f"""
    mov.b32 %r0, %t; shl.b32 %r20, %t, %r21; cvt.u64.u32 %d8, %r20; shr.u64 %d8, %d8, 1; and.b64 %d8, %d8, -32;
    add.u64 %p0, %p0, %d8; st.global.v8.b32 [%p0], {names};"""
    text = kernel("mov.u32 %r21, 5;" + " ".join(f"mov.b32 %r{k}, {k};" for k in range(1, 8)) + body, arrays=1)
    result = run(text, [np.zeros(32 * 8, np.uint32)])
    assert result.findings[0].code == "race"


@pytest.mark.parametrize("space", ["shared::cta", ""])
def test_a_run_of_zeros(space: str) -> None:
    name = f"st.bulk.weak.{space}" if space else "st.bulk"
    body = f"""
    mov.u32 %r1, tile; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; st.shared.b32 [%r3], -1; bar.warp.sync -1;
    cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1; setp.eq.u32 %q, %t, 0;
    @%q {name} [{"%r1+16" if space else "%d1+16"}], 48, 0;
    bar.warp.sync -1;
    ld.shared.b32 %r4, [%r3]; mul.wide.u32 %d2, %t, 4; add.u64 %d2, %d2, %p0; st.global.b32 [%d2], %r4;"""
    found = np.zeros(32, np.uint32)
    ok(run(kernel(body, registers=".shared .align 16 .b8 tile[128];", arrays=1), [found]))
    expected = np.full(32, 2**32 - 1, np.uint32)
    expected[4:16] = 0
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("operands", "code"),
    [("[%r1], %d1, 0", "bad_operand"), ("[%r1+4], 8, 0", "misaligned"), ("[%r1], 136, 0", "out_of_bounds")],
)
def test_a_run_of_zeros_that_does_not_fit(operands: str, code: str) -> None:
    body = f"mov.u32 %r1, tile; mov.u64 %d1, 44; setp.eq.u32 %q, %t, 0; @%q st.bulk.weak.shared::cta {operands};"
    result = run(kernel(body, registers=".shared .align 16 .b8 tile[128];", arrays=0), [])
    assert result.findings[0].code == code


# ---- reductions


def reduced(values: list[int], name: str) -> int:
    """The least or greatest of floats; NaN counts only with ``.NaN``, or where there is nothing else."""
    parts = name.split(".")
    values = [v & 0x7FFFFFFF for v in values] if "abs" in parts else values
    if "NaN" in parts and any(map(F32.is_nan, values)):
        return F32.nan
    result = values[0]
    for value in values:
        result = (softfloat.minimum if "min" in parts else softfloat.maximum)(F32, result, value)
    return result


FLOATS = [0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x3F800000, 0xC1200000, 0x40000000]


@pytest.mark.parametrize("opcode", opcodes(r"redux\.sync\..*f32"))
def test_reductions_of_floats(opcode: str) -> None:
    rng = np.random.default_rng(3)
    body = f"""
    mul.wide.u32 %d1, %t, 4; add.u64 %p0, %p0, %d1; add.u64 %p1, %p1, %d1; ld.global.f32 %f0, [%p0];
    setp.lt.u32 %q, %t, 20; mov.u32 %r1, 0xfffff; @!%q mov.u32 %r1, 0xfff00000;
    {opcode} %f1, %f0, %r1; st.global.f32 [%p1], %f1;"""
    for nan in (0, 3, 32):
        given = rng.choice(np.array(FLOATS, np.uint32), 32)
        given[rng.permutation(32)[:nan]] = 0x7FC00123
        found = np.zeros(32, np.uint32)
        ok(run(kernel(body, arrays=2), [given, found]))
        for members in (slice(0, 20), slice(20, 32)):
            expected = reduced([int(v) for v in given[members]], opcode)
            same = (found[members] == expected) | (F32.is_nan(expected) & (found[members] & 0x7FFFFFFF > F32.infinity))
            assert same.all(), (opcode, hex(expected), hex(found[members][0]))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add.rn.f32", "sub.rz.sat.f32", "fma.rn.f32", "fma.rp.f32", "add.f32"])
def test_sums_of_singles_and_halves(name: str, kind: str) -> None:
    rng = np.random.default_rng(4)
    halves = rng.integers(0, 0x7000, (2, 32)).astype(np.uint16)
    singles = rng.normal(size=32).astype(np.float32)
    fused = name.startswith("fma")
    body = f"""
    mul.wide.u32 %d1, %t, 4; add.u64 %p1, %p1, %d1; add.u64 %p2, %p2, %d1; shr.u64 %d1, %d1, 1; add.u64 %p0, %p0, %d1;
    ld.global.b16 %h0, [%p0]; ld.global.b16 %h1, [%p0+64]; ld.global.f32 %f1, [%p1];
    {name}.{kind} %f2, %h0, {"%h1, " if fused else ""}%f1; st.global.f32 [%p2], %f2;"""
    found = np.zeros(32, np.uint32)
    ok(run(kernel(body), [halves.reshape(-1), singles, found]))
    form = softfloat.FORMATS[kind]
    mode = next((m for m in ("rn", "rz", "rp") if m in name), "rn")
    for lane in range(32):
        a, b = (softfloat.convert(form, F32, int(halves[n, lane])) for n in (0, 1))
        c = int(singles[lane : lane + 1].view(np.uint32)[0])
        addend = c ^ F32.sign if "sub" in name else c
        exact = softfloat.fma(F32, a, b, c, mode) if fused else softfloat.add(F32, a, addend, mode)
        if "sat" in name:
            exact = 0 if exact & F32.sign else min(exact, 0x3F800000)
        assert int(found[lane]) == exact


# ---- products of a warp

DEPTH = {"f8f6f4": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def draw(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Codes and values of elements that are numbers and small."""
    bits, _ = TYPES[name]
    codes = rng.integers(0, 1 << bits, shape).astype(np.uint32)
    exponent, mantissa = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}[name]
    if bits == 8:  # near 1, so that sums are exact
        codes = codes & 0x87 | ((1 << (exponent - 1)) - 1) << mantissa if mantissa == 3 else codes & 0x83 | 15 << 2
    return codes, small_float(codes, exponent, mantissa)


def registers_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """[rows][K] as the registers of a fragment: [register][lane], rows in eights first, then K."""
    per = 32 // bits
    rows, depth = codes.shape
    words = np.zeros((rows, depth // per), np.uint32)
    for i in range(per):
        words |= codes[:, i::per].astype(np.uint32) << np.uint32(bits * i)
    tiles = words.reshape(rows // 8, 8, depth // per // 4, 4)
    return np.concatenate([tiles[r, :, k].reshape(1, 32) for k in range(tiles.shape[2]) for r in range(rows // 8)])


def product(opcode: str, factors: int, fine: bool, ids: tuple[int, int, int, int]) -> None:
    """Compares D with NumPy; ``ids``: byte and thread of A's factors, and of B's."""
    kind = re.search(r"kind::(\w+)", opcode)
    assert kind
    a_name, b_name = re.findall(r"\.(e\dm\d)", opcode.replace("ue4m3", ""))[:2]
    depth = DEPTH[kind[1]]
    rng = np.random.default_rng(5)
    a_codes, a = draw(rng, a_name, (16, depth))
    b_codes, b = draw(rng, b_name, (8, depth))
    bits = 4 if depth == 64 else 8
    stored = [c << 2 if bits == 8 and name == "e2m1" else c for c, name in ((a_codes, a_name), (b_codes, b_name))]
    halves = ".f16" in opcode
    c = rng.integers(-8, 9, (16, 8)).astype(np.float32)
    scale = np.ones((16, 8, 1))
    words = rng.integers(0, 2**32, (2, 32), dtype=np.uint32)
    if factors:
        scales = []
        for which, rows in enumerate((16, 8)):
            codes = rng.integers(0x30, 0x40, (rows, factors)) if fine else rng.integers(125, 130, (rows, factors))
            scales.append(small_float(codes, 4, 3) if fine else 2.0 ** (codes - 127.0))
            for row, block in itertools.product(range(rows), range(factors)):
                lane = row % 8 * 4 + (2 * ids[1] + row // 8 if which == 0 else ids[3])
                shift = 8 * (ids[2 * which] + block)
                keep = np.uint32(0xFFFFFFFF ^ 255 << shift)
                words[which, lane] = words[which, lane] & keep | np.uint32(int(codes[row, block]) << shift)
        scale = scales[0][:, None, :] * scales[1][None, :, :]
    expected = c.astype(float)
    groups = scale.shape[2]
    for g in range(groups):
        k = slice(g * depth // groups, (g + 1) * depth // groups)
        expected = expected + a[:, k] @ b[:, k].T * scale[:, :, g]
    inputs = np.concatenate([registers_of(stored[0], bits), registers_of(stored[1], bits), words])
    lanes = np.arange(32)
    rows, columns = lanes // 4, lanes % 4 * 2
    if halves:
        for q in (0, 1):
            pair = np.stack([c[rows + 8 * q, columns + i] for i in (0, 1)], 1).astype(np.float16)
            inputs = np.concatenate([inputs, pair.view(np.uint32).T])
    else:
        parts = [c[rows + 8 * (q // 2), columns + q % 2].view(np.uint32) for q in range(4)]
        inputs = np.concatenate([inputs, *(p[None] for p in parts)])
    d = ["%r20", "%r21"] if halves else ["%r20", "%r21", "%r22", "%r23"]
    loaded = " ".join(f"ld.global.b32 %r{n}, [%p0+{128 * n}];" for n in range(len(inputs)))
    sums = ", ".join(f"%r{8 + n}" for n in range(len(d)))
    if not halves:
        loaded += " ".join(f"mov.b32 %f{n}, %r{8 + n};" for n in range(4))
        sums, d = "%f0, %f1, %f2, %f3", ["%f4", "%f5", "%f6", "%f7"]
    more = f", %r6, {{{ids[0]}, {ids[1]}}}, %r7, {{{ids[2]}, {ids[3]}}}" if factors else ""
    body = f"""
    mul.wide.u32 %d1, %t, 4; add.u64 %p0, %p0, %d1; add.u64 %p1, %p1, %d1; {loaded}
    {opcode} {{{", ".join(d)}}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{sums}}}{more};
    {" ".join(f"st.global.{'b32' if halves else 'f32'} [%p1+{128 * n}], {name};" for n, name in enumerate(d))}"""
    found = np.zeros((len(d), 32), np.uint32)
    version = "9.2" if "4X" in opcode and opcode.endswith("ue8m0") else "8.8"  # of PTX
    ok(run(kernel(body, "sm_120a", arrays=2, version=version), [inputs.reshape(-1), found.reshape(-1)], "sm_120a"))
    for q, lane in itertools.product(range(len(d)), range(32)):
        values = found[q, lane : lane + 1].view(np.float16 if halves else np.float32)
        for i, value in enumerate(values):
            row, column = rows[lane] + 8 * (q if halves else q // 2), columns[lane] + (i if halves else q % 2)
            exact = np.float16(expected[row, column]) if halves else expected[row, column]
            assert value == exact, (opcode, row, column)


@pytest.mark.parametrize("opcode", opcodes(r"mma\..*kind::f8f6f4\..*"))
def test_products_of_bytes(opcode: str) -> None:
    product(opcode, 0, False, (0, 0, 0, 0))


@pytest.mark.parametrize("opcode", opcodes(r"mma\..*block_scale.*"))
def test_products_with_factors_of_blocks(opcode: str) -> None:
    factors = 1 if "mxf8f6f4" in opcode else 4 if "4X" in opcode else 2
    choices = {1: [(0, 0, 0, 0), (3, 1, 2, 3)], 2: [(0, 1, 2, 1), (2, 0, 0, 2)], 4: [(0, 0, 0, 3), (0, 1, 0, 0)]}
    for ids in choices[factors]:
        product(opcode, factors, opcode.endswith("ue4m3"), ids)


@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a", "sm_120"])
def test_products_of_a_kind_need_sm_120a(arch: str) -> None:
    opcode = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32"
    text = kernel(
        f"{opcode} {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%f0, %f1, %f2, %f3}};", arch
    )
    with pytest.raises(UnsupportedInstruction, match="needs sm_120a or sm_120f"):
        load(text, arch=arch)
