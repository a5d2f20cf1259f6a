"""All forms of the instructions that came with Blackwell: families, each with patterns that stand for its forms.

``<a|b>`` is a choice, and ``r:8`` a vector of eight registers. The patterns follow the PTX manual (ISA 9.1); ptxas has
the last word (``test_blackwell_forms.py``). ``python blackwell_forms.py`` prints the table of ``docs/blackwell.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TENSOR = ("sm_100a", "sm_103a", "sm_110a")
ALL = (*TENSOR, "sm_120a")
SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
COLLECTOR_A = "<|.collector::a::fill|.collector::a::use|.collector::a::lastuse|.collector::a::discard>"
DONE = "mbarrier::complete_tx::bytes"


@dataclass(frozen=True)
class Family:
    """Forms that are described together: patterns, the architectures that have them, and the test of what they do."""

    name: str
    patterns: tuple[str, ...]
    test: str
    archs: tuple[str, ...] = ALL

    def forms(self) -> list[str]:
        return list(dict.fromkeys(form for pattern in self.patterns for form in expanded(pattern)))


def expanded(pattern: str) -> Iterator[str]:
    """The forms that a pattern stands for."""
    choice = re.search(r"<([^<>]*)>", pattern)
    if choice:
        for option in choice[1].split("|"):
            yield from expanded(pattern[: choice.start()] + option + pattern[choice.end() :])
        return
    yield re.sub(r"\b([rdfh]):(\d+)", lambda m: "{" + ", ".join(f"{m[1]}{k}" for k in range(int(m[2]))) + "}", pattern)


def _moves() -> tuple[str, ...]:
    found = []
    for shape, each in SHAPES.items():
        half = ", 64" if shape == "16x32bx2" else ""
        for number in (2**k for k in range(8)):
            count = number * each
            if count <= 128:
                form = f"sync.aligned.{shape}.x{number}"
                found.append(f"tcgen05.ld.{form}<|.pack::16b>.b32 r:{count}, [r200]{half};")
                found.append(f"tcgen05.st.{form}<|.unpack::16b>.b32 [r200]{half}, r:{count};")
    return tuple(found)


def _reductions() -> tuple[str, ...]:
    return tuple(
        f"tcgen05.ld.red.sync.aligned.{shape}.x{n}.<min|max>.{kind} {letter}:{n}, {letter}199, [r200]{half};"
        for shape, half in (("32x32b", ""), ("16x32bx2", ", 64"))
        for n in (2, 4, 8, 16, 32, 64, 128)
        for kind, letter in (("<u32|s32>", "r"), ("<|abs.|NaN.|abs.NaN.>f32", "f"))
    )


def _products() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for kind in ("f16", "tf32", "f8f6f4", "i8"):
        plain = []
        for group, lanes in ((1, 4), (2, 8)):
            for sparse, meta in (("", ""), (".sp", " [r203],")):
                for shift, a in (("", "d0"), ("<|.ashift>", "[r201]")):
                    collector = COLLECTOR_A if not shift else "<|.collector::a::lastuse|.collector::a::discard>"
                    name = f"tcgen05.mma{sparse}.cta_group::{group}.kind::{kind}{shift}{collector}"
                    plain.append(f"{name} [r200], {a}, d1,{meta} r202, <|r:{lanes}, >p;")
        weights = [
            f"tcgen05.mma.ws{sparse}.cta_group::1.kind::{kind}<|.collector::b<0|1|2|3>::<fill|use|lastuse|discard>> "
            f"[r200], {a}, d1,{meta} r202, p<|, d2>;"
            for sparse, meta in (("", ""), (".sp", " [r203],"))
            for a in ("d0", "[r201]")
        ]
        found[f"mma, {kind}"] = tuple(plain)
        if kind in ("f16", "tf32"):
            found[f"mma, {kind}, with a scale of D"] = tuple(form.replace("p;", "p, 3;") for form in plain)
        found[f"mma.ws, {kind}"] = tuple(weights)
    for kind, vectors in {
        "mxf8f6f4": "<|.scale_vec::1X|.block32>",
        "mxf4": "<|.scale_vec::2X|.block32>",
        "mxf4nvf4": "<.scale_vec::2X|.scale_vec::4X|.block16|.block32>",
    }.items():
        found[f"mma, {kind}"] = tuple(
            f"tcgen05.mma{sparse}.cta_group::<1|2>.kind::{kind}.block_scale{vectors}{COLLECTOR_A} "
            f"[r200], {a}, d1,{meta} r202, [r204], [r205], p;"
            for sparse, meta in (("", ""), (".sp", " [r203],"))
            for a in ("d0", "[r201]")
        )
    return found


def _tensor() -> list[Family]:
    values = "test_tcgen05.py"
    families = [
        Family(
            "alloc, dealloc, relinquish_alloc_permit",
            (
                "tcgen05.alloc.cta_group::<1|2>.sync.aligned<|.shared::cta>.b32 [<r200|d200>], <64|r201>;",
                "tcgen05.dealloc.cta_group::<1|2>.sync.aligned.b32 r200, <64|r201>;",
                "tcgen05.relinquish_alloc_permit.cta_group::<1|2>.sync.aligned;",
            ),
            "test_tensor_hazards.py",
            TENSOR,
        ),
        Family("ld, st", _moves(), values, TENSOR),
        Family("ld.red", _reductions(), values, ("sm_103a", "sm_110a")),
        Family(
            "wait, fence",
            ("tcgen05.wait::<ld|st>.sync.aligned;", "tcgen05.fence::<before|after>_thread_sync;"),
            "test_tensor_hazards.py",
            TENSOR,
        ),
        Family(
            "cp",
            (
                "tcgen05.cp.cta_group::<1|2>.<128x256b|4x256b|128x128b|64x128b.warpx2::<02_13|01_23>|32x128b.warpx4>"
                "<|.b8x16.b4x16_p64|.b8x16.b6x16_p32> [r200], d0;",
            ),
            values,
            TENSOR,
        ),
        Family("shift", ("tcgen05.shift.cta_group::<1|2>.down [r200];",), values, TENSOR),
        Family(
            "commit",
            (
                "tcgen05.commit.cta_group::<1|2>.mbarrier::arrive::one<|.shared::cluster>.b64 [<r200|d200>];",
                "tcgen05.commit.cta_group::<1|2>.mbarrier::arrive::one<|.shared::cluster>.multicast::cluster.b64 "
                "[<r200|d200>], h0;",
            ),
            "test_tensor_hazards.py",
            TENSOR,
        ),
    ]
    for name, patterns in _products().items():
        archs = {"i8": ("sm_100a", "sm_110a"), " D": ("sm_100a", "sm_103a")}.get(name[-2:], TENSOR)
        families.append(Family(name, patterns, values, archs))
    return families


def _copies() -> list[Family]:
    test = "test_tensor_rows.py"
    load = "cp.async.bulk.tensor"
    groups, places = "<|.cta_group::1|.cta_group::2>", {n: f"r:{n}" for n in range(1, 6)}
    pairs = [
        f"{load}.{n}d.shared::cluster.global<|.tile>.{DONE}<.cta_group::1|.cta_group::2> "
        f"[r200], [d0, {places[n]}], [r201];"
        for n in places
    ]
    many = [
        f"{load}.{n}d.shared::cluster.global<|.tile>.{DONE}.multicast::cluster<.cta_group::1|.cta_group::2> "
        f"[r200], [d0, {places[n]}], [r201], h0;"
        for n in places
    ]
    wide = [
        f"{load}.{n}d.shared::cluster.global.im2col::w<|::128>.{DONE}{groups} [r200], [d0, {places[n]}], [r201], h:2;"
        for n in (3, 4, 5)
    ] + [
        f"{load}.{n}d.shared::cluster.global.im2col::w<|::128>.{DONE}.multicast::cluster{groups} "
        f"[r200], [d0, {places[n]}], [r201], h:2, h3;"
        for n in (3, 4, 5)
    ]
    own = [
        f"{load}.{n}d.shared::cta.global.im2col::w<|::128>.{DONE} [r200], [d0, {places[n]}], [r201], h:2;"
        for n in (3, 4, 5)
    ] + [f"cp.async.bulk.prefetch.tensor.{n}d.L2.global.im2col::w<|::128> [d0, {places[n]}], h:2;" for n in (3, 4, 5)]
    return [
        Family("cp.async.bulk.tensor, cta_group", (*pairs, *many), test, TENSOR),
        Family(
            "gather4",
            (
                f"{load}.2d.shared::cta.global.tile::gather4.{DONE} [r200], [d0, r:5], [r201];",
                f"{load}.2d.shared::cluster.global.tile::gather4.{DONE}{groups} [r200], [d0, r:5], [r201];",
                f"{load}.2d.shared::cluster.global.tile::gather4.{DONE}.multicast::cluster{groups} "
                "[r200], [d0, r:5], [r201], h0;",
                "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [d0, r:5];",
            ),
            test,
            TENSOR,
        ),
        Family(
            "scatter4",
            (
                f"{load}.2d.global.shared::cta.tile::scatter4.bulk_group [d0, r:5], [r200];",
                "cp.reduce.async.bulk.tensor.2d.global.shared::cta.<add|min|max|inc|dec|and|or|xor>.tile::scatter4"
                ".bulk_group [d0, r:5], [r200];",
            ),
            test,
            TENSOR,
        ),
        Family(
            "im2col::w",
            (
                *wide,
                *own,
            ),
            test,
            TENSOR,
        ),
    ]  # fmt: skip


def _conversions() -> list[Family]:
    test = "test_forms.py"
    return [
        Family(
            "cvt to e2m1, e2m3, e3m2, e4m3, e5m2",
            (
                "cvt.rn.satfinite<|.relu>.e2m1x2.f32 b8, f0, f1;",
                "cvt.rn.satfinite<|.relu>.e2m1x2.<f16x2|bf16x2> b8, r0;",
                "cvt.rn.satfinite<|.relu>.<e2m3|e3m2>x2.f32 h0, f0, f1;",
                "cvt.rn.satfinite<|.relu>.<e2m3|e3m2>x2.<f16x2|bf16x2> h0, r0;",
                "cvt.rn.satfinite<|.relu>.<e4m3|e5m2>x2.bf16x2 h0, r0;",
            ),
            test,
        ),
        Family(
            "cvt from e2m1, e2m3, e3m2, e4m3, e5m2",
            (
                "cvt.rn<|.relu>.f16x2.e2m1x2 r0, b8;",
                "cvt.rn<|.relu>.f16x2.<e2m3|e3m2>x2 r0, h0;",
                "cvt.rn<|.satfinite><|.relu>.bf16x2.e2m1x2 r0, b8;",
                "cvt.rn<|.satfinite><|.relu>.bf16x2.<e2m3|e3m2|e4m3|e5m2>x2 r0, h0;",
                "cvt.rn<|.satfinite><|.relu>.scaled::n2::ue8m0.bf16x2.e2m1x2 r0, b8, h1;",
                "cvt.rn<|.satfinite><|.relu>.scaled::n2::ue8m0.bf16x2.<e2m3|e3m2|e4m3|e5m2>x2 r0, h0, h1;",
            ),
            test,
        ),
        Family(
            "cvt to and from ue8m0",
            (
                "cvt.<rz|rp><|.satfinite>.ue8m0x2.f32 h0, f0, f1;",
                "cvt.<rz|rp><|.satfinite>.ue8m0x2.bf16x2 h0, r0;",
                "cvt.rn.bf16x2.ue8m0x2 r0, h0;",
            ),
            test,
        ),
        Family(
            "cvt.rs",
            (
                "cvt.rs<|.relu><|.satfinite>.<f16x2|bf16x2>.f32 r0, f0, f1, r1;",
                "cvt.rs<|.relu>.satfinite.<e2m3|e3m2|e4m3|e5m2>x4.f32 r0, f:4, r1;",
                "cvt.rs<|.relu>.satfinite.e2m1x4.f32 h0, f:4, r1;",
            ),
            test,
            ("sm_100a", "sm_103a"),
        ),
    ]


def _memory() -> list[Family]:
    values = "test_blackwell_values.py"
    vectors = ((".v8.<b32|u32|s32>", "r:8"), (".v8.f32", "f:8"), (".v4.<b64|u64|s64|f64>", "d:4"))
    loads = (
        f"ld<|.relaxed.gpu|.global|.relaxed.gpu.global|.global.nc>{kind} {names}, [d8];" for kind, names in vectors
    )
    stores = (f"st<|.relaxed.gpu|.global|.relaxed.gpu.global>{kind} [d8], {names};" for kind, names in vectors)
    hints = "<.L1::no_allocate|.L2::evict_first|.L2::evict_last>"
    asks = f"clusterlaunchcontrol.try_cancel.async.@{DONE}<|.multicast::cluster::all>.b128 [@0], [@1];"
    phase = "shared::cta.b64 p, [r200]"
    return [
        Family(
            "clusterlaunchcontrol",
            (
                asks.replace("async.@", "async.shared::cta.").replace("@", "r"),
                asks.replace("async.@", "async.").replace("@", "d"),
                "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, x0;",
                "clusterlaunchcontrol.query_cancel.get_first_ctaid::<x|y|z>.b32.b128 r0, x0;",
                "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {r0, r1, r2, _}, x0;",
            ),
            "test_launch_control.py",
        ),
        Family(
            "ld, st of 256 bits",
            (
                *loads,
                *stores,
                f"ld.global{hints}.v8.b32 r:8, [d8];",
                f"st.global{hints}.v8.b32 [d8], r:8;",
                "ld.global.L2::cache_hint.v8.b32 r:8, [d8], d9;",
                "st.global.L2::cache_hint.v4.b64 [d8], d:4, d9;",
            ),
            values,
        ),
        Family(
            "st.bulk", ("st.bulk<|.weak>.shared::cta [r200], <d0|64>, 0;", "st.bulk<|.weak> [d8], <d0|64>, 0;"), values
        ),
        Family(
            "mbarrier, relaxed; fences that are restricted",
            (
                f"mbarrier.<test_wait|try_wait>.parity<.relaxed|.acquire>.<cta|cluster>.{phase}, r1;",
                f"mbarrier.<test_wait|try_wait><.relaxed|.acquire>.<cta|cluster>.{phase}, d1;",
                "mbarrier.<arrive|arrive_drop><.relaxed|.release>.<cta|cluster>.shared::cta.b64 d0, [r200]<|, r1>;",
                "mbarrier.<arrive|arrive_drop>.expect_tx<.relaxed|.release>.<cta|cluster>.shared::cluster.b64 "
                "_, [r200], r1;",
                "mbarrier.<expect_tx|complete_tx>.relaxed.<cta|cluster>.shared::<cta|cluster>.b64 [r200], r1;",
                "fence.acquire.sync_restrict::shared::cluster.cluster;",
                "fence.release.sync_restrict::shared::cta.cluster;",
                "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
                "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
            ),
            "test_forms.py",
        ),
    ]


def _arithmetic() -> list[Family]:
    values = "test_blackwell_values.py"
    sums, kinds = "{f4, f5, f6, f7}", "<e4m3|e5m2|e2m3|e3m2|e2m1>"
    begin, sources = "mma.sync.aligned.m16n8k", f"f:4, r:4, {{r4, r5}}, {sums}"
    factors = f"{sources}, r6, {{h0, h1}}, r7, {{h2, h3}};"
    small, packed = f"{begin}32.row.col.kind::", f"{begin}64.row.col.kind::"
    return [
        Family(
            "add, sub, mul, fma of f32x2",
            (
                "<add|sub|mul><|.rn|.rz|.rm|.rp><|.ftz>.f32x2 d0, d1, d2;",
                "fma<.rn|.rz|.rm|.rp><|.ftz>.f32x2 d0, d1, d2, d3;",
            ),
            "test_forms.py",
        ),
        Family(
            "add, sub, fma of f32 and halves",
            (
                "<add|sub><|.rn|.rz|.rm|.rp><|.sat>.f32.<f16|bf16> f0, h0, f1;",
                "fma<.rn|.rz|.rm|.rp><|.sat>.f32.<f16|bf16> f0, h0, h1, f1;",
            ),
            values,
        ),
        Family("redux of f32", ("redux.sync.<min|max><|.abs><|.NaN>.f32 f0, f1, r0;",), values, ("sm_100a", "sm_103a")),
        Family(
            "mma.sync with a kind",
            (
                f"{small}f8f6f4.f32.{kinds}.{kinds}.f32 {sources};",
                f"{small}f8f6f4.f16.{kinds}.{kinds}.f16 r:2, r:4, {{r4, r5}}, {{r6, r7}};",
                f"{small}mxf8f6f4.block_scale<|.scale_vec::1X>.f32.{kinds}.{kinds}.f32.ue8m0 {factors}",
                f"{packed}mxf4.block_scale<|.scale_vec::2X>.f32.e2m1.e2m1.f32.ue8m0 {factors}",
                f"{packed}mxf4nvf4.block_scale.scale_vec::<2X|4X>.f32.e2m1.e2m1.f32.ue8m0 {factors}",
                f"{packed}mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 {factors}",
            ),
            values,
            ("sm_120a", "sm_121a"),
        ),
    ]


def families() -> list[Family]:
    """The table."""
    return [*_tensor(), *_copies(), *_memory(), *_conversions(), *_arithmetic()]


REFUSED = {
    "sparse products of a warp with a kind": (
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32 "
         "f:4, r:4, {r4, r5, r8, r9}, {f4, f5, f6, f7}, r10, 0;"),
        "sm_120a",
        "not written yet",
    ),
    "ldmatrix of 8-bit elements": (
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {r0, r1}, [r200];",
        "sm_100a",
        "not written yet",
    ),
    "ldmatrix that spreads 4 or 6 bits": (
        "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 r:4, [r200];",
        "sm_100a",
        "not written yet",
    ),
    "stmatrix of 8-bit elements": (
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [r200], {r0};",
        "sm_100a",
        "not written yet",
    ),
    "fixed point of 8 bits": (
        "cvt.rn.satfinite.s2f6x2.f32 h0, f0, f1;",
        "sm_100a",
        "what NaN becomes is not documented",
    ),
}  # fmt: skip
"""Forms that exist and are refused, by what they are: an example, an architecture that has it, the reason."""


def module(forms: list[str], arch: str) -> str:
    """A kernel of these forms in PTX, which nobody executes."""
    return f"""
.version 9.2
.target {arch}
.address_size 64
.visible .entry k(.param .u64 arg) .reqntid 128 {{
    .reg .pred p; .reg .b32 r<256>; .reg .b64 d<256>; .reg .b16 h<16>; .reg .f32 f<256>; .reg .b128 x<4>; .reg .b8 b8;
    {chr(10).join(forms)}
    ret;
}}
"""


def table() -> str:
    """The table of the page, in Markdown."""
    lines = ["| instructions | forms | architectures | values in |", "|---|--:|---|---|"]
    for family in families():
        archs = ", ".join(arch.removeprefix("sm_") for arch in family.archs)
        lines.append(f"| {family.name} | {len(family.forms())} | {archs} | `{family.test}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
