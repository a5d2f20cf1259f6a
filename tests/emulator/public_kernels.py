"""Kernels as people write them: patterns across blocks, warps and clusters, correct as they stand here."""

SCAN = """
// inclusive sum of n ints in one pass with decoupled look-back; a status is flag << 32 | sum, flag 1: of this tile
// alone, 2: of all tiles up to it. tickets and status start at zero.
using u64 = unsigned long long;
extern "C" __global__ void scan(const int* x, int* y, u64* status, int* tickets, int n) {
    __shared__ int tile, before, sums[BLOCK];
    int t = threadIdx.x;
    if (t == 0) tile = atomicAdd(tickets, 1);  // blocks start in any order
    __syncthreads();
    int i = tile * BLOCK + t;
    sums[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 1; d < BLOCK; d *= 2) {
        int left = t >= d ? sums[t - d] : 0;
        __syncthreads();
        sums[t] += left;
        __syncthreads();
    }
    if (t == 0) {
        int total = sums[BLOCK - 1], sum = 0;
        if (tile > 0) {
            atomicExch(&status[tile], 1ull << 32 | (unsigned)total);
            int back = tile - 1;
            while (true) {
                u64 seen;
                do seen = atomicAdd(&status[back], 0ull); while (seen >> 32 == 0);  // poll
                sum += (int)seen;
                if (seen >> 32 == 2) break;
                --back;
            }
        }
        __threadfence();
        atomicExch(&status[tile], 2ull << 32 | (unsigned)(sum + total));
        before = sum;
    }
    __syncthreads();
    if (i < n) y[i] = before + sums[t];
}
"""

LAST_BLOCK = """
// sum of n floats: each block leaves a partial sum, the block that comes last adds them up. count starts at zero.
__device__ float of_block(float value, float* sums) {
    sums[threadIdx.x] = value;
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d) sums[threadIdx.x] += sums[threadIdx.x + d];
    }
    __syncthreads();
    return sums[0];
}
extern "C" __global__ void reduce(const float* x, float* partial, unsigned* count, float* result, int n) {
    extern __shared__ float sums[];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = of_block(sum, sums);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(count, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += ((volatile float*)partial)[i];
    sum = of_block(sum, sums);
    if (threadIdx.x == 0) *result = sum;
}
"""

HISTOGRAM = """
// how often each byte occurs in n of them; counts start at zero
extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ unsigned bins[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (unsigned count = bins[b]) atomicAdd(&counts[b], count);  // flush
}
"""

SOFTMAX = """
// softmax of each row of an m x n matrix, a block a row, maximum and sum in one pass
extern "C" __global__ void softmax(const float* x, float* y, int n) {
    __shared__ float maxima[32], sums[32];
    x += (size_t)blockIdx.x * n, y += (size_t)blockIdx.x * n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float most = -INFINITY_, sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float value = x[i], above = fmaxf(most, value);
        sum = sum * expf(most - above) + expf(value - above);
        most = above;
    }
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_xor_sync(~0u, most, d), others = __shfl_xor_sync(~0u, sum, d), above = fmaxf(most, other);
        if (above > -INFINITY_) sum = sum * expf(most - above) + others * expf(other - above);
        most = above;
    }
    if (lane == 0) maxima[warp] = most, sums[warp] = sum;
    __syncthreads();
    most = -INFINITY_, sum = 0;
    for (int w = 0; w < warps; ++w) most = fmaxf(most, maxima[w]);
    for (int w = 0; w < warps; ++w)
        if (sums[w] > 0) sum += sums[w] * expf(maxima[w] - most);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = expf(x[i] - most) / sum;
}
"""

CLUSTER = """
// sum of n ints by one cluster of 4 blocks: each adds up its part, the first reads the others' sums where they are
__device__ int remote(const int* p, int rank) {
    unsigned local = __cvta_generic_to_shared(p), there;
    int value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(local), "r"(rank));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
    return value;
}
__device__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(4) reduce(const int* x, int* result, int n) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * blockDim.x) mine += x[i];
    atomicAdd(&sum, mine);
    sync_cluster();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        int total = 0;
        for (int rank = 0; rank < 4; ++rank) total += remote(&sum, rank);
        *result = total;
    }
    sync_cluster();  // nobody leaves while its sum is read
}
"""

