"""Bugs of public kernels around tensor memory, reduced: the kernel before is named, the kernel after is clean.

The reports are those of CUTLASS (2230, 2626, 3316, 3435) and of flashinfer (5252, 5334). The kernels are our own.
"""

from __future__ import annotations

import numpy as np
import pytest
from tensor_programs import KINDS, Image, Product, image_of, kernel
from test_tensor_hazards import KERNEL as PARTS

from workbench.emulator import Report, launch, load

# two tiles of one accumulator: warp 4 multiplies, warps 0 to 3 take the result and say that it may be overwritten
PIPELINE = (
    PARTS[: PARTS.index("// the accumulator of two products")]
    + """
__device__ void arrive(const void* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(b)) : "memory");
}
extern "C" __global__ void __launch_bounds__(160) k(const __half* a, const __half* b, float* d) {
    __shared__ alignas(1024) __half as[2 * 128 * 16], bs[64 * 16];
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ unsigned where;
    const int t = threadIdx.x, w = t / 32;
    for (int i = t; i < 2 * 128 * 16; i += 160) as[i / 128 * 128 + i / 8 % 2 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];
    for (int i = t; i < 64 * 16; i += 160) bs[i / 128 * 128 + i / 8 % 2 * 64 + i / 16 % 8 * 8 + i % 8] = b[i];
    if (w == 4) reserve(&where, 64);  // allocated
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.init.shared::cta.b64 [%1], 128;"
                             :: "r"(at(&full)), "r"(at(&empty)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
    before_sync();
    __syncthreads();
    after_sync();
    const unsigned tensor = where;  // address
    if (w == 4) {
        for (int tile = 0; tile < 2; ++tile) {
            if (tile) wait(&empty, 0);
            after_sync();
            if (t == 128) {
                multiply(tensor, as + tile * 128 * 16, bs, 0);
                commit(&full);
            }
            __syncwarp();
        }
    } else {
        for (int tile = 0; tile < 2; ++tile) {
            wait(&full, tile);  // waited
            after_sync();
            unsigned r[4];
            load(r, tensor + (w << 21));
            loaded();  // load waited
            before_sync();
            arrive(&empty);  // released
            for (int i = 0; i < 4; ++i) d[tile * 512 + t * 4 + i] = __uint_as_float(r[i]);  // out
        }
    }
    __syncthreads();  // before the end
    if (w == 4) release(tensor, 64);  // freed
}
"""
)


def before(*changes: tuple[str, str]) -> str:
    """The kernel with the bug: lines of some markers are others."""
    source = PIPELINE
    for marker, new in changes:
        (old,) = [line for line in source.splitlines() if line.endswith(f"// {marker}")]
        source = source.replace(old, f"{new}  // {marker}")
    return source


def run(source: str, seed: int) -> tuple[Report, bool]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-3, 4, (256, 16)).astype(np.float16), rng.integers(-3, 4, (64, 16)).astype(np.float16)
    d = np.zeros((256, 4), np.float32)
    result = launch(load(source, arch="sm_100a"), "k", 1, 160, [a, b, d], seed=seed)
    return result, np.array_equal(d, (a.astype(np.float32) @ b.astype(np.float32).T)[:, :4])


BUGS: dict[str, tuple[list[tuple[str, str]], set[str]]] = {
    "flashinfer 5334: tensor memory is freed while others load it": (
        [("before the end", ";")],
        {"tensor_race", "tensor_not_committed", "tensor_bounds"},  # as the seed has it: before or after the load
    ),
    "flashinfer 5252: the accumulator is given back before wait::ld": (
        [("load waited", "before_sync();"), ("released", "arrive(&empty); loaded();")],
        {"tensor_load_pending", "tensor_race"},
    ),
    "cutlass 2626: nobody waits for the product": (
        [("waited", "if (tile) wait(&full, 0);")],
        {"tensor_not_committed"},
    ),
    "cutlass 2230: nothing is allocated": (
        [("allocated", "if (t == 0) where = 0;"), ("freed", ";")],
        {"tensor_bounds"},
    ),
}


def test_the_kernel_after_is_clean() -> None:
    for seed in range(4):
        result, right = run(PIPELINE, seed)
        assert result.ok and right, [str(finding) for finding in result.findings]


