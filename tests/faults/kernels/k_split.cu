// C = A B in fp32. A: (M, K), B: (K, N), C: (M, N), row-major. a block of WARPS warps computes TILE x TILE
// elements of C: all of them copy a slice of A and B, DEPTH deep, each multiplies its share of k, and in the
// end they add their parts up in shared memory.

constexpr int WARP = 32, THREADS = WARPS * WARP;
constexpr int SHARE = DEPTH / WARPS;     // of k, a warp
constexpr int OWN = TILE * TILE / WARP;  // elements of C of which a lane has a part
constexpr int COPIES = TILE * DEPTH / THREADS;

__device__ __forceinline__ void block_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

extern "C" __global__ void k_split(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[TILE][DEPTH], b[DEPTH][TILE], parts[WARPS][TILE * TILE];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;

  float sum[OWN] = {};
  for (int k0 = 0; k0 < K; k0 += DEPTH) {
    for (int c = 0; c < COPIES; ++c) {
      const int i = c * THREADS + threadIdx.x, am = i / DEPTH, ak = i % DEPTH, bk = i / TILE, bn = i % TILE;
      a[am][ak] = m0 + am < M && k0 + ak < K ? A[(m0 + am) * K + k0 + ak] : 0.f;
      b[bk][bn] = k0 + bk < K && n0 + bn < N ? B[(k0 + bk) * N + n0 + bn] : 0.f;
    }
    block_barrier();  // the slice has come
    for (int e = 0; e < OWN; ++e)
      for (int k = warp * SHARE; k < (warp + 1) * SHARE; ++k)
        sum[e] += a[(e * WARP + lane) / TILE][k] * b[k][(e * WARP + lane) % TILE];
    block_barrier();  // everyone is done with it
  }

  for (int e = 0; e < OWN; ++e) parts[warp][e * WARP + lane] = sum[e];
  __syncthreads();
  for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
    float total = 0;
    for (int w = 0; w < WARPS; ++w) total += parts[w][i];
    const int m = m0 + i / TILE, n = n0 + i % TILE;
    if (m < M && n < N) C[m * N + n] = total;
  }
}
