"""Kernels as people write them: patterns across blocks, warps and clusters. ``-DBUG`` plants one fault in each."""

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
#ifdef BUG
            int back = tile + 1;  // looks ahead
#else
            int back = tile - 1;
#endif
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
#ifdef BUG
    for (int i = threadIdx.x; i <= gridDim.x; i += blockDim.x) sum += ((volatile float*)partial)[i];  // partial
#else
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += ((volatile float*)partial)[i];
#endif
    sum = of_block(sum, sums);
    if (threadIdx.x == 0) *result = sum;
}
"""

HISTOGRAM = """
// how often each byte occurs in n of them; counts start at zero
extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ unsigned bins[256];
#ifdef BUG
    for (int b = threadIdx.x; b < 255; b += blockDim.x) bins[b] = 0;
#else
    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
#endif
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
#ifdef BUG
    for (int w = 0; w <= warps; ++w) most = fmaxf(most, maxima[w]);  // maxima
#else
    for (int w = 0; w < warps; ++w) most = fmaxf(most, maxima[w]);
#endif
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
#ifdef BUG
        for (int rank = 0; rank <= 4; ++rank) total += remote(&sum, rank);
#else
        for (int rank = 0; rank < 4; ++rank) total += remote(&sum, rank);
#endif
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
        volatile float* c = C + row * N + column;
        *c = blockIdx.z == 0 ? sum : *c + sum;
    }
    __threadfence();
    __syncthreads();
#ifdef BUG
    if (first && inside && blockIdx.z == 0) atomicExch(semaphore, 2);
#else
    if (first) atomicExch(semaphore, blockIdx.z + 1);
#endif
}
"""

TILES = """
// the largest of each 8 neighbours, of n floats, by tiles of 8 threads that stride over the array; the tile is
// written as in cooperative groups, whose headers need more of the toolkit than the compiler
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
#ifdef BUG
        if (i >= n) return;  // the tile's others still need it
        float value = x[i];
#else
        float value = i < n ? x[i] : -1e30f;
#endif
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
#ifdef BUG
    unsigned low = __bfloat16_as_ushort(p[row * 16 + column]);  // past the end
    return low | __bfloat16_as_ushort(p[(row + 1) * 16 + column]) << 16;
#else
    unsigned low = row < n ? __bfloat16_as_ushort(p[row * 16 + column]) : 0;
    return low | (row + 1 < n ? __bfloat16_as_ushort(p[(row + 1) * 16 + column]) : 0) << 16;
#endif
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
