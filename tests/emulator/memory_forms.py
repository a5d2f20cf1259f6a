"""Loads, stores, atomics, copies and mbarriers as forms: every thread works on cells of 16 bytes of its own.

A body finds the address of its cell in %shared, %global and %local, generic addresses of the same in %gshared, %gglobal
and %glocal, and an mbarrier of its own in %bar. It leaves no work pending. ``CONSTANT`` and ``PARAMETER`` are the bytes
of the constant bank and of a parameter by value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import softfloat
from forms import Array, Definition, Form, bits_of, read
from softfloat import BF16, F16, F32, F64, Format

CONSTANT = np.random.default_rng(2).integers(0, 256, 4096).astype(np.uint8)
PARAMETER = np.random.default_rng(3).integers(0, 256, 16).astype(np.uint8)

_FLOATS = {"f16": F16, "bf16": BF16, "f16x2": F16, "bf16x2": BF16, "f32": F32, "f64": F64}
_ADDRESS = {
    "shared": ["%shared"],
    "shared::cluster": ["%shared"],
    "global": ["%global"],
    "local": ["%local"],
    "": ["%gglobal", "%gshared", "%glocal"],
}


def _fill(address: str, low: str = "%a", high: str = "%b") -> str:
    """16 bytes into the cell that an address points at, by an instruction of the address's own kind."""
    space = {"%shared": ".shared", "%global": ".global", "%local": ".local"}.get(address, "")
    return f"st{space}.v2.b64 [{address}], {{{low}, {high}}};"


def _drain(address: str, low: str = "%x", high: str = "%y") -> str:
    space = {"%shared": ".shared", "%global": ".global", "%local": ".local"}.get(address, "")
    return f"ld{space}.v2.b64 {{{low}, {high}}}, [{address}];"


def _element(low: int, high: int, bits: int, number: int) -> int:
    return (high << 64 | low) >> bits * number & ((1 << bits) - 1)


def _extended(type_name: str, bits: int) -> int:
    """A loaded value in its register: at least 32 bits wide, with its sign."""
    wide = max(bits_of(type_name), 32)
    return read(type_name, bits) & ((1 << wide) - 1)


def _vector(parts: Sequence[str]) -> int:
    return next((int(p[1]) for p in parts if p in ("v2", "v4", "v8")), 1)


def _names(letters: str, count: int) -> str:
    names = [f"%{n}" for n in letters[:count]]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _loads(operation: str, opcode: str) -> list[Form]:
    base, *parts = operation.split(".")
    kind, count = parts[-1], _vector(parts)
    bits = bits_of(kind)
    space = parts[0] if parts[0] in ("global", "shared", "local", "const", "param", "shared::cluster") else ""
    outputs = (f"b{max(bits, 32)}",) * count
    names = _names("xyzw", count)

    def from_bytes(raw: Array, address: int) -> Any:
        whole = int.from_bytes(raw[address : address + 16].tobytes(), "little")
        found = tuple(_extended(kind, whole >> bits * n & ((1 << bits) - 1)) for n in range(count))
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

    addresses = ["%gglobal"] if base == "ldu" and not space else _ADDRESS[space]
    return [Form(operation, f"{_fill(p)} {opcode} {names}, [{p}];", ("b64", "b64"), outputs, define) for p in addresses]


