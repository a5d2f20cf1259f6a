"""Every wrapper of the device headers in a kernel of its own, against NumPy: in the emulator, and on a GPU."""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from header_trials import HEADERS, ROWS, copied
from trials import SOURCES, Trial, nothing, whole

from workbench.devices import Device, open_device
from workbench.devices.base import Fault
from workbench.model.dtypes import BF16, UINT32
from workbench.toolchain.compiler import INCLUDE

TEMPLATES = {
    "async_tile",
    "row",
    "row_reduce",
    "cluster_reduce",
    "online_softmax",
    "fragment_softmax",
    "softmax_row",
    "norm_row",
    "cross_entropy",
    "rotate",
    "reduce_ops",
    "row_scan",
    "gradient_row",
    "load_compute_epilogue",
    "load_compute_store",
    "ping_pong",
    "circular_buffer",
    "ordered",
    "producer",
    "roles",
    "activation",
    "fragment",
    "panels",
    "staged_panels",
    "weigh_rows",
    "row_prefetch",
    "floats",
    "realign",
    "shared_sums",
    "parted_sums",
    "register_sums",
    "row_dot",
    "last_block",
    "lanes",
}
"""What wraps no instruction, and is tested by the stages that are built on it; what they do not use by a trial."""

INSIDE = {"multiply_bands", "operator", "side_by_side", "to_share", "shifted"}
"""What trials call by way of other functions of the same header: `multiply`, `()`, `by_threads` and `work`."""

GENERATED = {"wgmma_shapes", "wgmma_all"}
"""Whose functions are made by macros: what they do is tested for every N and every type."""

_TO_BARRIER = "mbarrier::complete_tx::bytes"
_BOXES = [f"cp.async.bulk.tensor.{n}d.shared::cluster.global.tile.{_TO_BARRIER}" for n in range(1, 6)]
_PIXELS = [f"cp.async.bulk.tensor.{n}d.shared::cluster.global.im2col.{_TO_BARRIER}" for n in (3, 4, 5)]
_HALF_TYPES = "f16", "bf16"

