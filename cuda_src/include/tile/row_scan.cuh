// inclusive sums over the threads that share a row: the lanes of a warp or a block.
#pragma once
#include "tile/row.cuh"
#include "tile/warp.cuh"

// the sum of x over this lane and those before it. all lanes have to call
__device__ __forceinline__ float warp_scan(float x) {
#pragma unroll
  for (int distance = 1; distance < WARP; distance *= 2) {
    const float before = __shfl_up_sync(ALL_LANES, x, distance);
    if (threadIdx.x % WARP >= distance) x += before;
  }
  return x;
}

// what the warps of a block have in all; in shared memory
template <int BLOCK>
struct ScanScratch {
  float warps[BLOCK / WARP];
};

// the sum of x over the threads of the block before this one, and over all of them, in `total`. all threads
// have to call, and meet at a barrier before they call again with the same scratch
template <int BLOCK>
__device__ __forceinline__ float block_scan_before(float x, float& total, ScanScratch<BLOCK>& scratch) {
  static_assert(BLOCK % WARP == 0 && BLOCK <= WARP * WARP, "a warp adds up what the warps of the block have");
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const float upto = warp_scan(x);
  if (lane == WARP - 1) scratch.warps[warp] = upto;
  __syncthreads();
  const float sums = warp_scan(lane < BLOCK / WARP ? scratch.warps[lane] : 0.f);
  total = __shfl_sync(ALL_LANES, sums, BLOCK / WARP - 1);
  const float warps_before = __shfl_sync(ALL_LANES, sums, max(warp - 1, 0));
  const float lanes_before = __shfl_up_sync(ALL_LANES, upto, 1);
  return (warp > 0 ? warps_before : 0.f) + (lane > 0 ? lanes_before : 0.f);
}

// the elements of COUNT vectors become inclusive sums; returns the last one. elements outside of the row have
// to be 0
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float scan_vectors(const Vector<Element, WIDTH> (&v)[COUNT],
                                              float (&sums)[COUNT * WIDTH]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sums[i * WIDTH + j] = sum += to_float(v[i].x[j]);
  return sum;
}

// vector `i` of the sums, plus `before`, as it is stored
template <class Out, int WIDTH, int SUMS>
__device__ __forceinline__ Vector<Out, WIDTH> sums_after(float before, const float (&sums)[SUMS], int i) {
  Vector<Out, WIDTH> y;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) y.x[j] = from_float<Out>(before + sums[i * WIDTH + j]);
  return y;
}