@pytest.mark.parametrize("name", BUGS)
def test_the_kernel_before_is_named(name: str) -> None:
    changes, causes = BUGS[name]
    source = before(*changes)
    for seed in range(4):
        found = run(source, seed)[0].findings
        named = [finding for finding in found if finding.code in causes]
        assert named and named[0].location and named[0].source_line, [str(finding) for finding in found]


# ---- pairs of blocks

STEPS = "tcgen05.shift.cta_group::2.down [%tm + 16];"
SKIP = "    @%q bra $allocated;"
PAIR = kernel(STEPS, shared=1024, pair=True)
ALLOC = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%place], 128;"

PAIRS = {
    "cutlass 3316: one block of the pair allocates for both": (
        PAIR.replace(SKIP, f"    setp.ne.or.u32 %q, %rank, 0, %q;\n{SKIP}"),
        "tensor_pair",
        "one warp of each block",
    ),
    "the blocks allocate different numbers of columns": (
        PAIR.replace(ALLOC, f"mov.u32 %v, 64; shl.b32 %v, %v, %rank; {ALLOC.replace('128', '%v')}"),
        "tensor_pair",
        "ask for the same",
    ),
    "one block frees": (
        PAIR.replace("    @%q bra $freed;", "    setp.ne.or.u32 %q, %rank, 0, %q;\n    @%q bra $freed;"),
        "tensor_not_freed",
        "let one warp execute tcgen05.dealloc",
    ),
    "an operation of one block in a kernel of pairs": (
        PAIR.replace(STEPS, STEPS.replace("::2", "::1")),
        "tensor_group",
        "same cta_group",
    ),
    "a commit to one block alone": (
        PAIR.replace(".multicast::cluster.b64 [%bar], %both;", ".b64 [%bar];"),
        "deadlock",
        "",
    ),
    "the accumulator's commit is that of one block": (
        PAIR.replace(
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], %both;",
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];",
        ),
        "tensor_group",
        "same cta_group",
    ),
}


def run_pair(text: str, blocks: int = 2, seed: int = 1) -> Report:
    data, start = np.zeros((blocks, 1024), np.uint8), np.zeros((blocks, 128, 128), np.uint32)
    arrays = [data.reshape(-1), start.reshape(-1), np.zeros_like(start).reshape(-1)]
    return launch(load(text, arch="sm_100a"), "k", blocks, 128, arrays, shared=1024, cluster=blocks, seed=seed)


def test_the_pair_is_clean() -> None:
    assert run_pair(PAIR).ok


@pytest.mark.parametrize("name", PAIRS)
def test_a_fault_of_a_pair_is_named(name: str) -> None:
    text, cause, advice = PAIRS[name]
    assert text != PAIR
    named = [finding for finding in run_pair(text).findings if finding.code == cause]
    assert named and advice in named[0].advice, [str(finding) for finding in run_pair(text).findings]


def test_a_pair_needs_a_second_block() -> None:
    (first, *_) = run_pair(PAIR.replace(".reqnctapercluster 2", ""), blocks=1).findings
    assert first.code == "tensor_pair" and "no other block" in first.message


def test_a_block_of_a_pair_may_end_once_it_has_freed() -> None:
    text = PAIR[: PAIR.index("$freed:")] + "$freed:\n    ret;\n}\n"
    assert not [finding for seed in range(8) for finding in run_pair(text, seed=seed).findings]


def test_a_block_of_a_pair_does_not_end_before_a_product_of_both() -> None:
    issues = "    mad.lo.u32 %i, %rank"
    text = PAIR.replace(issues, f"    setp.ne.u32 %one, %rank, 0;\n    @%one ret;\n{issues}")
    codes = {finding.code for seed in range(8) for finding in run_pair(text, seed=seed).findings}
    assert "tensor_pair" in codes