SPLIT_K = """
// C = A B in fp32, K shared out over blockIdx.z; the blocks of a tile add to C one after the other, in their order.
// semaphores start at zero.
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int* semaphores, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    int part = (K + gridDim.z - 1) / gridDim.z, k0 = blockIdx.z * part, k1 = min(K, k0 + part);
    bool inside = row < M && column < N, first = threadIdx.x == 0 && threadIdx.y == 0;
    float sum = 0;
    if (inside)
        for (int k = k0; k < k1; ++k) sum += A[row * K + k] * B[k * N + column];
    int* semaphore = semaphores + blockIdx.y * gridDim.x + blockIdx.x;
    if (first) {
        while (atomicAdd(semaphore, 0) != blockIdx.z) {}  // turn
        __threadfence();
    }
    __syncthreads();
    if (inside) {
        float* c = C + row * N + column;
        *c = blockIdx.z == 0 ? sum : *c + sum;
    }
    __threadfence();
    __syncthreads();
    if (first) atomicExch(semaphore, blockIdx.z + 1);
}
"""

TILES = """
// the largest of each 8 neighbours, of n floats, by tiles of 8 threads that stride over the array
template <int N>
struct Tile {
    __device__ int thread_rank() const { return threadIdx.x % N; }
    __device__ unsigned mask() const { return ((1ull << N) - 1) << threadIdx.x % 32 / N * N; }
    __device__ float shfl_xor(float value, int d) const { return __shfl_xor_sync(mask(), value, d, N); }  // shuffle
};
extern "C" __global__ void largest(const float* x, float* y, int n) {
    Tile<8> tile;
    int tiles = gridDim.x * blockDim.x / 8, first = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    for (int group = first; group * 8 < n; group += tiles) {
        int i = group * 8 + tile.thread_rank();
        float value = i < n ? x[i] : -1e30f;
        for (int d = 4; d > 0; d /= 2) value = fmaxf(value, tile.shfl_xor(value, d));
        if (tile.thread_rank() == 0) y[group] = value;
    }
}
"""

ATTENTION = """
#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
// softmax(Q K' / 4) V for n queries and n keys of 16 dimensions: a warp takes 16 queries and walks over the keys by
// 16 with a running maximum and sum; both products are mma.m16n8k16, and the scores never leave registers
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ unsigned pack(float low, float high) {
    return __bfloat16_as_ushort(__float2bfloat16(low)) | __bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}
__device__ unsigned two(const bf16* p, int row, int column, int n) {
    return row < n ? *(const unsigned*)(p + row * 16 + column) : 0;  // pair
}
__device__ unsigned down(const bf16* p, int row, int column, int n) {
    unsigned low = row < n ? __bfloat16_as_ushort(p[row * 16 + column]) : 0;
    return low | (row + 1 < n ? __bfloat16_as_ushort(p[(row + 1) * 16 + column]) : 0) << 16;
}
extern "C" __global__ void attention(const bf16* Q, const bf16* K, const bf16* V, float* O, int n) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4 * 2, q0 = blockIdx.x * 16;
    unsigned q[4];
    for (int i = 0; i < 4; ++i) q[i] = two(Q, q0 + g + i % 2 * 8, t + i / 2 * 8, n);
    float most[2] = {-1e30f, -1e30f}, sum[2] = {}, o[2][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        float s[2][4] = {};
        for (int half = 0; half < 2; ++half) {
            int key = k0 + half * 8 + g;
            multiply(s[half], q, two(K, key, t, n), two(K, key, t + 8, n));
            for (int e = 0; e < 4; ++e) s[half][e] = k0 + half * 8 + t + e % 2 < n ? s[half][e] / 4 : -1e30f;
        }
        for (int r = 0; r < 2; ++r) {
            float above = most[r], added = 0;
            for (int half = 0; half < 2; ++half) above = fmaxf(above, fmaxf(s[half][2 * r], s[half][2 * r + 1]));
            for (int d = 1; d < 4; d *= 2) above = fmaxf(above, __shfl_xor_sync(~0u, above, d));
            float scale = expf(most[r] - above);
            for (int half = 0; half < 2; ++half)
                for (int e = 2 * r; e < 2 * r + 2; ++e) {
                    added += s[half][e] = expf(s[half][e] - above);
                    o[half][e] *= scale;
                }
            sum[r] = sum[r] * scale + added;
            most[r] = above;
        }
        unsigned p[4];
        for (int i = 0; i < 4; ++i) p[i] = pack(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
        for (int half = 0; half < 2; ++half)
            multiply(o[half], p, down(V, k0 + t, half * 8 + g, n), down(V, k0 + t + 8, half * 8 + g, n));
    }
    for (int r = 0; r < 2; ++r) {
        for (int d = 1; d < 4; d *= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], d);
        int query = q0 + g + 8 * r;
        if (query < n)
            for (int half = 0; half < 2; ++half)
                for (int e = 0; e < 2; ++e) O[query * 16 + half * 8 + t + e] = o[half][2 * r + e] / sum[r];
    }
}
"""

