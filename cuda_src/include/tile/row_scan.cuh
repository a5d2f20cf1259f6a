// inclusive sums over the threads that share a row: the lanes of a warp or a block.
#pragma once
#include "tile/row.cuh"
#include "tile/warp.cuh"

// the sum of x over this lane and those before it, of each LANES neighbouring ones. all lanes have to call
template <int LANES = WARP>
__device__ __forceinline__ float warp_scan(float x) {
#pragma unroll
  for (int distance = 1; distance < LANES; distance *= 2) {
    const float before = __shfl_up_sync(ALL_LANES, x, distance, LANES);
    if (threadIdx.x % LANES >= distance) x += before;
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

// what the warps of a block that holds a row have of each of its COUNT rounds; in shared memory
template <int COUNT, int MEMBERS, int BLOCK>
struct RoundsScratch {
  float warps[MEMBERS > WARP ? COUNT * (BLOCK / WARP) : 1];
};

// of a row that MEMBERS threads hold in COUNT rounds, one vector a thread in each: what a thread has of its
// vectors becomes what lies before them. returns the sum of all. a group is a power of two of lanes, or else
// all BLOCK threads, which all have to call
template <int MEMBERS, int BLOCK, int COUNT>
__device__ __forceinline__ float scan_rounds(float (&sums)[COUNT],
                                             RoundsScratch<COUNT, MEMBERS, BLOCK>& scratch) {
  constexpr int LANES = MEMBERS < WARP ? MEMBERS : WARP;
  const int lane = threadIdx.x % LANES;
  float carry = 0.f, upto[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    upto[i] = warp_scan<LANES>(sums[i]);
    const float before = __shfl_up_sync(ALL_LANES, upto[i], 1, LANES);
    sums[i] = lane > 0 ? before : 0.f;
  }
  if constexpr (MEMBERS <= WARP) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      sums[i] += carry;
      carry += __shfl_sync(ALL_LANES, upto[i], LANES - 1, LANES);
    }
  } else {
    constexpr int WARPS = BLOCK / WARP, ALL = COUNT * WARPS;
    static_assert(MEMBERS == BLOCK && BLOCK % WARP == 0 && WARP % WARPS == 0,
                  "warps of a block have to be a power of two, at most 32");
    const int warp = threadIdx.x / WARP;
    if (lane == WARP - 1)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) scratch.warps[i * WARPS + warp] = upto[i];
    __syncthreads();
#pragma unroll
    for (int first = 0; first < ALL; first += WARP) {
      const float of_warps = warp_scan(first + lane < ALL ? scratch.warps[first + lane] : 0.f);
#pragma unroll
      for (int i = first / WARPS; i < COUNT && i * WARPS < first + WARP; ++i) {
        const int at = i * WARPS - first + warp;
        const float before = __shfl_sync(ALL_LANES, of_warps, max(at - 1, 0));
        sums[i] += carry + (at > 0 ? before : 0.f);
      }
      carry += __shfl_sync(ALL_LANES, of_warps, WARP - 1);
    }
  }
  return carry;
}

template <int WIDTH, class Element>
__device__ __forceinline__ float sum_vector(const Vector<Element, WIDTH>& v) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum += to_float(v.x[j]);
  return sum;
}

// the inclusive sums of a vector, plus `before`, as they are stored
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> summed(const Vector<Element, WIDTH>& v, float before) {
  Vector<Out, WIDTH> y;
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) y.x[j] = from_float<Out>(before + (sum += to_float(v.x[j])));
  return y;
}
