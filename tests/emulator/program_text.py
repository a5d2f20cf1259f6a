"""A random program as PTX."""

from __future__ import annotations

from dataclasses import dataclass, field

from random_programs import (
    LANES,
    WARP_MASK,
    WORDS,
    Access,
    Barrier,
    ClusterArrive,
    ClusterWait,
    CopyWait,
    Drain,
    DrainWait,
    Fence,
    Fetch,
    Flag,
    GridWait,
    Mbarrier,
    Operation,
    Program,
    Trigger,
    WarpSync,
    lanes_of,
)


@dataclass
class Writer:
    program: Program
    lines: list[str] = field(default_factory=list)
    labels: int = 0

    def text(self) -> str:
        operations = self.program.operations
        flags = [o for o in operations if isinstance(o, Flag)]
        mbarriers = [(o.number, o.arrivals) for o in operations if isinstance(o, Mbarrier | Fetch)]
        for warp in range(self.program.blocks * self.program.warps):
            self.add(f"setp.ne.u32 %other, %warp, {warp};", f"@%other bra after_{warp};")
            for number, operation in enumerate(operations):
                if warp in operation.warps:
                    self.add(f".loc 1 {number + 1} 1")
                    self.write(operation, warp)
            self.add("cp.async.wait_all;", "cp.async.bulk.wait_group 0;", f"after_{warp}:")
        together = "barrier.cluster.arrive;\nbarrier.cluster.wait;" if self.program.cluster else ""
        prologue = [f"st.shared.u32 [flags + {4 * o.number}], 0;" for o in flags if o.space == "shared"]
        prologue += [
            f"mbarrier.init.shared.b64 [mbarriers + {8 * number}], {arrivals};" for number, arrivals in mbarriers
        ]
        body = "\n".join(self.lines)
        first = "\n".join(f"@%first {line}" for line in prologue)
        return f"""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 flags_far, .param .u64 source)
{{
.reg .pred %other, %mine, %p, %first;
.reg .u32 %lane, %warp, %thread, %block, %peer, %t, %a, %r<4>;
.reg .u64 %g, %words, %flags, %source;
.shared .align 16 .b8 shared[{4 * WORDS}];
.shared .align 4 .b32 flags[{self.program.rooms}];
.shared .align 8 .b64 mbarriers[{self.program.rooms}];
.loc 1 {len(operations) + 1} 1
ld.param.u64 %words, [words];
ld.param.u64 %flags, [flags_far];
ld.param.u64 %source, [source];
mov.u32 %thread, %tid.x;
mov.u32 %block, %ctaid.x;
xor.b32 %peer, %block, 1;
and.b32 %lane, %thread, 31;
shr.u32 %warp, %thread, 5;
mad.lo.u32 %warp, %block, {self.program.warps}, %warp;
setp.eq.u32 %first, %thread, 0;
mov.u32 %a, shared;
mad.lo.u32 %a, %thread, 4, %a;
mov.u32 %t, %thread;
clear:
setp.ge.u32 %p, %t, {WORDS};
@%p bra cleared;
st.shared.u32 [%a], 0;
add.u32 %a, %a, {4 * LANES * self.program.warps};
add.u32 %t, %t, {LANES * self.program.warps};
bra clear;
cleared:
{first}
{together or "bar.sync 0;"}
{body}
{together}
ret;
}}
.file 1 "p.cu"
"""

    def add(self, *lines: str) -> None:
        self.lines += lines

    def write(self, operation: Operation, warp: int) -> None:
        match operation:
            case Access():
                self.access(operation)
            case CopyWait(_, pending):
                self.add(f"cp.async.wait_group {pending};")
            case DrainWait(_, pending, read):
                self.add(f"cp.async.bulk.wait_group{'.read' if read else ''} {pending};")
            case Fetch():
                self.fetch(operation, warp)
            case Drain(access):
                self.by(
                    access.lanes,
                    "fence.proxy.async.shared::cta;",
                    "cp.async.bulk.global.shared::cta.bulk_group "
                    f"[%words + {4 * access.base}], [shared + {4 * access.base}], {4 * access.words};",
                    "cp.async.bulk.commit_group;",
                )
            case WarpSync(_, lanes):
                self.by(lanes, f"bar.warp.sync {lanes};")
            case GridWait(_, lanes):
                self.by(lanes, "griddepcontrol.wait;")
            case Trigger():
                self.add("griddepcontrol.launch_dependents;")
            case Fence(_, lanes, scope):
                self.by(lanes, f"fence.acq_rel.{scope};")
            case Barrier(number, arriving):
                verb = "arrive" if warp in arriving else "sync"
                self.add(f"bar.{verb} {number}, {LANES * len(operation.warps)};")
            case ClusterArrive(_, release):
                self.add(f"barrier.cluster.arrive{'' if release else '.relaxed'};")
            case ClusterWait():
                self.add("barrier.cluster.wait;")
            case Flag():
                self.flag(operation, warp)
            case Mbarrier():
                self.mbarrier(operation, warp)

    def by(self, lanes: int, *lines: str) -> None:
        """Instructions of some lanes, which the others pass by."""
        if lanes == WARP_MASK:
            return self.add(*lines)
        self.labels += 1
        self.mine(lanes)
        self.add(f"@!%mine bra passed_{self.labels};", *lines, f"passed_{self.labels}:")
        return None

    def mine(self, lanes: int) -> None:
        self.add(f"mov.u32 %t, {lanes};", "shr.b32 %t, %t, %lane;", "and.b32 %t, %t, 1;", "setp.ne.u32 %mine, %t, 0;")

    def access(self, access: Access) -> None:
        predicate = ""
        if access.together:
            self.add(f"bar.warp.sync {WARP_MASK};")
        if access.lanes != WARP_MASK:
            self.mine(access.lanes)
            predicate = "@%mine "
        self.add(f"add.u32 %t, %lane, {access.turn};", "and.b32 %t, %t, 31;")
        self.add(f"mad.lo.u32 %t, %t, {4 * access.stride}, {4 * access.base};")
        if access.space == "shared":
            self.add("mov.u32 %a, shared;", "add.u32 %a, %a, %t;")
            if access.peer:
                self.add("mapa.shared::cluster.u32 %a, %a, %peer;")
        else:
            self.add("cvt.u64.u32 %g, %t;", "add.u64 %g, %g, %words;")
        place = "[%a]" if access.space == "shared" else "[%g]"
        vector = "" if access.words == 1 else f".v{access.words}"
        values = "%r0" if access.words == 1 else f"{{{', '.join(f'%r{k}' for k in range(access.words))}}}"
        space = f"{access.space}::cluster" if access.peer else access.space
        match access.kind:
            case "load":
                self.add(f"{predicate}ld.{space}{vector}.u32 {values}, {place};")
            case "read":
                self.add(f"{predicate}ld.global.nc{vector}.u32 {values}, {place};")
            case "store":
                self.add(*(f"mov.u32 %r{k}, 7;" for k in range(access.words)))
                self.add(f"{predicate}st.{space}{vector}.u32 {place}, {values};")
            case "atomic":
                self.add(f"{predicate}red.relaxed.{access.scope}.{space}.add.u32 {place}, 7;")
            case "copy":
                self.add(f"{predicate}cp.async.ca.shared.global {place}, [%source], {4 * access.words};")
                self.add("cp.async.commit_group;")

    def fetch(self, fetch: Fetch, warp: int) -> None:
        access, place = fetch.access, f"[mbarriers + {8 * fetch.number}]"
        if warp == access.warp:
            self.by(
                access.lanes,
                "fence.proxy.async.shared::cta;",
                f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {place}, {4 * access.words};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[shared + {4 * access.base}], [%source], {4 * access.words}, {place};",
            )
        if warp == fetch.target:
            self.wait(fetch.waiting, f"mbarrier.try_wait.parity.shared::cta.b64 %p, {place}, 0;")

    def flag(self, flag: Flag, warp: int) -> None:
        far = flag.space == "global"
        place = f"[{'%flags' if far else 'flags'} + {4 * flag.number}]"
        if warp == flag.source:
            order = "release" if flag.release else "relaxed"
            self.by(flag.raising, f"red.{order}.{flag.scopes[0]}.{flag.space}.add.u32 {place}, 1;")
        else:
            order = "acquire" if flag.acquire else "relaxed"
            self.wait(
                flag.waiting,
                f"ld.{order}.{flag.scopes[1]}.{flag.space}.u32 %r0, {place};",
                f"setp.ge.u32 %p, %r0, {len(lanes_of(flag.raising))};",
            )

    def mbarrier(self, mbarrier: Mbarrier, warp: int) -> None:
        place = f"[mbarriers + {8 * mbarrier.number}]"
        scope = "cluster" if self.program.cluster else "cta"
        if warp in mbarrier.sources:
            order = f".{'release' if mbarrier.release else 'relaxed'}.{scope}"
            if self.program.block_of(warp) == self.program.block_of(mbarrier.target):
                self.by(mbarrier.arriving, f"mbarrier.arrive{order}.shared::cta.b64 _, {place};")
            else:
                self.add(f"mov.u32 %a, mbarriers + {8 * mbarrier.number};", "mapa.shared::cluster.u32 %a, %a, %peer;")
                self.by(mbarrier.arriving, f"mbarrier.arrive{order}.shared::cluster.b64 _, [%a];")
        else:
            order = f".{'acquire' if mbarrier.acquire else 'relaxed'}.{scope}"
            self.wait(mbarrier.waiting, f"mbarrier.try_wait.parity{order}.shared::cta.b64 %p, {place}, 0;")

    def wait(self, lanes: int, *until: str) -> None:
        self.labels += 1
        again = f"again_{self.labels}"
        self.by(lanes, f"{again}:", *until, f"@!%p bra {again};")


def ptx_of(program: Program) -> str:
    """A kernel ``k`` of the source p.cu, in which operation i is line i + 1."""
    return Writer(program).text()
