"""Copies of cp.async and of TMA without a tensor, and mbarriers, as forms of a lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from form import Array, Definition, Form, bits_of
from memory_form_parts import FLOATS, UPDATES, drain_text, element_of, fill_text, update_of

LANDED = "$WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0; @!%done bra $WAIT;"
BARRIER = "mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;"
DONE = "mbarrier.inval.shared::cta.b64 [%bar];"


def small_copies(operation: str) -> list[Form]:
    """cp.async of 4, 8 and 16 bytes; a number of bytes, or a predicate, says what of them is zero instead."""
    ignored = operation.endswith(".ignore")
    opcode = operation.removesuffix(".ignore")
    forms = []
    for size in (4, 8, 16) if ".ca." in operation else (16,):
        for partial in (True,) if ignored else (False, True):
            last = ", %ignore" if ignored else ", %part" if partial else ""
            body = f"""
            {fill_text("%global")} {fill_text("%shared", "-1", "-1")} rem.u32 %part, %c, {size + 1};
            setp.lt.s32 %ignore, %c, 0; {opcode} [%shared], [%global], {size}{last};
            cp.async.commit_group; cp.async.wait_group 0; {drain_text("%shared")}
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


def group_copies(operation: str) -> list[Form]:
    """What waits for copies, with two groups of them: the older one only, or all."""
    waits = {"cp.async.wait_all": "cp.async.wait_all;"}.get(operation, "cp.async.wait_group 1; cp.async.wait_group 0;")
    body = f"""
    {fill_text("%global")}
    cp.async.ca.shared.global [%shared], [%global], 8; cp.async.commit_group;
    cp.async.ca.shared.global [%shared+8], [%global+8], 8; cp.async.commit_group;
    {waits} {drain_text("%shared")}
    """
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b))]


def arriving_copies(operation: str, opcode: str) -> list[Form]:
    address = "%bar" if ".shared" in operation else "%gbar"
    count = 1 if "noinc" in operation else 2
    body = f"""
    {fill_text("%global")} mbarrier.init.shared::cta.b64 [%bar], {count};
    cp.async.ca.shared.global [%shared], [%global], 16; {opcode} [{address}];
    {"" if count == 1 else "mbarrier.arrive.shared::cta.b64 _, [%bar]; mbarrier.arrive.shared::cta.b64 _, [%bar];"}
    {LANDED} {drain_text("%shared")} {DONE}
    """
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b), extra=".reg .pred %done;")]


def bulk_loads(operation: str, opcode: str) -> list[Form]:
    last = ", %rank" if "multicast" in operation else ""
    body = f"""
    {fill_text("%global")} {BARRIER} fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
    mov.b16 %rank, 1;
    {opcode} [%shared2], [%global], 16, [%bar]{last};
    {LANDED} {drain_text("%shared2").replace("ld.", "ld.shared.", 1)} {DONE}
    """
    extra = ".reg .pred %done; .reg .b16 %rank;"
    return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b), extra=extra)]


def bulk_stores(operation: str, opcode: str) -> list[Form]:
    parts = operation.split(".")
    reduction = parts[0] == "cp" and parts[1] == "reduce"
    body = f"""
    {fill_text("%shared")} {fill_text("%global", "%c", "%d") if reduction else ""} fence.proxy.async;
    {opcode} [%global], [%shared], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; fence.proxy.async;
    {drain_text("%global")}
    """
    if not reduction:
        return [Form(operation, body, ("b64", "b64"), ("b64", "b64"), lambda a, b: (a, b))]
    kind = parts[-1]
    name = next(p for p in parts if p in UPDATES)
    bits, update = bits_of(kind), update_of(name, kind, flush=False)

    def define(a: int, b: int, c: int, d: int) -> tuple[int, int]:
        whole = 0
        for n in range(128 // bits):
            whole |= update(element_of(c, d, bits, n), element_of(a, b, bits, n)) << bits * n
        return whole & ((1 << 64) - 1), whole >> 64

    number = FLOATS.get(kind)
    return [Form(operation, body, ("b64",) * 4, ("b64", "b64"), define, number=number, adjust=floats_in(kind))]


def floats_in(kind: str) -> Callable[[list[Array]], None] | None:
    """Operands whose elements are floats worth adding, where the type is one."""
    if kind not in FLOATS:
        return None

    def adjust(arrays: list[Array]) -> None:
        from form_operands import operands

        pieces = 64 // bits_of(kind)
        for place, array in enumerate(arrays):
            (values,) = operands([kind], len(array) * pieces, 77 + place)
            array[:] = values[np.random.default_rng(place).permutation(len(values))].view(np.uint64)

    return adjust


# ----------------------------------------------------------------------------------------------------------- mbarriers


def mbarrier_forms(operation: str, opcode: str) -> list[Form]:
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
