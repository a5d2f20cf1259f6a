"""Faults planted into kernels that are written everywhere, each with its place."""

from __future__ import annotations

from dataclasses import dataclass

from plants import entries

from workbench.emulator import FindingKind

Change = tuple[str, str]
"""A piece of a source, and what stands there instead."""


@dataclass(frozen=True)
class Plant:
    """A fault in one of the kernels: the change, what it may be called, and the lines that the finding has to name.

    A line is given by text that only it holds in the changed source; of several any will do. `array` is the array or
    variable that the finding is about.
    """

    kernel: str
    what: str
    change: Change
    kinds: tuple[FindingKind, ...]
    at: tuple[str, ...]
    array: str | None


KINDS = {"HUNG": "LIVELOCK DEADLOCK", "EARLY": "RACE UNINITIALISED"}
"""What one of several kinds of finding names, depending on who comes first."""

TABLE = r"""
scan: looks ahead | HUNG | // poll
    tile - 1; => tile + 1;
scan: reads past the end | OUT_OF_BOUNDS of x | ? x[i]
    i < n ? x[i] => i <= n ? x[i]
scan: no barrier after the reads | RACE | sums[t] += left
    t - d] : 0;¶        __syncthreads();¶ => t - d] : 0;¶
scan: ticket read too early | EARLY of tile | int i = tile * BLOCK
    // blocks start in any order¶    __syncthreads();¶ => ¶
scan: plain store of a status | RACE of status | status[tile] = 2ull | // poll
    atomicExch(&status[tile], 2ull << 32 | (unsigned)(sum + total))
    => status[tile] = 2ull << 32 | (unsigned)(sum + total)
last_block: one too many | OUT_OF_BOUNDS | i <= gridDim
    i < gridDim.x; i => i <= gridDim.x; i
last_block: no fence before the count | RACE of partial | partial)[i]
            __threadfence();¶        last =>         last
last_block: no barrier before the flag is read | EARLY of last | if (!last) return;
        __syncthreads();¶    if (!last) =>     if (!last)
last_block: no barrier in the reduction | EARLY | if (threadIdx.x < d) | sums[threadIdx.x] = value
            __syncthreads();¶        if (threadIdx.x < d) =>         if (threadIdx.x < d)
histogram: one bin not zeroed | UNINITIALISED of bins | // flush | &bins[x[i]]
    b < 256; b += blockDim.x) bins => b < 255; b += blockDim.x) bins
histogram: no barrier after zeroing | EARLY of bins | &bins[x[i]]
    bins[b] = 0;¶    __syncthreads();¶ => bins[b] = 0;¶
histogram: no barrier before the flush | EARLY of bins | // flush
    1u);¶    __syncthreads();¶ => 1u);¶
histogram: counts without atomics | RACE of bins | bins[x[i]]++
    atomicAdd(&bins[x[i]], 1u) => bins[x[i]]++
histogram: reads past the end | OUT_OF_BOUNDS of x | i <= n
    i < n; i => i <= n; i
softmax: one warp too many | UNINITIALISED of maxima | w <= warps
    w < warps; ++w) most => w <= warps; ++w) most
softmax: no barrier | EARLY | most = fmaxf(most, maxima[w])
    sums[warp] = sum;¶    __syncthreads();¶ => sums[warp] = sum;¶
softmax: a mask of half a warp | DIVERGENT_COLLECTIVE | 0xffffu
    other = __shfl_xor_sync(~0u => other = __shfl_xor_sync(0xffffu
softmax: writes a column too many | OUT_OF_BOUNDS RACE | i <= n
    i < n; i += blockDim.x) y => i <= n; i += blockDim.x) y
cluster: a block that does not exist | OUT_OF_BOUNDS | ld.shared::cluster
    rank < 4; ++rank => rank <= 4; ++rank
cluster: no cluster barrier before the reads | EARLY | ld.shared::cluster
    mine);¶    sync_cluster(); => mine);
cluster: an exit while others still read | EXITED_WITH_WORK | ld.shared::cluster
        sync_cluster();  // nobody leaves while its sum is read¶ =>
cluster: no barrier after zeroing | EARLY of sum | atomicAdd(&sum, mine)
    sum = 0;¶    __syncthreads();¶ => sum = 0;¶
split_k: the semaphore never comes to two | HUNG | // turn
    if (first) atomicExch(semaphore, blockIdx.z + 1); => if (first && blockIdx.z == 0) atomicExch(semaphore, 2);
split_k: the others do not wait for their turn | EARLY of C | *c + sum
        }¶    __syncthreads();¶    if (inside) { =>     }¶    if (inside) {
split_k: the semaphore is released before the sums are there | EARLY of C | *c + sum
        __threadfence();¶    __syncthreads();¶    if (first) atomicExch =>     if (first) atomicExch
split_k: k past the end | OUT_OF_BOUNDS | sum += A[
    min(K, k0 + part) => k0 + part
tiles: lanes that leave | DIVERGENT_COLLECTIVE DEADLOCK | // shuffle
            float value = i < n ? x[i] : -1e30f;¶ =>         if (i >= n) return;¶        float value = x[i];¶
tiles: the first tile's mask for all | DIVERGENT_COLLECTIVE | // shuffle
     << threadIdx.x % 32 / N * N =>
tiles: reads past the end | OUT_OF_BOUNDS of x | i <= n
    i < n ? x[i] => i <= n ? x[i]
attention: values past the end | OUT_OF_BOUNDS of V | low = __bfloat16
    low = row < n ? __bfloat16_as_ushort(p[row * 16 + column]) : 0; => low = __bfloat16_as_ushort(p[row * 16 + column]);
attention: keys past the end | OUT_OF_BOUNDS | // pair
    row < n ? *(const unsigned*)(p + row * 16 + column) : 0; => *(const unsigned*)(p + row * 16 + column);
attention: queries past the end | OUT_OF_BOUNDS of O | O[query
            if (query < n)¶ =>
attention: a mask of one group | DIVERGENT_COLLECTIVE | 0xfu
    __shfl_xor_sync(~0u, above, d) => __shfl_xor_sync(0xfu, above, d)
groups: no barrier before the parts are read | EARLY of parts | // of the warps
        block.sync();  // all of them¶ =>
groups: parts of warps that do not exist | UNINITIALISED of parts | // of the warps
    warp.thread_rank() < warp.meta_group_size() ? parts => warp.thread_rank() <= warp.meta_group_size() ? parts
groups: every lane stores the part | RACE of parts | // of a warp
    if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = part; => parts[warp.meta_group_rank()] = value;
groups: a reduction that not all lanes reach | DIVERGENT_COLLECTIVE DEADLOCK | if (value > 0) part
    int part = cg::reduce(warp, value, cg::plus<int>());
    => int part = 0; if (value > 0) part = cg::reduce(warp, value, cg::plus<int>());
groups: places taken without an atomic | RACE of count | at = *count
    at = atomicAdd(count, (int)some.size()) => at = *count, *count += some.size()
cluster_groups: no barrier after zeroing | EARLY | // add
        cluster.sync();  // zeroed¶ =>
cluster_groups: a barrier of the block only | RACE | // out | // add
    cluster.sync();  // counted => __syncthreads();  // counted
cluster_groups: a block that does not exist | OUT_OF_BOUNDS | // add
    x[i] / 32) => x[i] / 16)
specialised: no wait for the data | UNINITIALISED IN_FLIGHT RACE | // multiply | // load A | // load B
                wait(&full[state.index], state.phase);  // data¶ =>
specialised: no wait for room | MBARRIER_MISUSE IN_FLIGHT | // expect | // load A | // load B
                        wait(&empty[state.index], state.phase ^ 1);  // room¶ =>
specialised: nobody frees a slot | DEADLOCK | // room
                if (lane == 0) arrive(&empty[state.index]);  // free¶ =>
specialised: the parity never turns | IN_FLIGHT RACE MBARRIER_MISUSE DEADLOCK
    | // multiply | // load A | // load B | // expect | // room
    index = 0; phase ^= 1; => index = 0;
specialised: bytes of A alone | DEADLOCK MBARRIER_MISUSE IN_FLIGHT
    | // expect | // data | // room | // load B | // multiply
    sizeof(As[0]) + sizeof(Bs[0]) => sizeof(As[0])
specialised: a slot freed before it was read | IN_FLIGHT ACCUMULATOR_IN_FLIGHT
    | // load A | // load B | // stage | // multiply
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // multiplied¶ =>
specialised: C staged while it is stored | IN_FLIGHT of Cs | // stage
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // Cs was read => {}
specialised: no barrier before C is staged | IN_FLIGHT RACE of Cs | // stage
            consumers_sync();  // Cs is free¶ =>
specialised: no barrier before C is stored | EARLY of Cs | // store
            consumers_sync();  // Cs is full¶ =>
specialised: no proxy fence before C is stored | PROXY_FENCE of Cs | // store
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy =>
specialised: a barrier that counts the producer | DEADLOCK | // Cs is free
    "bar.sync 1, 128;" => "bar.sync 1, 160;"
specialised: an exit before C was read | EXITED_WITH_WORK | // store
        if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // last¶ =>
specialised: the barriers used before they are initialised | MBARRIER_MISUSE | // room | // data
        __syncthreads();  // barriers¶ =>
hash_table: no way around the end | OUT_OF_BOUNDS | // claim
    (slot + 1) % capacity => slot + 1
hash_table: one slot for all | LIVELOCK | // claim
    (slot + 1) % capacity => slot
hash_table: a slot claimed without an atomic | RACE of keys | // claim
    atomicCAS(&keys[slot], -1, x[i]);  // claim => keys[slot]; if (there == -1) keys[slot] = x[i];  // claim
radix_sort: no barrier after clearing | EARLY of places | // count
    __syncthreads();  // all cleared =>
radix_sort: no barrier after counting | EARLY | = places[w]
    __syncthreads();  // all counted =>
radix_sort: one not cleared | EARLY of places | // count
    x < 64) p => x < 64 && lane) p
radix_sort: places advanced while others read them | RACE of places | // advance
    __syncwarp();  // all have read =>
radix_sort: no barrier between digits | EARLY | // count | // clear | // place | // advance
    __syncthreads();  // sorted by this digit =>
turns: a turn that never ends | HUNG | // poll | do asm volatile
    "r"(ticket + 1) => "r"(ticket)
turns: no release | RACE of sums | // add
    st.release.gpu => st.relaxed.gpu
turns: no acquire | RACE of sums | // add
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(turn) : "l"(lock + 1) : "memory"); =>
turns: no barrier after the ticket | EARLY of ticket | // poll
    __syncthreads();  // ticket =>
ring: no wait for the numbers | RACE UNINITIALISED IN_FLIGHT MBARRIER_MISUSE | // send | // receive | // again
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1, 1000;\n@!done bra retry;\n}" => "}"
ring: bytes of half the numbers | MBARRIER_MISUSE of full | // send
    _, [%0], 128; => _, [%0], 64;
ring: a phase not begun again | HUNG | // wait
     && round + 2 < rounds) expect(&full[s]); => ) {}
ring: a slot overwritten | RACE of in | // send
    sync_cluster();  // all have received =>
ring: mbarriers not initialised yet | MBARRIER_MISUSE of full | // send
    sync_cluster();  // mbarriers =>
bulk_histogram: no barrier after zeroing | EARLY of bins | // count
    __syncthreads();  // zeroed =>
bulk_histogram: no proxy fence | PROXY_FENCE of bins | // reduce
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy =>
bulk_histogram: no barrier after counting | EARLY | // reduce | // count
    __syncthreads();  // all counted =>
bulk_histogram: too many bytes | OUT_OF_BOUNDS | // reduce
    "n"(256) => "n"(272)
bulk_histogram: an exit before the bins are read | EXITED_WITH_WORK | // reduce
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" ::: "memory");  // read =>
"""
"""Kernel and what is wrong; the kinds, and the array; texts of lines."""


def _plant(fields: list[str], changes: list[Change]) -> Plant:
    named, found, *at = fields
    (kernel, what), (kinds, _, array) = named.split(": "), found.partition(" of ")
    (change,) = changes
    return Plant(
        kernel, what, change, tuple(FindingKind[k] for k in KINDS.get(kinds, kinds).split()), tuple(at), array or None
    )


PLANTS = [_plant(*entry) for entry in entries(TABLE)]