GROUPS = """
// sums[b]: the sum of block b's stretch of x, and of passed, an array of n, the first *count: its elements above zero,
// in any order. count starts at zero.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void filter(const int* x, int* sums, int* passed, int* count, int n) {
    __shared__ int parts[32];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank(), value = i < n ? x[i] : 0;
    int part = cg::reduce(warp, value, cg::plus<int>());
    if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = part;  // of a warp
    block.sync();  // all of them
    if (warp.meta_group_rank() == 0) {
        part = warp.thread_rank() < warp.meta_group_size() ? parts[warp.thread_rank()] : 0;  // of the warps
        part = cg::reduce(warp, part, cg::plus<int>());
        if (warp.thread_rank() == 0) sums[block.group_index().x] = part;
    }
    if (value > 0) {
        auto some = cg::coalesced_threads();
        int at;
        if (some.thread_rank() == 0) at = atomicAdd(count, (int)some.size());
        at = some.shfl(at, 0);
        passed[at + some.thread_rank()] = value;  // passed
    }
}
"""

CLUSTER_GROUPS = """
// counts of the values 0 to 63 among n, by one cluster of 2 blocks that hold 32 bins each in shared memory
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2) histogram(const int* x, int* counts, int n) {
    __shared__ int bins[32];
    auto cluster = cg::this_cluster();
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    cluster.sync();  // zeroed
    for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads())
        atomicAdd(cluster.map_shared_rank(bins, x[i] / 32) + x[i] % 32, 1);  // add
    cluster.sync();  // counted
    if (threadIdx.x < 32) counts[cluster.block_rank() * 32 + threadIdx.x] = bins[threadIdx.x];  // out
}
"""

