"""Products of a warp whose fragments the hardware lays out: wmma."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from batches import Kernel
from case import Case, case_module
from form import Array
from product_cases import (
    DTYPES,
    NARROW,
    SUM_ERROR,
    as_integers,
    element_bits,
    matrix_of,
    near_the_ends,
    packed,
    product_of,
)
from tile_cases import vector_text

_DEEP = ("m16n16k16", "m32n8k16", "m8n32k16")
# shape; types of D, A, B and C; what stands after "mma", after the shape and after the types
WMMA = [
    *((shape, (d, "f16", "f16", c), "", "", "") for shape in _DEEP for d in ("f16", "f32") for c in ("f16", "f32")),
    *((shape, ("f32", "bf16", "bf16", "f32"), "", "", "") for shape in _DEEP),
    *(
        (shape, ("s32", kind, kind, "s32"), "", "", end)
        for shape, kinds in (*((shape, ("s8", "u8")) for shape in _DEEP), ("m8n8k32", ("s4", "u4")))
        for kind in kinds
        for end in ("", ".satfinite")
    ),
    ("m16n16k8", ("f32", "tf32", "tf32", "f32"), "", "", ""),
    *(("m8n8k4", ("f64",) * 4, "", rounding, end) for rounding, end in (("", ""), (".rn", ""), ("", ".rn"))),
    *(("m8n8k128", ("s32", "b1", "b1", "s32"), f".{f}.popc", "", "") for f in ("and", "xor")),
]


def fragments(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wmma: products of matrices in memory, in all layouts and spaces, on whole numbers and on floats."""
    for (shape, types, *words), space, whole in itertools.product(WMMA, (".global", ".shared", ""), (True, False)):
        if not (whole and types[0] == "s32"):
            yield _wmma_case(2 * size, shape, types, words, space, whole, rng)


def _wmma_case(
    warps: int,
    shape: str,
    types: tuple[str, ...],
    words: list[str],
    space: str,
    whole: bool,
    rng: np.random.Generator,
) -> Case:
    """A warp a block multiplies its matrices once for each pair of layouts, into a D of its own and into C's."""
    d, a, b, c = types
    m, n, k = (int(x) for x in shape[1:].replace("n", "k").split("k"))
    matrices = {
        role: matrix_of(name, (warps, *lengths), rng, whole)
        for role, name, lengths in zip("abc", (a, b, c), ((m, k), (k, n), (m, n)), strict=True)
    }
    if c == "s32":
        near_the_ends(matrices["c"], rng)
    exact = product_of(matrices["a"], matrices["b"], words[0])
    exact = exact + matrices["c"].astype(exact.dtype)
    magnitudes = [np.abs(matrices[role].astype(np.float64)) for role in "abc"]
    scale = magnitudes[0] @ magnitudes[1] + magnitudes[2]
    result = as_integers(exact, words[2] == ".satfinite") if d == "s32" else exact.astype(DTYPES[d])

    images = _Images(warps, dict(zip("abc", (a, b, c), strict=True)), space)
    every = list(itertools.product(("row", "col"), repeat=2))
    pairs = [("row", "col")] * 4 if a in NARROW else every  # of what is narrow PTX has one layout alone
    layouts = [(*pair, *more) for pair, more in zip(pairs, every[::-1], strict=True)]
    for place, role in enumerate("abc"):
        images.put(role, matrices[role], sorted({each[place] for each in layouts}))
    given = np.concatenate(images.parts, axis=1)
    sequence = _Sequence(shape, types, words, images)
    for each in layouts:
        sequence.multiply(each, (m, n, k))
    copies = [(layout, target) for *_, layout in layouts for target in sequence.targets]
    expected, magnitude = (
        np.concatenate([images.lines(x, layout, d).reshape(warps, -1) for layout, _ in copies], axis=1)
        for x in (result, scale)
    )
    kind = "f64" if d == "f64" else "b32"
    text = _wmma_text(" ".join(sequence.steps), given.shape[1], expected[0].nbytes, space, kind)
    near = {} if whole or d == "s32" else {1: (magnitude, SUM_ERROR[d])}
    name = f"wmma{words[0]} {shape}{words[1]}.{sequence.product}{words[2]}, {space[1:] or 'generic'}"
    kernel = Kernel(text, warps, 32, [given, np.zeros_like(expected)])
    names = list(dict.fromkeys(sequence.operations))
    return Case(f"{name}{', whole numbers' if whole else ''}", names, kernel, [None, expected], near)


