// online softmax of rows whose logits lie in the accumulators of mma or wgmma: a thread holds parts of two rows,
// of 8 neighbouring columns two, and 4 neighbouring lanes share them. element i belongs to row i / 2 % 2, the
// second one 8 further down (see wgmma_shapes.cuh).
#pragma once
#include "ptx/ex2.cuh"
#include "tile/online_softmax.cuh"

constexpr int ROW_LANES = 4;  // that share a row

// logits from column `columns[row]` of the tile on are masked
template <int SUMS>
__device__ __forceinline__ void mask_columns(float (&x)[SUMS], const int (&columns)[2]) {
  const int first = threadIdx.x % ROW_LANES * 2;
  const int left[2] = {columns[0] - first, columns[1] - first};
#pragma unroll
  for (int i = 0; i < SUMS; ++i)
    if (i / 4 * 8 + i % 2 >= left[i / 2 % 2]) x[i] = -infinity();
}

// the same of columns before `columns[row]`
template <int SUMS>
__device__ __forceinline__ void mask_columns_before(float (&x)[SUMS], const int (&columns)[2]) {
  const int first = threadIdx.x % ROW_LANES * 2;
  const int left[2] = {columns[0] - first, columns[1] - first};
#pragma unroll
  for (int i = 0; i < SUMS; ++i)
    if (i / 4 * 8 + i % 2 < left[i / 2 % 2]) x[i] = -infinity();
}

// each row of a fragment times a factor of its own
template <int SUMS>
__device__ __forceinline__ void scale_rows(float (&x)[SUMS], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < SUMS; ++i) x[i] *= factor[i / 2 % 2];
}

// of two rows: the largest logit so far, and the sum of the weights relative to it, of this thread's columns alone
struct FragmentSoftmax {
  static constexpr int CHAINS = 2;  // of a row, that do not wait for each other
  float max[2] = {-infinity(), -infinity()};
  float sum[2] = {0.f, 0.f};

  // logits become weights, 2^(factor (x - max)); what has been added up with earlier ones is to be multiplied
  // with `rescale`. factor is positive
  template <int SUMS>
  __device__ __forceinline__ void weigh(float (&x)[SUMS], float factor, float (&rescale)[2]) {
    static_assert(SUMS % (2 * CHAINS) == 0, "every row has as many elements in each chain");
    float most[2][CHAINS];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      float& m = most[i / 2 % 2][i % CHAINS];
      m = fmaxf(i < 2 * CHAINS ? max[i / 2 % 2] : m, x[i]);
    }
    float base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float largest = warp_reduce<Max, ROW_LANES>(fmaxf(most[row][0], most[row][1]));
      const float relative_to = ExpSum::base(largest);
      base[row] = relative_to * factor;
      rescale[row] = ex2((max[row] - relative_to) * factor);  // 1 while the maximum stays: else sums drift
      max[row] = largest;
    }
    float sums[2][CHAINS];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int row = i / 2 % 2;
      x[i] = ex2(x[i] * factor - base[row]);
      sums[row][i % CHAINS] = i < 2 * CHAINS ? x[i] : sums[row][i % CHAINS] + x[i];
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) sum[row] = sum[row] * rescale[row] + (sums[row][0] + sums[row][1]);
  }

  // when all logits have been seen: what averages are to be multiplied with, and the logarithm of the sum of the
  // exponentials. all lanes have to call
  __device__ __forceinline__ void finish(float scale, float (&factor)[2], float (&log_sum)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float total = warp_reduce<Sum, ROW_LANES>(sum[row]);
      factor[row] = total == 0.f ? 0.f : 1.f / total;
      log_sum[row] = max[row] * scale + logf(total);
    }
  }
};