SPECIALISED = """
// C = A B' in fp32, A: (M, K), B: (N, K), bf16, K a multiple of 8. persistent blocks take 64 x 32 tiles of C in turn:
// warp 4 loads by TMA, warps 0 to 3 multiply with wgmma and hand the tile to TMA for storing
#include <cuda_bf16.h>
using u32 = unsigned; using u64 = unsigned long long; using bf16 = __nv_bfloat16;
struct __align__(64) Map { u64 opaque[16]; };
constexpr int BM = 64, BN = 32, BK = 64, STAGES = 3;
__device__ __forceinline__ u32 smem(const void* p) { return __cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem(b)) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(u64* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(smem(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(u64* b, u32 phase) {
    asm volatile("{\\n.reg .pred done;\\nretry:\\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n@!done bra retry;\\n}"
        :: "r"(smem(b)), "r"(phase) : "memory");
}
__device__ __forceinline__ void load_box(void* to, const Map* map, u64* b, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" :: "r"(smem(to)), "l"(map), "r"(smem(b)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_box(const Map* map, const void* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
        :: "l"(map), "r"(smem(from)), "r"(x), "r"(y) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ u64 descriptor(const void* p) {  // rows of 128 bytes, swizzled
    return (u64)((smem(p) & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void mma_64x32x16(float (&d)[16], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) : "l"(a), "l"(b));
}
__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, 128;" ::: "memory"); }
struct State {
    u32 index = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++index == STAGES) { index = 0; phase ^= 1; }  // next
    }
};
extern "C" __global__ void __launch_bounds__(160) gemm(const __grid_constant__ Map mapA,
    const __grid_constant__ Map mapB, const __grid_constant__ Map mapC, int M, int N, int K) {
    __shared__ __align__(1024) bf16 As[STAGES][BM * BK], Bs[STAGES][BN * BK];
    __shared__ __align__(128) float Cs[BM * BN];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    int tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n, steps = (K + BK - 1) / BK;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) { init(&full[s], 1); init(&empty[s], 4); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();  // barriers
    State state;
    if (threadIdx.x / 32 == 4) {
        if (threadIdx.x % 32 == 0)
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                for (int step = 0; step < steps; ++step, state.next()) {
                    wait(&empty[state.index], state.phase ^ 1);  // room
                    arrive_and_expect(&full[state.index], sizeof(As[0]) + sizeof(Bs[0]));  // expect
                    load_box(As[state.index], &mapA, &full[state.index], step * BK, tile / tiles_n * BM);  // load A
                    load_box(Bs[state.index], &mapB, &full[state.index], step * BK, tile % tiles_n * BN);  // load B
                }
        return;
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float d[16] = {};
        for (int step = 0; step < steps; ++step, state.next()) {
            wait(&full[state.index], state.phase);  // data
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int k = 0; k < BK; k += 16)
                mma_64x32x16(d, descriptor(As[state.index] + k), descriptor(Bs[state.index] + k));  // multiply
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // multiplied
            if (lane == 0) arrive(&empty[state.index]);  // free
        }
        if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // Cs was read
        consumers_sync();  // Cs is free
        for (int e = 0; e < 16; ++e) {
            int row = warp * 16 + lane / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
            Cs[row * BN + column] = d[e];  // stage
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy
        consumers_sync();  // Cs is full
        if (threadIdx.x == 0) store_box(&mapC, Cs, tile % tiles_n * BN, tile / tiles_n * BM);  // store
    }
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // last
}
"""

HASH_TABLE = """
// how often each of n keys occurs, in an open hash table that all threads fill at once. keys start at -1, counts at 0
extern "C" __global__ void insert(const int* x, int n, int* keys, int* counts, int capacity) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int slot = capacity - 1 - x[i] % 4;  // crowded, so that it wraps around
    while (true) {
        int there = atomicCAS(&keys[slot], -1, x[i]);  // claim
        if (there == -1 || there == x[i]) break;
        slot = (slot + 1) % capacity;
    }
    atomicAdd(&counts[slot], 1);
}
"""