INSTRUCTIONS: Mapping[str, Sequence[str]] = {
    "add_async": ["mapa.shared::cluster.u32", f"red.async.relaxed.cluster.shared::cluster.{_TO_BARRIER}.add.u32"],
    "bulk_add": [f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{kind}" for kind in ("f32", "s32")],
    "bulk_add_at": [
        "mapa.shared::cluster.u32",
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_TO_BARRIER}.add.s32",
    ],
    "bulk_load": [f"cp.async.bulk.shared::cluster.global.{_TO_BARRIER}"],
    "bulk_max": ["cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32"],
    "bulk_min": ["cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32"],
    "bulk_send": ["mapa.shared::cluster.u32", f"cp.async.bulk.shared::cluster.shared::cta.{_TO_BARRIER}"],
    "bulk_store": ["cp.async.bulk.global.shared::cta.bulk_group"],
    "grid_dependency_launch": ["griddepcontrol.launch_dependents"],
    "grid_dependency_wait": ["griddepcontrol.wait"],
    "store_async": [
        "mapa.shared::cluster.u32",
        *(f"st.async.shared::cluster.{_TO_BARRIER}.{kind}" for kind in ("v4.f32", "u32")),
    ],
    "async_fence": ["fence.proxy.async.shared::cta"],
    "cluster_load": [
        "mapa.shared::cluster.u32",
        *(f"ld.shared::cluster.{kind}" for kind in ("f32", "v2.f32", "v4.f32")),
    ],
    "cluster_rank": ["mov.u32"],
    "cluster_started": ["barrier.cluster.arrive.relaxed", "barrier.cluster.wait"],
    "cluster_store": ["mapa.shared::cluster.u32", "st.shared::cluster.v4.f32"],
    "cluster_sync": ["barrier.cluster.arrive.release", "barrier.cluster.wait.acquire"],
    "cp_async": [f"cp.async.ca.shared.global {size}" for size in (4, 8, 16)],
    "cp_async_16": ["cp.async.cg.shared.global 16"],
    "cp_async_past_l1": ["cp.async.cg.shared.global 16"],
    "cp_async_commit": ["cp.async.commit_group"],
    "cp_async_wait": [f"cp.async.wait_group {pending}" for pending in (0, 1)],
    "ex2": ["ex2.approx.ftz.f32"],
    "first_block": [
        "ld.shared.b128",
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
        "mov.b32 1",
        "@canceled",
        "mov.b32",
    ],
    "try_cancel": ["clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128"],
    "flag_raise": ["red.release.gpu.global.add.s32 1"],
    "flag_wait": ["ld.acquire.gpu.global.s32"],
    "post": ["st.relaxed.gpu.global.b64"],
    "await_posted": ["ld.relaxed.gpu.global.b64"],
    "take_ticket": ["atom.relaxed.gpu.global.inc.u32"],
    "count_to_last": ["atom.acq_rel.gpu.global.inc.u32"],
    "keep_registers": ["setmaxnreg.dec.sync.aligned.u32 40"],
    "ldmatrix_x4": ["ldmatrix.sync.aligned.m8n8.x4.shared.b16"],
    "ldmatrix_x4_trans": ["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"],
    "shifted": ["shf.r.wrap.b32"],
    "load_vector_once": ["ld.global.nc.L1::no_allocate.v4.b32"],
    "mbarrier_arrive": ["mbarrier.arrive.shared::cta.b64"],
    "mbarrier_arrive_at": ["mapa.shared::cluster.u32", "mbarrier.arrive.shared::cluster.b64"],
    "mbarrier_arrive_expect": ["mbarrier.arrive.expect_tx.shared::cta.b64"],
    "mbarrier_expect": ["mbarrier.expect_tx.relaxed.cta.shared::cta.b64"],
    "mbarrier_init": ["mbarrier.init.shared::cta.b64"],
    "mbarrier_init_fence": ["fence.mbarrier_init.release.cluster", "fence.proxy.async.shared::cta"],
    "mbarrier_wait": ["mbarrier.try_wait.parity.shared::cta.b64", "selp.u32 1 0"],
    "mma": [f"mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}.f32" for half in _HALF_TYPES],
    "named_arrive": ["bar.arrive 64"],
    "named_sync": ["bar.sync 64"],
    "stmatrix_x4": ["stmatrix.sync.aligned.m8n8.x4.shared.b16"],
    "take_registers": ["setmaxnreg.inc.sync.aligned.u32 232"],
    "tma_load": _BOXES,
    "tma_load_once": ["createpolicy.fractional.L2::evict_first.b64 1.0", f"{_BOXES[1]}.L2::cache_hint"],
    "tma_load_to": [f"{box}.multicast::cluster" for box in _BOXES],
    "tensor_allocate": [
        *(f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 {columns}" for columns in (64, 128, 256)),
        "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 128",
        *(f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned" for group in (1, 2)),
    ],
    "tensor_commit": [
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64",
    ],
    "tma_load_pair": ["mapa.shared::cluster.u32", f"{_BOXES[1]}.cta_group::2"],
    "tensor_free": [
        *(f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 {columns}" for columns in (64, 128, 256)),
        "tcgen05.dealloc.cta_group::2.sync.aligned.b32 128",
    ],
    "tensor_hand_over": ["tcgen05.fence::before_thread_sync"],
    "tensor_load": ["tcgen05.ld.sync.aligned.32x32b.x32.b32", "tcgen05.wait::ld.sync.aligned"],
    "tensor_multiply": ["setp.ne.b32 0", *(f"tcgen05.mma.cta_group::{group}.kind::f16" for group in (1, 2))],
    "tensor_multiply_from": ["setp.ne.b32 0", "tcgen05.mma.cta_group::1.kind::f16"],
    "tensor_store": ["tcgen05.st.sync.aligned.32x32b.x32.b32", "tcgen05.wait::st.sync.aligned"],
    "tensor_take_over": ["tcgen05.fence::after_thread_sync"],
    "tma_add": [f"cp.reduce.async.bulk.tensor.{n}d.global.shared::cta.add.tile.bulk_group" for n in range(1, 6)],
    "tma_load_im2col": _PIXELS,
    "tma_load_im2col_to": [f"{pixels}.multicast::cluster" for pixels in _PIXELS],
    "tma_store_im2col": [f"cp.async.bulk.tensor.{n}d.global.shared::cta.im2col_no_offs.bulk_group" for n in (3, 4, 5)],
    "tma_prefetch": [f"cp.async.bulk.prefetch.tensor.{n}d.L2.global.tile" for n in range(1, 6)],
    "tma_prefetch_map": ["prefetch.tensormap"],
    "tma_store": [f"cp.async.bulk.tensor.{n}d.global.shared::cta.tile.bulk_group" for n in range(1, 6)],
    "tma_store_commit": ["cp.async.bulk.commit_group"],
    "tma_store_wait": ["cp.async.bulk.wait_group 0"],
    "tma_store_wait_read": [f"cp.async.bulk.wait_group.read {pending}" for pending in (0, 1)],
    "wgmma_commit": ["wgmma.commit_group.sync.aligned"],
    "wgmma_fence": ["wgmma.fence.sync.aligned"],
    "wgmma_wait": [f"wgmma.wait_group.sync.aligned {pending}" for pending in (0, 1)],
}
"""What the wrappers are in the trials' kernels: all of their inline assembly, with its constants but no registers."""


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_the_wrappers_of_a_header_do_what_they_say(header: Callable[[], Iterator[Trial]], device: Device) -> None:
    for trial in header():
        trial.run(device)


@pytest.mark.parametrize(
    ("place", "to_place", "says"),
    [
        ((8, 4), (8, 64), "copies a box that begins at element 4 of a row"),
        ((8, 64), (8, 4), "copies a box that begins at element 4 of a row"),
        ((8, 64), (-3, 64), "stores a box that begins at -3 in dimension 1"),
        ((8, 64), (-16, 64), "stores a box that begins at -16 in dimension 1"),
        ((8, 64), (8, -8), "stores a box that begins at -8 in dimension 0"),
    ],
)
def test_what_tma_refuses_is_refused_in_the_emulator_too(
    place: tuple[int, int], to_place: tuple[int, int], says: str, device: Device
) -> None:
    x = whole((40, 136), BF16, 7)
    expected = {"to": nothing(x.shape, BF16), "image": nothing((ROWS, 32), UINT32)}
    with pytest.raises(Fault, match=says if device.name == "emulator" else "illegal instruction"):
        copied("boxes", 128, place, to_place, x, expected).run(device)


WRAPPER = re.compile(r"__device__ __forceinline__ [\w<>, ]+?[ &](\w+)(?:<\w+>)?\(")


def test_every_wrapper_has_a_trial() -> None:
    assert {path.stem for path in INCLUDE.rglob("*.cuh")} == {
        header.__name__ for header in HEADERS
    } | TEMPLATES | GENERATED
    used = "".join(path.read_text() for path in SOURCES.glob("*.cu"))
    wrappers = {
        name
        for header in HEADERS
        if header.__name__ not in TEMPLATES | GENERATED
        for name in WRAPPER.findall(next(INCLUDE.rglob(f"{header.__name__}.cuh")).read_text())
    }
    assert len(wrappers) > 30
    assert [name for name in sorted(wrappers - INSIDE) if not re.search(rf"\b{name}\b", used)] == []


def _wrapper(header: Path, line: int) -> str:
    """The wrapper to which a line of a header belongs."""
    code = header.read_text()
    found = list(WRAPPER.finditer(code))
    return found[bisect([code.count("\n", 0, match.start()) + 1 for match in found], line) - 1][1]


def _instructions(ptx: str, kernel: str) -> Iterator[tuple[str, str]]:
    """The inline assembly of a kernel: whose line it comes from, and an instruction as it is in `INSTRUCTIONS`."""
    files = {number: Path(name) for number, name in re.findall(r'\.file\s+(\d+) "(.*)"', ptx)}
    body = re.search(rf"\.entry {kernel}\(.*?(?=\.entry|\.file)", ptx, re.DOTALL)
    # for sm_100 lines are named within it, too
    inline = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
    code_of = inline.sub(lambda found: re.sub(r"(?m)^\s*\.loc\s.*\n", "", found[0]), body[0])
    for part in re.split(r"\n\s*\.loc\s+", code_of)[1:]:
        number, line, *_ = part.split()
        if (
            files[number].stem in GENERATED
            or not files[number].is_relative_to(INCLUDE)
            or "asm" not in files[number].read_text()
        ):
            continue  # CUDA's own conversions are assembly, too
        for code in re.findall(r"// begin inline asm\n(.*?)// end inline asm", part, re.DOTALL):
            for statement in (s.strip("{} \n\t") for s in code.split(";")):
                if statement and not statement.startswith(".reg"):
                    opcode, _, operands = statement.partition(" ")
                    constants = re.findall(r"(?<![\w.])\d[\d.]*", operands)
                    yield _wrapper(files[number], int(line)), " ".join((opcode, *constants))


@pytest.mark.long
def test_every_wrapper_is_the_instructions_that_it_should_be() -> None:
    """Of some nothing else can be seen: a kernel stores the same without them, or with what waits for longer."""
    found = defaultdict(set)
    trials = (trial for header in HEADERS if header.__name__ not in TEMPLATES | GENERATED for trial in header())
    for trial in {(t.source, *t.defines.items(), t.launch.kernel): t for t in trials}.values():
        for wrapper, instruction in _instructions(trial.compiled().ptx, trial.launch.kernel):
            found[wrapper].add(instruction)
    assert found == {wrapper: set(instructions) for wrapper, instructions in INSTRUCTIONS.items()}