def _stores(operation: str, opcode: str) -> list[Form]:
    _, *parts = operation.split(".")
    kind, count = parts[-1], _vector(parts)
    bits = bits_of(kind)
    asynchronous = parts[0] == "async"
    space = next((p for p in parts[:2] if p in _ADDRESS), "")
    names = _names("abcd", count)

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
        {_fill("%shared", "-1", "-1")} {_BARRIER}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bits * count // 8};
        {opcode} [{cell}], {names}, [{bar}]; {_LANDED} {_drain("%shared")} {_DONE}
        """
        return [Form(operation, body, inputs, ("b64", "b64"), define, extra=".reg .pred %done;")]
    return [
        Form(
            operation,
            f"{_fill(p, '-1', '-1')} {opcode} [{p}], {names}; {_drain(p)}",
            inputs,
            ("b64", "b64"),
            define,
        )
        for p in _ADDRESS[space]
    ]


# ------------------------------------------------------------------------------------------------------------- atomics


def _float_add(form: Format, flush: bool) -> Definition:
    def add(a: int, b: int) -> int:
        if flush:
            a, b = form.flushed(a), form.flushed(b)
        result = softfloat.add(form, a, b)
        return form.flushed(result) if flush else result

    return add


def update_of(name: str, kind: str, *, flush: bool = True) -> Definition:
    """What an atomic operation makes of the old value and its operands, as bit patterns.

    ``flush``: additions of f32 on global memory flush subnormals, those on shared memory do not.
    """
    bits = bits_of(kind)
    mask = (1 << bits) - 1
    if kind in _FLOATS and name in ("add", "min", "max"):
        form = _FLOATS[kind]
        choose: dict[str, Definition] = {
            "add": _float_add(form, flush and form == F32),
            "min": lambda a, b: softfloat.minimum(form, a, b),
            "max": lambda a, b: softfloat.maximum(form, a, b),
        }
        one = choose[name]
        if kind.endswith("x2"):
            return lambda a, b: one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16
        return one
    simple: dict[str, Callable[..., int]] = {
        "add": lambda a, b: a + b & mask,
        "min": lambda a, b: min(a, b, key=lambda v: read(kind, v)),
        "max": lambda a, b: max(a, b, key=lambda v: read(kind, v)),
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "exch": lambda a, b: b,
        "cas": lambda a, b, c: c if a == b else a,
        "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    }
    return simple[name]


_UPDATES = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def _atomics(operation: str, opcode: str) -> list[Form]:
    base, *parts = operation.split(".")
    space = parts[0] if parts[0] in _ADDRESS else ""
    name, count = next(p for p in parts if p in _UPDATES), _vector(parts)
    if count > 1:
        return _vector_atomics(operation, opcode, name, next(p for p in parts if p in _FLOATS), count)
    kind = parts[-1]
    if kind == "b128":
        return _wide_atomics(operation, opcode, name, space)
    bits = bits_of(kind)
    typed = kind if kind in _FLOATS else f"b{bits}"
    memory = f"b{bits}"
    sources = 2 if name == "cas" else 1
    operands = ", ".join(f"%{n}" for n in "bc"[:sources])
    forms = []
    for place in _ADDRESS[space][: 2 if not space else 1]:
        at = {"%shared": ".shared", "%global": ".global"}.get(place, "")
        update = update_of(name, kind, flush="global" in place)
        fill = f"st{at}.{memory} [{place}], %a;"
        number = _FLOATS.get(kind) if name == "add" else None
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
    """Exchange and compare-and-swap of 128 bits; the comparison is with the old value where a is odd or c is even."""
    swap = name == "cas"
    unpack = "and.b64 %u, %c, 1; or.b64 %u, %u, %a; mov.b128 %key, {%u, %b}; mov.b128 %new, {%c, %d};"

    def define(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
        replaced = not swap or (c & 1 | a) == a
        return a, b, c if replaced else a, d if replaced else b

    extra = ".reg .b64 %u; .reg .b128 %key; .reg .b128 %new; .reg .b128 %old;"
    return [
        Form(
            operation,
            f"{_fill(place)} {unpack} {opcode} %old, [{place}], {'%key, ' if swap else ''}%new;"
            f" mov.b128 {{%x, %y}}, %old; {_drain(place, '%z', '%w')}",
            ("b64",) * 4,
            ("b64",) * 4,
            define,
            extra=extra,
        )
        for place in _ADDRESS[space][: 2 if not space else 1]
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
    body = f"{_fill('%global')} {unpack} {clear} {change} {pack} {_drain('%global')}"
    if not returns:
        body = f"{_fill('%global')} {unpack} {change} {_drain('%global')}"

    def define(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
        before = b << 64 | a
        after = before
        for n in range(count):
            field = ((1 << bits) - 1) << bits * n
            after = after & ~field | update(_element(a, b, bits, n), _element(c, d, bits, n)) << bits * n
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
            number=_FLOATS[kind],
            adjust=_floats_in(kind),
            extra=f".reg .b{bits} %e<{2 * per}>; .reg .b{bits} %o<{2 * per}>;",
        )
    ]


# -------------------------------------------------------------------------------------------------------------- copies

_LANDED = "$WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0; @!%done bra $WAIT;"
_BARRIER = "mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;"
_DONE = "mbarrier.inval.shared::cta.b64 [%bar];"


def _small_copies(operation: str) -> list[Form]:
    """cp.async of 4, 8 and 16 bytes; a number of bytes, or a predicate, says what of them is zero instead."""
    ignored = operation.endswith(".ignore")
    opcode = operation.removesuffix(".ignore")
    forms = []
    for size in (4, 8, 16) if ".ca." in operation else (16,):
        for partial in (True,) if ignored else (False, True):
            last = ", %ignore" if ignored else ", %part" if partial else ""
            body = f"""
            {_fill("%global")} {_fill("%shared", "-1", "-1")} rem.u32 %part, %c, {size + 1};
            setp.lt.s32 %ignore, %c, 0; {opcode} [%shared], [%global], {size}{last};
            cp.async.commit_group; cp.async.wait_group 0; {_drain("%shared")}
            """

            def define(a: int, b: int, c: int, size: int = size, partial: bool = partial) -> tuple[int, int]:
                taken = size
                if ignored:
                    taken = 0 if c >> 31 else size
                elif partial:
                    taken = c % (size + 1)
                copied = (b << 64 | a) & ((1 << 8 * taken) - 1)
                whole = ((1 << 128) - 1) >> 8 * size << 8 * size | copied
                return whole & ((1 << 64) - 1), whole >> 64

            extra = ".reg .b32 %part; .reg .pred %ignore;"
            forms.append(Form(operation, body, ("b64", "b64", "b32"), ("b64", "b64"), define, extra=extra))
    return forms


def _group_copies(operation: str) -> list[Form]:
    """What waits for copies, with two groups of them: the older one only, or all."""
    waits = {"cp.async.wait_all": "cp.async.wait_all;"}.get(operation, "cp.async.wait_group 1; cp.async.wait_group 0;")
    body = f"""
    {_fill("%global")}
    cp.async.ca.shared.global [%shared], [%global], 8; cp.async.commit_group;
    cp.async.ca.shared.global [%shared+8], [%global+8], 8; cp.async.commit_group;
    {waits} {_drain("%shared")}
    """
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b))]


def _arriving_copies(operation: str, opcode: str) -> list[Form]:
    address = "%bar" if ".shared" in operation else "%gbar"
    count = 1 if "noinc" in operation else 2
    body = f"""
    {_fill("%global")} mbarrier.init.shared::cta.b64 [%bar], {count};
    cp.async.ca.shared.global [%shared], [%global], 16; {opcode} [{address}];
    {"" if count == 1 else "mbarrier.arrive.shared::cta.b64 _, [%bar]; mbarrier.arrive.shared::cta.b64 _, [%bar];"}
    {_LANDED} {_drain("%shared")} {_DONE}
    """
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b), extra=".reg .pred %done;")]


def _bulk_loads(operation: str, opcode: str) -> list[Form]:
    last = ", %rank" if "multicast" in operation else ""
    body = f"""
    {_fill("%global")} {_BARRIER} fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
    mov.b16 %rank, 1;
    {opcode} [%shared2], [%global], 16, [%bar]{last};
    {_LANDED} {_drain("%shared2").replace("ld.", "ld.shared.", 1)} {_DONE}
    """
    extra = ".reg .pred %done; .reg .b16 %rank;"
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b), extra=extra)]


def _bulk_stores(operation: str, opcode: str) -> list[Form]:
    parts = operation.split(".")
    reduction = parts[0] == "cp" and parts[1] == "reduce"
    body = f"""
    {_fill("%shared")} {_fill("%global", "%c", "%d") if reduction else ""} fence.proxy.async;
    {opcode} [%global], [%shared], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; fence.proxy.async;
    {_drain("%global")}
    """
    if not reduction:
        return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b))]
    kind = parts[-1]
    name = next(p for p in parts if p in _UPDATES)
    bits, update = bits_of(kind), update_of(name, kind, flush=False)

    def define(a: int, b: int, c: int, d: int) -> tuple[int, int]:
        whole = 0
        for n in range(128 // bits):
            whole |= update(_element(c, d, bits, n), _element(a, b, bits, n)) << bits * n
        return whole & ((1 << 64) - 1), whole >> 64

    number = _FLOATS.get(kind)
    return [Form(operation, body, ("b64",) * 4, ("b64", "b64"), define, number=number, adjust=_floats_in(kind))]


def _floats_in(kind: str) -> Callable[[list[Array]], None] | None:
    """Operands whose elements are floats worth adding, where the type is one."""
    if kind not in _FLOATS:
        return None

    def adjust(arrays: list[Array]) -> None:
        from forms import operands

        pieces = 64 // bits_of(kind)
        for place, array in enumerate(arrays):
            (values,) = operands([kind], len(array) * pieces, 77 + place)
            array[:] = values[np.random.default_rng(place).permutation(len(values))].view(np.uint64)

    return adjust


# ----------------------------------------------------------------------------------------------------------- mbarriers


def _mbarriers(operation: str, opcode: str) -> list[Form]:
    """An mbarrier of (a mod 8) + 2 arrivals, of which the instruction is one; the phase ends with the last."""
    parts = operation.split(".")
    at = "%bar" if ".shared" in operation else "%gbar"
    what = parts[1]
    test = "mbarrier.test_wait.parity.shared::cta.b64"
    head = "and.b32 %n, %a, 7; add.u32 %n, %n, 2; sub.u32 %m, %n, 1; mbarrier.init.shared::cta.b64 [%bar], %n;"
    rest = "mbarrier.arrive.shared::cta.b64 _, [%bar], %m;"
    look = f"{test} %y, [%bar], 0;"
    done = "mbarrier.inval.shared::cta.b64 [%bar];"
    extra = ".reg .b32 %n; .reg .b32 %m; .reg .b64 %state; .reg .pred %before;"
    before = f"{test} %x, [%bar], 0;"

    def form(body: str, define: Definition, outputs: tuple[str, ...] = ("pred", "pred")) -> list[Form]:
        return [Form(operation, body, ("b32",), outputs, define, extra=extra)]

    if what == "init":
        head = head.replace("mbarrier.init.shared::cta.b64 [%bar]", f"{opcode} [{at}]")
        return form(
            f"{head} {rest} {before} mbarrier.arrive.shared::cta.b64 _, [%bar]; {look} {done}", lambda a: (0, 1)
        )
    if what == "inval":
        one = f"{head} {rest} {opcode} [{at}];"  # and the place is free for another
        return form(f"{one} {one} mov.b32 %x, %a;", lambda a: a, ("b32",))
    if what == "pending_count":
        body = f"{head} {rest} mbarrier.arrive.shared::cta.b64 %state, [%bar]; {opcode} %x, %state; {done}"
        return form(body, lambda a: 1, ("b32",))
    if what in ("arrive", "arrive_drop"):
        state = "_" if "shared::cluster" in operation else "%state"
        if "noComplete" in parts:
            last = "mbarrier.arrive.shared::cta.b64 _, [%bar];"
            return form(f"{head} {opcode} {state}, [{at}], %m; {before} {last} {look} {done}", lambda a: (0, 1))
        if "expect_tx" in parts:
            land = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%bar], 48;"
            return form(f"{head} {rest} {opcode} {state}, [{at}], 48; {before} {land} {look} {done}", lambda a: (0, 1))
        return form(f"{head} {rest} {before} {opcode} {state}, [{at}]; {look} {done}", lambda a: (0, 1))
    if what in ("expect_tx", "complete_tx"):
        expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 32;"
        land = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%bar], 32;"
        expect, land = (f"{opcode} [{at}], 32;", land) if what == "expect_tx" else (expect, f"{opcode} [{at}], 32;")
        arrive = "mbarrier.arrive.shared::cta.b64 _, [%bar];"
        return form(f"{head} {rest} {expect} {arrive} {before} {land} {look} {done}", lambda a: (0, 1))
    if what in ("test_wait", "try_wait"):
        parity = "parity" in parts
        given = "0" if parity else "%state"
        arrive = "mbarrier.arrive.shared::cta.b64 %state, [%bar];"
        if what == "try_wait":
            return form(f"{head} {rest} {arrive} {opcode} %x, [{at}], {given}; {done}", lambda a: 1, ("pred",))
        early = "mbarrier.arrive.shared::cta.b64 %state, [%bar];"
        body = f"{head} {early} {opcode} %x, [{at}], {given}; {rest} {opcode} %y, [{at}], {given}; {done}"
        return form(body, lambda a: (0, 1))
    return []


# --------------------------------------------------------------------------------------------------------- the others


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
            body = f"{_fill(name)} {body}"
        extra = ".reg .b64 %p; .reg .b64 %q; .reg .b64 %r;"
        return [Form(operation, body, ("b64", "b64"), ("pred", "pred"), lambda a, b: (1, 1), extra=extra)]
    if base == "isspacep":
        names = ("%gglobal", "%gshared", "%glocal", "%gblock")
        body = " ".join(f"{operation} %{n}, {where};" for n, where in zip("xyzw", names, strict=True))
        spaces = {"global": 0, "shared": 1, "shared::cluster": 1, "local": 2, "param": 3}
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
        body = f"{_fill('%shared')} {head} {operation} {into}, {place}, 0; {load} {{%x, %y}}, [{into}];"
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
        body = f"{_fill('%global')} {text}; {_drain('%global')}"
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
    r"prefetch(?!(\.param)?\.tensormap).*|prefetchu.*|applypriority.*|nanosleep.*|fence.*|griddepcontrol.*|bar\.warp\.sync|pmevent|nop|bra|bra\.uni"
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
    if operation.startswith(("st.async", "red.async")):
        return []  # to another block: a matter of launches
    makers = {"ld": _loads, "ldu": _loads, "st": _stores, "atom": _atomics, "red": _atomics, "mbarrier": _mbarriers}
    if base in makers:
        return [form for text in [opcode, *_qualified(operation)] for form in makers[base](operation, text)]
    if base in ("cvta", "isspacep", "mapa", "getctarank"):
        return _addresses(operation)
    if base == "read":
        return _clock(operation)
    if _EFFECTLESS.fullmatch(operation):
        return _without_effect(operation)
    if operation.startswith(("cp.async.ca", "cp.async.cg")):
        return _small_copies(operation)
    if operation in ("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"):
        return _group_copies(operation)
    if operation.startswith("cp.async.mbarrier.arrive"):
        return _arriving_copies(operation, opcode)
    if re.match(r"cp\.async\.bulk\.shared(::cluster)?\.global", operation):
        return _bulk_loads(operation, opcode)
    if re.match(r"cp\.(reduce\.)?async\.bulk\.global\.shared", operation):
        return _bulk_stores(operation, opcode)
    return []