# the blocks of a pair say to each other that they are done, meet, and free what they have stored to
LIFE = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void __cluster_dims__(2) k(unsigned* y) {
    __shared__ unsigned where;
    __shared__ alignas(8) unsigned long long bar;
    const int t = threadIdx.x;
    unsigned rank, other, v;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (t == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(at(&bar)));
    MEET;
    if (t < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(at(&where)) : "memory");
    MEET_AGAIN;
    if (USES) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1}; tcgen05.wait::st.sync.aligned;"
                     :: "r"(where), "r"(t));
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1]; tcgen05.wait::ld.sync.aligned;"
                     : "=r"(v) : "r"(where));
        y[blockIdx.x * 64 + t] = v;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(at(&bar)), "r"(rank ^ 1));
        if (t == 32) asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(other) : "memory");
        MEET;
    }
    if (t < 32) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" :: "r"(where));
}
"""
SYNC = 'asm volatile("barrier.cluster.arrive.{}aligned; barrier.cluster.wait.aligned;" ::: "memory")'


def run_life(meets: str, meets_again: str, uses: int, strict: bool = False) -> tuple[Report, np.ndarray]:
    source = f"#define MEET {meets}\n#define MEET_AGAIN {meets_again}\n#define USES {uses}\n{LIFE}"
    y = np.zeros((2, 64), np.uint32)
    return launch(load(source, arch="sm_100a"), "k", 2, 64, [y], cluster=2, strict=strict), y


def test_cutlass_3435_the_even_block_frees_before_the_odd_one_has_allocated() -> None:
    meets = SYNC.format("")
    (named,) = run_life(meets, "__syncthreads()", 0)[0].findings
    assert named.code == "tensor_pair" and "may still be allocating" in named.message, str(named)
    assert named.block == (0, 0, 0)
    assert not run_life(meets, meets, 0)[0].findings


def test_relaxed_arrivals_and_lanes_that_are_not_named_are_strict_around_tensor_memory() -> None:
    """As DeepGEMM has them, in kernels that devices run."""
    meets = SYNC.format("relaxed.")
    result, y = run_life(meets, meets, 1)
    assert result.ok and np.array_equal(y, np.tile(np.arange(64), (2, 1)))
    codes = {finding.code for finding in result.findings}
    assert codes == {"race_relaxed", "tensor_fence", "tensor_lanes", "exited_relaxed"}, codes
    assert not run_life(meets, meets, 1, strict=True)[0].ok
    ordered = {finding.code for finding in run_life(SYNC.format(""), SYNC.format(""), 1)[0].findings}
    assert not ordered & {"race_relaxed", "exited_relaxed"}, ordered


# ---- operands that nothing has written, and operations that are in no order


def test_scale_factors_and_metadata_that_nobody_has_copied() -> None:
    for product, what in (
        (Product("mxf8f6f4", "e4m3", "e4m3", 128, 16, factors=1), "scales by factors"),
        (Product("f16", "f16", "f16", 128, 16, sparse=True), "selects elements by metadata"),
    ):
        text = kernel(product.steps(*_images(product)), shared=32768)
        filled = "setp.lt.u32 %q, %c, 128;\n    @%q bra $fill;"
        text = text.replace(filled, filled.replace("128", "24"))
        arrays = [np.zeros(32768, np.uint8), *(np.zeros(128 * 128, np.uint32) for _ in range(2))]
        result = launch(load(text, arch="sm_100a"), "k", 1, 128, arrays, shared=32768)
        named = [finding for finding in result.findings if finding.code == "tensor_unwritten"]
        assert named and what in named[0].message, [str(finding) for finding in result.findings]


def _images(product: Product) -> tuple[Image, Image]:
    """Two matrices of zeros in shared memory, one behind the other."""
    depth = KINDS[product.kind]
    zeros = [np.zeros((rows, depth), np.uint32) for rows in (product.m, product.n)]
    first, second = (image_of(z, product.a, product.swizzle[0], False) for z in zeros)
    return first, second


def test_a_copy_over_an_accumulator_is_in_no_order() -> None:
    product = Product("f16", "f16", "f16", 128, 16)
    steps = product.steps(*_images(product)) + "\n tcgen05.cp.cta_group::1.128x128b [%tm], %d0;"
    data, start = np.zeros(32768, np.uint8), np.zeros(128 * 128, np.uint32)
    arrays = [data, start, np.zeros_like(start)]
    program = load(kernel(steps, shared=32768), arch="sm_100a")
    result = launch(program, "k", 1, 128, arrays, shared=32768, strict=True)
    assert "tensor_unordered" in {finding.code for finding in result.findings}
    assert launch(program, "k", 1, 128, arrays, shared=32768).ok
