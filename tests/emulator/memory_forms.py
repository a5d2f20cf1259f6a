"""Loads, stores, atomics, copies and mbarriers as forms: every thread works on cells of 16 bytes of its own.

A body finds the address of its cell in %shared, %global and %local, generic addresses of the same in %gshared, %gglobal
and %glocal, and an mbarrier of its own in %bar. It leaves no work pending. ``CONSTANT`` and ``PARAMETER`` are the bytes
of the constant bank and of a parameter by value.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from copy_forms import (
    BARRIER,
    DONE,
    LANDED,
    arriving_copies,
    bulk_loads,
    bulk_stores,
    floats_in,
    group_copies,
    mbarrier_forms,
    small_copies,
)
from form import Array, Definition, Form, bits_of
from memory_form_parts import (
    ADDRESS,
    CONSTANT,
    FLOATS,
    PARAMETER,
    UPDATES,
    drain_text,
    element_of,
    extended_to,
    fill_text,
    register_names,
    update_of,
    vector_length,
)


def _loads(operation: str, opcode: str) -> list[Form]:
    base, *parts = operation.split(".")
    kind, count = parts[-1], vector_length(parts)
    bits = bits_of(kind)
    space = parts[0] if parts[0] in ("global", "shared", "local", "const", "param", "shared::cluster") else ""
    outputs = (f"b{max(bits, 32)}",) * count
    names = register_names("xyzw", count)

    def from_bytes(raw: Array, address: int) -> Any:
        whole = int.from_bytes(raw[address : address + 16].tobytes(), "little")
        found = tuple(extended_to(kind, whole >> bits * n & ((1 << bits) - 1)) for n in range(count))
        return found if count > 1 else found[0]

    if space == "const":
        place = f"and.b32 %t, %a, {len(CONSTANT) - 16}; cvt.u64.u32 %v, %t; mov.u64 %u, bank; add.u64 %u, %u, %v;"
        body = f"{place} {opcode} {names}, [%u];"

        def constant(a: int) -> Any:
            return from_bytes(CONSTANT, a & (len(CONSTANT) - 16))

        return [Form(operation, body, ("b32",), outputs, constant, extra=".reg .b32 %t; .reg .b64 %u; .reg .b64 %v;")]
    if space == "param":
        return [Form(operation, f"{opcode} {names}, [block];", ("b32",), outputs, lambda a: from_bytes(PARAMETER, 0))]

    def define(low: int, high: int) -> Any:
        return from_bytes(np.frombuffer((high << 64 | low).to_bytes(16, "little"), np.uint8), 0)

    addresses = ["%gglobal"] if base == "ldu" and not space else ADDRESS[space]
    return [
        Form(operation, f"{fill_text(p)} {opcode} {names}, [{p}];", ("b64", "b64"), outputs, define) for p in addresses
    ]


def _stores(operation: str, opcode: str) -> list[Form]:
    _, *parts = operation.split(".")
    kind, count = parts[-1], vector_length(parts)
    bits = bits_of(kind)
    asynchronous = parts[0] == "async"
    space = next((p for p in parts[:2] if p in ADDRESS), "")
    names = register_names("abcd", count)

    def define(*values: int) -> tuple[int, int]:
        whole = (1 << 128) - 1  # the rest of the cell stays as it was
        for n, value in enumerate(values):
            field = ((1 << bits) - 1) << bits * n
            whole = whole & ~field | value << bits * n & field
        return whole & ((1 << 64) - 1), whole >> 64

    inputs = (f"b{max(bits, 32)}",) * count
    if asynchronous:  # the bytes are counted at an mbarrier
        cell, bar = ("%shared", "%bar") if space else ("%gshared", "%gbar")
        body = f"""
        {fill_text("%shared", "-1", "-1")} {BARRIER}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bits * count // 8};
        {opcode} [{cell}], {names}, [{bar}]; {LANDED} {drain_text("%shared")} {DONE}
        """
        return [Form(operation, body, inputs, ("b64", "b64"), define, extra=".reg .pred %done;")]
    return [
        Form(
            operation,
            f"{fill_text(p, '-1', '-1')} {opcode} [{p}], {names}; {drain_text(p)}",
            inputs,
            ("b64", "b64"),
            define,
        )
        for p in ADDRESS[space]
    ]


# ------------------------------------------------------------------------------------------------------------- atomics


def _atomics(operation: str, opcode: str) -> list[Form]:
    base, *parts = operation.split(".")
    space = parts[0] if parts[0] in ADDRESS else ""
    name, count = next(p for p in parts if p in UPDATES), vector_length(parts)
    if count > 1:
        return _vector_atomics(operation, opcode, name, next(p for p in parts if p in FLOATS), count)
    kind = parts[-1]
    if kind == "b128":
        return _wide_atomics(operation, opcode, name, space)
    bits = bits_of(kind)
    typed = kind if kind in FLOATS else f"b{bits}"
    memory = f"b{bits}"
    sources = 2 if name == "cas" else 1
    operands = ", ".join(f"%{n}" for n in "bc"[:sources])
    forms = []
    for place in ADDRESS[space][: 2 if not space else 1]:
        at = {"%shared": ".shared", "%global": ".global"}.get(place, "")
        update = update_of(name, kind, flush="global" in place)
        fill = f"st{at}.{memory} [{place}], %a;"
        number = FLOATS.get(kind) if name == "add" else None
        inputs = (typed,) * (1 + sources)
        if base == "red":
            body = f"{fill} {opcode} [{place}], {operands}; ld{at}.{memory} %x, [{place}];"
            forms.append(Form(operation, body, inputs, (typed,), update, number=number))
        else:
            body = f"{fill} {opcode} %x, [{place}], {operands}; ld{at}.{memory} %y, [{place}];"

            def both(a: int, *b: int, update: Definition = update) -> tuple[int, int]:
                return a, update(a, *b)

            forms.append(Form(operation, body, inputs, (typed, typed), both, number=number))
    return forms


def _wide_atomics(operation: str, opcode: str, name: str, space: str) -> list[Form]:
    """Exchange and compare-and-swap of 128 bits; c says in which words the comparison is with the old value."""
    swap = name == "cas"
    unpack = "and.b64 %u, %c, 1; or.b64 %u, %u, %a; and.b64 %v, %c, 2; or.b64 %v, %v, %b;"
    unpack += "mov.b128 %key, {%u, %v}; mov.b128 %new, {%c, %d};"

    def define(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
        replaced = not swap or ((c & 1 | a) == a and (c & 2 | b) == b)
        return a, b, c if replaced else a, d if replaced else b

    extra = ".reg .b64 %u; .reg .b64 %v; .reg .b128 %key; .reg .b128 %new; .reg .b128 %old;"
    return [
        Form(
            operation,
            f"{fill_text(place)} {unpack} {opcode} %old, [{place}], {'%key, ' if swap else ''}%new;"
            f" mov.b128 {{%x, %y}}, %old; {drain_text(place, '%z', '%w')}",
            ("b64",) * 4,
            ("b64",) * 4,
            define,
            extra=extra,
        )
        for place in ADDRESS[space][: 2 if not space else 1]
    ]


def _vector_atomics(operation: str, opcode: str, name: str, kind: str, count: int) -> list[Form]:
    """A cell filled with a and b; the elements of the operand come from c and d, the old ones are given as z and w."""
    bits, update = bits_of(kind), update_of(name, kind)
    per = 64 // bits
    returns = operation.startswith("atom")
    unpack = " ".join(
        f"mov.b64 {{{', '.join(f'%e{per * n + i}' for i in range(per))}}}, %{source};" for n, source in enumerate("cd")
    )
    pack = " ".join(
        f"mov.b64 %{target}, {{{', '.join(f'%o{per * n + i}' for i in range(per))}}};" for n, target in enumerate("zw")
    )
    operand, old = ("{" + ", ".join(f"%{n}{i}" for i in range(count)) + "}" for n in "eo")
    clear = " ".join(f"mov.b{bits} %o{i}, 0;" for i in range(2 * per))
    change = f"{opcode} {old + ', ' if returns else ''}[%global], {operand};"
    body = f"{fill_text('%global')} {unpack} {clear} {change} {pack} {drain_text('%global')}"
    if not returns:
        body = f"{fill_text('%global')} {unpack} {change} {drain_text('%global')}"

    def define(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
        before = b << 64 | a
        after = before
        for n in range(count):
            field = ((1 << bits) - 1) << bits * n
            after = after & ~field | update(element_of(a, b, bits, n), element_of(c, d, bits, n)) << bits * n
        taken = before & ((1 << bits * count) - 1)
        words = (after, taken) if returns else (after,)
        return tuple(word >> shift & ((1 << 64) - 1) for word in words for shift in (0, 64))

    return [
        Form(
            operation,
            body,
            ("b64",) * 4,
            ("b64",) * (4 if returns else 2),
            define,
            number=FLOATS[kind],
            adjust=floats_in(kind),
            extra=f".reg .b{bits} %e<{2 * per}>; .reg .b{bits} %o<{2 * per}>;",
        )
    ]


def _addresses(operation: str) -> list[Form]:
    base, *parts = operation.split(".")
    if base == "cvta":
        space = parts[1] if parts[0] == "to" else parts[0]
        value = {"const": "bank", "param": "block"}.get(space)
        at = f"mov.b64 %p, {value};" if value else f"{'mov' if space in ('global', 'local') else 'cvt.u64'}"
        if not value:
            name = {"global": "%global", "local": "%local"}.get(space, "%shared")
            at = f"cvt.u64.u32 %p, {name};" if name == "%shared" else f"mov.b64 %p, {name};"
        kind = parts[-1]
        there = f"cvta.{space}.{kind} %q, %p;"
        back = f"cvta.to.{space}.{kind} %r, %q;"
        body = f"{at} {there} {back} setp.eq.u64 %x, %p, %r; ld.u8 %byte, [%q]; setp.ne.u32 %y, %byte, 256;"
        if not value:
            body = f"{fill_text(name)} {body}"
        extra = ".reg .b64 %p; .reg .b64 %q; .reg .b64 %r;"
        return [Form(operation, body, ("b64", "b64"), ("pred", "pred"), lambda a, b: (1, 1), extra=extra)]
    if base == "isspacep":
        names = ("%gglobal", "%gshared", "%glocal", "%gblock")
        body = " ".join(f"{operation} %{n}, {where};" for n, where in zip("xyzw", names, strict=True))
        spaces = {"global": 0, "shared": 1, "shared::cluster": 1, "local": 2, "param": 3, "const": 4}
        own = spaces[".".join(parts)]
        expected = tuple(int(n == own or (own == 0 and n == 3)) for n in range(4))  # parameters are global too
        extra = ".reg .b64 %gblock;"
        body = "mov.b64 %gblock, block; cvta.param.u64 %gblock, %gblock; " + body
        return [Form(operation, body, ("b32",), ("pred",) * 4, lambda a: expected, extra=extra)]
    wide = parts[-1] == "u64"
    place, into = ("%wide", "%to64") if wide else ("%shared", "%to32")
    head = "cvt.u64.u32 %wide, %shared;" if "shared::cluster" in operation else "mov.b64 %wide, %gshared;"
    extra = ".reg .b64 %wide; .reg .b64 %to64; .reg .b32 %to32;"
    if base == "mapa":
        load = "ld.v2.b64" if operation == "mapa.u64" else "ld.shared::cluster.v2.b64"
        body = f"{fill_text('%shared')} {head} {operation} {into}, {place}, 0; {load} {{%x, %y}}, [{into}];"
        return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b), extra=extra)]
    body = f"{head} {operation} %x, {place};"
    return [Form(operation, body, ("b32",), ("b32",), lambda a: 0, extra=extra)]


def _without_effect(operation: str) -> list[Form]:
    """What only makes hints, waits or orders leaves registers and the cell as they are."""
    base, *parts = operation.split(".")
    arguments = {
        "prefetch": " [%local]" if "local" in parts else " [%global]" if "global" in parts else " [%gglobal]",
        "prefetchu": " [%gglobal]",
        "applypriority": " [%global], 128",
        "nanosleep": " 20",
        "pmevent": " 3",
    }.get(base, "")
    spelled = {
        "fence": ["fence.sc.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys", "membar.cta", "membar.gl", "membar.sys"],
        "fence.proxy": ["fence.proxy.alias", "fence.proxy.async", "fence.proxy.async.global"],
        "fence.mbarrier_init": ["fence.mbarrier_init.release.cluster"],
        "griddepcontrol.wait": ["griddepcontrol.wait"],
        "bar.warp.sync": ["bar.warp.sync -1"],
        "cp.async.bulk.prefetch.L2.global": ["cp.async.bulk.prefetch.L2.global [%global], 16"],
        "prefetch.const.tensormap": ["mov.u64 %x, bank; prefetch.const.tensormap [%x]"],
        "bra": ["bra $NEXT; trap; $NEXT: mov.b64 %x, 1"],
        "bra.uni": ["bra.uni $NEXT; trap; $NEXT: mov.b64 %x, 1"],
    }.get(operation, [operation + arguments])
    forms = []
    for text in spelled:
        body = f"{fill_text('%global')} {text}; {drain_text('%global')}"
        forms.append(Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b)))
    return forms


def _clock(operation: str) -> list[Form]:
    """Time does not run backwards. (The upper word of a clock is nearly always 0.)"""
    name = operation.removeprefix("read.")
    kind = "u64" if name in ("clock64", "globaltimer") else "u32"
    body = f"mov.{kind} %p, %{name}; mov.{kind} %q, %{name}; sub.{kind} %q, %q, %p; setp.lt.{kind} %x, %q, 0x40000000;"
    extra = f".reg .b{kind[1:]} %p; .reg .b{kind[1:]} %q;"
    return [Form(operation, body, ("b32",), ("pred",), lambda a: 1, extra=extra)]


_EFFECTLESS = re.compile(
    r"prefetch(?!(\.param)?\.tensormap).*|prefetchu.*|applypriority.*|nanosleep.*|fence(?!.*\.tensormap).*|griddepcontrol.*|bar\.warp\.sync|pmevent|nop|bra|bra\.uni"
    r"|cp\.async\.bulk\.prefetch\.L2\.global"
)


def _spelled(operation: str) -> str:
    """PTX for a canonical name: the parts that canonical names leave out are put back where PTX wants them."""
    if operation.startswith("mbarrier.expect_tx"):
        space = ".shared::cta" if operation.endswith(".shared.b64") else ""
        space = ".shared::cluster" if "shared::cluster" in operation else space
        return f"mbarrier.expect_tx.relaxed.{'cluster' if 'cluster' in space else 'cta'}{space}.b64"
    if operation.startswith("mbarrier.complete_tx"):
        space = ".shared::cta" if operation.endswith(".shared.b64") else ""
        space = ".shared::cluster" if "shared::cluster" in operation else space
        return f"mbarrier.complete_tx.relaxed.cluster{space}.b64"
    if operation.startswith(("cp.async.bulk", "cp.reduce.async.bulk")):
        return operation.replace(".global.shared.", ".global.shared::cta.").replace(
            "cluster.shared.", "cluster.shared::cta."
        )
    return operation


WIDE = re.compile(r"\.v8\.|\.v4\.[bsuf]64")
"""Of 256 bits, which are more than a cell has."""


# orders, scopes and cache hints of loads, stores and atomics: they change no value
_QUALIFIED = {
    "ld.global.b32": [
        "volatile",
        "relaxed.gpu",
        "acquire.gpu",
        "acquire.sys",
        "relaxed.cta",
        "ca",
        "cg",
        "cs",
        "cv",
        "lu",
    ],
    "ld.shared.b32": ["volatile", "relaxed.cta", "acquire.cta"],
    "st.global.b32": ["volatile", "relaxed.gpu", "release.gpu", "release.sys", "wb", "cg", "cs", "wt"],
    "st.shared.b32": ["volatile", "relaxed.cta", "release.cta"],
    "atom.global.add.u32": ["relaxed.gpu", "acquire.gpu", "release.gpu", "acq_rel.gpu", "acq_rel.sys", "relaxed.cta"],
    "atom.shared.cas.b32": ["acq_rel.cta", "relaxed.cta"],
    "red.global.add.u32": ["relaxed.gpu", "release.gpu"],
}


def _qualified(operation: str) -> list[str]:
    base, _, rest = operation.partition(".")
    found = []
    for qualifier in _QUALIFIED.get(operation, []):
        hint = qualifier in ("ca", "cg", "cs", "cv", "lu", "wb", "wt")
        space, _, last = rest.partition(".")
        found.append(f"{base}.{space}.{qualifier}.{last}" if hint else f"{base}.{qualifier}.{rest}")
    return found


def forms_of(operation: str) -> list[Form]:
    """The forms of an operation on memory; none for one of another kind."""
    base = operation.partition(".")[0]
    opcode = _spelled(operation)
    if operation.startswith(("st.async", "red.async", "st.bulk")) or (base in ("ld", "st") and WIDE.search(operation)):
        return []  # to another block, or beyond a cell: tests of their own
    makers = {"ld": _loads, "ldu": _loads, "st": _stores, "atom": _atomics, "red": _atomics, "mbarrier": mbarrier_forms}
    if base in makers:
        return [form for text in [opcode, *_qualified(operation)] for form in makers[base](operation, text)]
    if base in ("cvta", "isspacep", "mapa", "getctarank") and operation != "mapa.leader.u32":
        return _addresses(operation)
    if base == "read":
        return _clock(operation)
    if _EFFECTLESS.fullmatch(operation):
        return _without_effect(operation)
    if operation.startswith(("cp.async.ca", "cp.async.cg")):
        return small_copies(operation)
    if operation in ("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"):
        return group_copies(operation)
    if operation.startswith("cp.async.mbarrier.arrive"):
        return arriving_copies(operation, opcode)
    if re.match(r"cp\.async\.bulk\.shared(::cluster)?\.global", operation):
        return bulk_loads(operation, opcode)
    if re.match(r"cp\.(reduce\.)?async\.bulk\.global\.shared", operation):
        return bulk_stores(operation, opcode)
    return []