RADIX_SORT = """
// n keys in order, by one block of 4 warps and 4 bits at a time; a warp takes a run of keys and keeps their order
extern "C" __global__ void sort(unsigned* x, unsigned* other, int n) {
    __shared__ unsigned places[4][16];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, run = (n + 127) / 128 * 32;
    int first = warp * run, end = min(n, first + run);
    for (int shift = 0; shift < 32; shift += 4) {
        if (threadIdx.x < 64) places[threadIdx.x / 16][threadIdx.x % 16] = 0;  // clear
        __syncthreads();  // all cleared
        for (int i = first + lane; i < end; i += 32) atomicAdd(&places[warp][x[i] >> shift & 15], 1u);  // count
        __syncthreads();  // all counted
        if (threadIdx.x == 0)
            for (unsigned digit = 0, before = 0; digit < 16; ++digit)
                for (int w = 0; w < 4; ++w) {
                    unsigned count = places[w][digit];
                    places[w][digit] = before;
                    before += count;  // sum
                }
        __syncthreads();  // all summed
        for (int i = first + lane; i - lane < end; i += 32) {
            unsigned key = i < end ? x[i] : 0, digit = i < end ? key >> shift & 15 : 16;
            unsigned same = __match_any_sync(~0u, digit), rank = __popc(same & ((1u << lane) - 1));
            unsigned place = digit < 16 ? places[warp][digit] : 0;  // place
            __syncwarp();  // all have read
            if (digit < 16 && rank == 0) places[warp][digit] = place + __popc(same);  // advance
            __syncwarp();  // all may read
            if (digit < 16) other[place + rank] = key;  // put
        }
        __syncthreads();  // sorted by this digit
        unsigned* now = other;
        other = x, x = now;
    }
}
"""

TURNS = """
// each block adds its part of n numbers to 32 sums, one block after the other, in the order in which they ask.
// lock is the next ticket and whose turn it is, both start at 0
extern "C" __global__ void add(const float* x, float* sums, unsigned* lock, int n) {
    __shared__ unsigned ticket;
    float sum = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) sum += x[i];
    if (threadIdx.x == 0) ticket = atomicAdd(&lock[0], 1u);
    __syncthreads();  // ticket
    unsigned turn;
    do asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(turn) : "l"(lock + 1) : "memory");
    while (turn != ticket);  // poll
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(turn) : "l"(lock + 1) : "memory");
    sums[threadIdx.x] = sums[threadIdx.x] * 0.5f + sum;  // add
    __syncthreads();  // sums are there
    if (threadIdx.x == 0) asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(lock + 1), "r"(ticket + 1) : "memory");
}
"""

RING = """
// a cluster of 4 blocks passes 32 numbers on around a ring, with st.async into the next block's shared memory
__device__ unsigned smem(const void* p) { return __cvta_generic_to_shared(p); }
__device__ unsigned next(const void* p, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(smem(p)), "r"((rank + 1) % 4));
    return there;
}
__device__ void expect(unsigned long long* b) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" :: "r"(smem(b)) : "memory");
}
__device__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(4) pass(const int* x, int* y, int rounds) {
    __shared__ int in[2][32];
    __shared__ unsigned long long full[2];
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(smem(&full[s])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < 2; ++s) expect(&full[s]);
    }
    sync_cluster();  // mbarriers
    int value = x[blockIdx.x * 32 + threadIdx.x];
    for (int round = 0; round < rounds; ++round) {
        int s = round % 2;
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];"  // send
            :: "r"(next(&in[s][threadIdx.x], rank)), "r"(value + 1), "r"(next(&full[s], rank)) : "memory");
        asm volatile("{\\n.reg .pred done;\\nretry:\\n"  // wait
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1, 1000;\\n@!done bra retry;\\n}"
            :: "r"(smem(&full[s])), "r"(round / 2 % 2) : "memory");
        value = in[s][threadIdx.x];  // receive
        __syncwarp();
        if (threadIdx.x == 0 && round + 2 < rounds) expect(&full[s]);  // again
        sync_cluster();  // all have received
    }
    y[blockIdx.x * 32 + threadIdx.x] = value;
}
"""

BULK_HISTOGRAM = """
// how often each value below 64 occurs: blocks count in shared memory, and one bulk reduction adds that to the counts
extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ __align__(16) unsigned bins[64];
    unsigned from = __cvta_generic_to_shared(bins);
    bins[threadIdx.x] = 0;
    __syncthreads();  // zeroed
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) atomicAdd(&bins[x[i]], 1u);  // count
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // to the async proxy
    __syncthreads();  // all counted
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"  // reduce
            :: "l"(counts), "r"(from), "n"(256) : "memory");
        asm volatile("cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group.read 0;" ::: "memory");  // read
    }
}
"""