@dataclass
class _Images:
    """Matrices of every warp in memory: ``places`` has the byte where each lies, by role and layout, and its stride."""

    warps: int
    types: dict[str, str]
    space: str
    parts: list[Array] = field(default_factory=list)
    places: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    end: int = 0

    def lines(self, matrix: Array, layout: str, name: str) -> Array:
        """Dense, or with 16 bytes after each row or column."""
        across = matrix if layout == "row" else matrix.transpose(0, 2, 1)
        return np.pad(across, ((0, 0), (0, 0), (0, 128 // element_bits(name) if self.space else 0)))

    def put(self, role: str, matrix: Array, layouts: list[str]) -> None:
        """One after the other, in each of the layouts."""
        for layout in layouts:
            padded = self.lines(matrix, layout, self.types[role])
            image = packed(padded, self.types[role]).reshape(self.warps, -1)
            image = np.pad(image, ((0, 0), (0, -image.shape[1] % 32)))
            self.places[role, layout] = self.end, padded.shape[2]
            self.parts.append(image)
            self.end += image.shape[1]


class _Sequence:
    """Loads, products and stores: ``steps`` as text, and the ``operations`` that they are."""

    def __init__(self, shape: str, types: tuple[str, ...], words: list[str], images: _Images) -> None:
        self.shape, self.types, self.words, self.images = shape, types, words, images
        d, a, b, c = types
        self.product = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
        self.targets = "dc" if d == c else "d"
        self.operations: list[str] = []
        self.steps: list[str] = []
        self.at = 0

    def step(self, operation: str, operands: str) -> None:
        self.operations.append(operation)
        self.steps.append(f"{operation} {operands};")

    def counts(self, m: int, n: int, k: int) -> dict[str, int]:
        """Registers of a fragment by its role."""
        d, a, b, c = self.types
        sizes = zip("abcd", (a, b, c, d), (m * k, k * n, m * n, m * n), strict=True)
        found = {role: size * element_bits(name) // 32 // max(element_bits(name), 32) for role, name, size in sizes}
        return {**found, "a": 8, "b": 8} if a == "f16" else found  # in all shapes

    def multiply(self, layouts: tuple[str, ...], extents: tuple[int, int, int]) -> None:
        """Load A, B and C in the first three layouts, multiply, and store D, and C where it took D, in the last."""
        count, words, space, d = self.counts(*extents), self.words, self.images.space, self.types[0]
        vectors = {role: vector_text(role, count[role]) for role in "abc"}
        for role, name, layout in zip("abc", self.types[1:], layouts, strict=False):
            place, length = self.images.places[role, layout]
            stride = f", {length}" if space else ""
            operation = f"wmma.load.{role}.sync.aligned.{layout}.{self.shape}{space}.{name}"
            self.step(operation, f"{vectors[role]}, [%in+{place}]{stride}")
        operation = f"wmma.mma{words[0]}.sync.aligned.{layouts[0]}.{layouts[1]}.{self.shape}{words[1]}.{self.product}"
        for target in self.targets:
            self.step(operation + words[2], ", ".join([vector_text(target, count["d"]), *vectors.values()]))
        m, n, _ = extents
        outer, inner = (m, n) if layouts[3] == "row" else (n, m)
        inner += 128 // element_bits(d) if space else 0
        for target in self.targets:
            stride = f", {inner}" if space else ""
            operation = f"wmma.store.d.sync.aligned.{layouts[3]}.{self.shape}{space}.{d}"
            self.step(operation, f"[%out+{self.at}], {vector_text(target, count['d'])}{stride}")
            self.at += outer * inner * np.dtype(DTYPES[d]).itemsize


def _wmma_text(steps: str, given: int, found: int, space: str, kind: str) -> str:
    """``steps`` from %in to %out: the block's bytes in global memory, or copies of them in shared memory."""

    def copied(name: str, nbytes: int, load: str, store: str) -> str:
        return f"""
        mov.u32 %s, %tid.x; shl.b32 %s, %s, 2;
        {name}: setp.ge.u32 %p, %s, {nbytes}; @%p bra {name}_DONE; cvt.u64.u32 %o, %s;
        add.u64 %from, {load}, %o; add.u64 %to, {store}, %o; ld.b32 %v, [%from]; st.b32 [%to], %v;
        add.u32 %s, %s, 128; bra {name};
        {name}_DONE: bar.warp.sync -1;
        """

    begin = f"""
    mov.u32 %i, %ctaid.x;
    ld.param.u64 %in, [given]; mul.wide.u32 %o, %i, {given}; add.u64 %in, %in, %o; cvta.to.global.u64 %in, %in;
    ld.param.u64 %out, [found]; mul.wide.u32 %o, %i, {found}; add.u64 %out, %out, %o; cvta.to.global.u64 %out, %out;
    """
    if space == ".shared":
        begin += f"""
        mov.u64 %gin, %in; mov.u64 %gout, %out; mov.u64 %in, tile; cvta.shared.u64 %sin, %in;
        add.u64 %out, %in, {given}; add.u64 %sout, %sin, {given};
        {copied("GIVEN", given, "%gin", "%sin")} {copied("FOUND", found, "%gout", "%sout")}
        """
        steps += f" bar.warp.sync -1; {copied('BACK', found, '%sout', '%gout')}"
    elif not space:
        begin += "cvta.global.u64 %in, %in; cvta.global.u64 %out, %out;"
    return case_module(
        f"{begin} {steps} ret;",
        ".param .u64 given, .param .u64 found",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %v; .reg .pred %p; .reg .b64 %o; .reg .b64 %in; .reg .b64 %out;"
        ".reg .b64 %gin; .reg .b64 %gout; .reg .b64 %sin; .reg .b64 %sout; .reg .b64 %from; .reg .b64 %to;"
        + " ".join(f".reg .{kind} %{n}<8>;" for n in "abcd")
        + (f".shared .align 32 .b8 tile[{given + found}];" if space == ".shared" else ""),
    )
