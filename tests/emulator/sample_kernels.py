"""Matrix products in CUDA C++ that the tests run: from one thread an element to TMA, mbarriers and wgmma.

Every kernel computes C = A B in fp32. The later ones take B transposed. ``-DBUG_...`` plants one fault.
"""

# what the kernels of the tests are written with: addresses, and the life of an mbarrier
DEVICE = """
using u64 = unsigned long long;
__device__ __forceinline__ unsigned address(const void* p) { return __cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, int n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(address(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void expect(u64* b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(u64* b, int phase) {
    asm volatile("{ .reg .pred P; L: mbarrier.try_wait.parity.shared.b64 P, [%0], %1; @!P bra L; }"
        :: "r"(address(b)), "r"(phase) : "memory");
}
__device__ __forceinline__ void copy4(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(address(to)), "l"(from) : "memory");
}
"""


def on_device(text: str) -> str:
    """CUDA C++ behind what it is written with."""
    return DEVICE + text


NAIVE = """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG_EDGE
    if (row >= M || column > N) return;
#else
    if (row >= M || column >= N) return;
#endif
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];  // product
    C[row * N + column] = sum;  // result
}
"""

TILED = """
constexpr int T = 16;
extern "C" __global__ void __launch_bounds__(T * T) gemm(
    const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[T][T + 1], Bs[T][T + 1];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.f;
#ifdef BUG_TAIL
        if (k0 + y < K && column < N)
#endif
        Bs[y][x] = k0 + y < K && column < N ? B[(k0 + y) * N + column] : 0.f;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += As[y][k] * Bs[k][x];  // product
        __syncthreads();
    }
    if (row < M && column < N) C[row * N + column] = sum;  // result
}
"""

MMA = """
#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
constexpr int BM = 32, BN = 32, BK = 32, PAD = 8;
__device__ __forceinline__ unsigned address(const void* p) { return __cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(unsigned to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");  // copy
}
__device__ __forceinline__ void load4(unsigned (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // fragments
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(p)) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* Bt, float* C, int M, int N, int K) {
    __shared__ __align__(16) bf16 As[2][BM][BK + PAD], Bs[2][BN][BK + PAD];
    int t = threadIdx.x, lane = t % 32, wm = t / 64 * 16, wn = t / 32 % 2 * 16;
    int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    float sum[2][4] = {};
    auto load = [&](int s, int k0) {
        int r = t / 4, c = t % 4 * 8;
        bool a = m0 + r < M && k0 + c < K, b = n0 + r < N && k0 + c < K;
        copy16(address(&As[s][r][c]), a ? A + (size_t)(m0 + r) * K + k0 + c : A, a ? 16 : 0);
        copy16(address(&Bs[s][r][c]), b ? Bt + (size_t)(n0 + r) * K + k0 + c : Bt, b ? 16 : 0);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    int tiles = (K + BK - 1) / BK;
    load(0, 0);
    for (int i = 0; i < tiles; ++i) {
        if (i + 1 < tiles) load((i + 1) % 2, (i + 1) * BK);
        else asm volatile("cp.async.commit_group;" ::: "memory");
#ifndef BUG_WAIT
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
        __syncthreads();
        int s = i % 2;
        for (int k = 0; k < BK; k += 16) {
            unsigned a[4], b[4];
            load4(a, &As[s][wm + lane % 16][k + lane / 16 * 8]);
            load4(b, &Bs[s][wn + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
            for (int j = 0; j < 2; ++j)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]));
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; ++j)
        for (int e = 0; e < 4; ++e) {
            int row = m0 + wm + lane / 4 + e / 2 * 8, column = n0 + wn + j * 8 + lane % 4 * 2 + e % 2;
            if (row < M && column < N) C[(size_t)row * N + column] = sum[j][e];
        }
}
"""

# a producer warp and one consumer warpgroup around a ring of shared tiles; N of a tile is a -D
WGMMA = """
#include <cuda_bf16.h>
struct __align__(64) Map { unsigned long long opaque[16]; };
constexpr int BM = 64, BN = 32, BK = 64, STAGES = 3;
using u32 = unsigned; using u64 = unsigned long long;
__device__ __forceinline__ u32 address(const void* p) { return __cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(b)), "r"(n) : "memory");  // init
}
__device__ __forceinline__ void expect(u64* b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(b)) : "memory");  // arrive
}
__device__ __forceinline__ void wait(u64* b, int phase) {
    asm volatile("{\\n.reg .pred P;\\nAGAIN:\\n"  // wait
        "mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\\n"
        "@P bra DONE;\\nbra AGAIN;\\nDONE:\\n}" :: "r"(address(b)), "r"(phase) : "memory");
}
__device__ __forceinline__ void fetch(void* to, const Map* map, u64* b, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];"
        :: "r"(address(to)), "l"(map), "r"(address(b)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ u64 descriptor(const void* p) {
    return (u64)((address(p) & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void multiply(float (&d)[16], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "  // multiply
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) : "l"(a), "l"(b));
}
extern "C" __global__ void __launch_bounds__(160) gemm(
    const __grid_constant__ Map mapA, const __grid_constant__ Map mapB, float* C, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    auto As = (__nv_bfloat16(*)[BM * BK])memory;
    auto Bs = (__nv_bfloat16(*)[BN * BK])(memory + STAGES * BM * BK * 2);
    int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, tiles = (K + BK - 1) / BK;
    if (threadIdx.x == 0) {
#ifndef BUG_INIT
        for (int s = 0; s < STAGES; ++s) { init(&full[s], 1); init(&empty[s], 128); }
#endif
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128)
            for (int i = 0; i < tiles; ++i) {
                int s = i % STAGES, phase = i / STAGES & 1;
#ifndef BUG_EMPTY
                wait(&empty[s], phase ^ 1);  // room
#endif
#ifdef BUG_BYTES
                expect(&full[s], (BM + BN) * BK * 2 + 16);
#else
                expect(&full[s], (BM + BN) * BK * 2);
#endif
                fetch(As[s], &mapA, &full[s], i * BK, m0);
                fetch(Bs[s], &mapB, &full[s], i * BK, n0);
            }
        return;
    }
    float d[16] = {};
    for (int i = 0; i < tiles; ++i) {
        int s = i % STAGES, phase = i / STAGES & 1;
#ifndef BUG_FULL
        wait(&full[s], phase);  // data
#endif
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < BK; k += 16) multiply(d, descriptor(As[s] + k), descriptor(Bs[s] + k));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#ifndef BUG_GROUP
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
        arrive(&empty[s]);
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int e = 0; e < 16; ++e) {
        int row = m0 + warp * 16 + lane / 4 + e / 2 % 2 * 8, column = n0 + e / 4 * 8 + lane % 4 * 2 + e % 2;
        if (row < M && column < N) C[(size_t)row * N + column] = d[e];
    }
}
"""
