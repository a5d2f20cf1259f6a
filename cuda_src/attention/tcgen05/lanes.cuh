// what the stages of this track have in common: tiles of queries, keys and values are those of the track wgmma, and a
// row of queries is a lane of tensor memory, and a thread. sm_100a.
#pragma once
#include "../wgmma/tiles.cuh"
#include "ptx/tcgen05.cuh"

static_assert(WARPGROUPS == 2, "WARPGROUPS has to be 2: 128 rows are the lanes of tensor memory");
static_assert(BLOCK_N % 64 == 0, "weights are stored 64 at a time: BLOCK_N is a multiple of 64");

constexpr int LANE_CHUNK = 32;  // columns of a lane that are read or written at once

// by one thread: starts the product of 128 queries and the keys of a tile
__device__ __forceinline__ void multiply_keys(u32 logits, const Queries& q, const Keys& k) {
  constexpr u32 FORM = tensor_form<IN, TENSOR_LANES, BLOCK_N, false>();
#pragma unroll
  for (int panel = 0; panel < Keys::PANELS; ++panel) {
    const u64 rows = tensor_operand(q.panel[panel], 0, ATOM_BYTES), columns = tensor_operand(k.panel[panel], 0, ATOM_BYTES);
#pragma unroll
    for (int i = 0; i < Keys::WIDTH / WGMMA_K; ++i)
      tensor_multiply<1>(logits, rows + i * 2, columns + i * 2, FORM, panel + i > 0);
  }
}

// by one thread: starts adding the values of a tile, weighted, to sums, or to nothing where it is the first
__device__ __forceinline__ void add_values(u32 sums, u32 weights, const Keys& v, bool first) {
  constexpr u32 FORM = tensor_form<IN, TENSOR_LANES, DIM, true>();
  const u64 rows = tensor_operand(v.panel, BLOCK_N * ROW_BYTES, ATOM_BYTES);
#pragma unroll
  for (int i = 0; i < BLOCK_N / WGMMA_K; ++i)
    tensor_multiply_from(sums, weights + i * WGMMA_K / 2, rows + (i * WGMMA_K * ROW_BYTES >> 4), FORM, i > 0 || !first);
}

// what a thread keeps of its row
struct LaneAverage {
  int row, whole;  // of the head; tiles of keys that all rows of the warp see all of
  float max = -infinity(), sum = 0.f;

  __device__ __forceinline__ LaneAverage(const Operands& g, const WorkTile& tile, int lane) : row(tile.first + lane) {
    whole = g.seen(tile.first + lane / WARP * WARP) / BLOCK_N;
  }

  // the logits of a tile of keys become weights, relative to the largest logit so far. what has been added up with
  // those before is to be multiplied with what is returned
  __device__ __forceinline__ float weigh(const Operands& g, float (&x)[BLOCK_N], int tile) {
    const float factor = g.scale * LOG2_E;
    if (tile >= whole) {
      const int left = g.seen(row) - tile * BLOCK_N;
#pragma unroll
      for (int i = 0; i < BLOCK_N; ++i)
        if (i >= left) x[i] = -infinity();
    }
    float most = max;
#pragma unroll
    for (int i = 0; i < BLOCK_N; ++i) most = fmaxf(most, x[i]);
    const float relative_to = ExpSum::base(most), rescale = ex2((max - relative_to) * factor);
    float part[4] = {};  // which do not wait for each other
#pragma unroll
    for (int i = 0; i < BLOCK_N; ++i) {
      x[i] = ex2(x[i] * factor - relative_to * factor);
      part[i % 4] += x[i];
    }
    sum = sum * rescale + ((part[0] + part[1]) + (part[2] + part[3]));
    max = most;
    return rescale;
  }

  // when all keys have been seen: sums become averages and are stored, of those rows that there are
  __device__ __forceinline__ void store(const Operands& g, const WorkTile& tile, u32 sums) const {
    constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);
    const float factor = sum == 0.f ? 0.f : 1.f / sum;
    IN* const o = g.o + tile.batch * g.o_batch + tile.head * g.o_head + row * g.o_row;
    const bool aligned = g.o_row % CHUNK == 0 && g.o_head % CHUNK == 0 && g.o_batch % CHUNK == 0;
#pragma unroll 1
    for (int n = 0; n < DIM; n += LANE_CHUNK) {
      float x[LANE_CHUNK] = {};
      if (tile.tiles > 0) tensor_load(x, sums + n);
#pragma unroll
      for (int i = 0; i < LANE_CHUNK; i += CHUNK) {
        Vector<IN, CHUNK> v;
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) v.x[e] = from_float<IN>(x[i + e] * factor);
        if (row < g.rows) store_tail(o + n + i, v, g.dim - n - i, aligned);
      }
    }
    if (row < g.rows)
      g.lse[(static_cast<long long>(tile.batch) * g.heads + tile.head) * g.rows + row] = max * g.scale + logf(sum);
  }
};

// by a warp: has the logits of its lanes
__device__ __forceinline__ void load_logits(float (&x)[BLOCK_N], u32 logits) {
#pragma unroll
  for (int n = 0; n < BLOCK_N; n += LANE_CHUNK)
    tensor_load(reinterpret_cast<float (&)[LANE_CHUNK]>(x[n]), logits + n);
}

// by a warp: stores weights, two in a column
__device__ __forceinline__ void store_weights(u32 weights, const float (&x)[BLOCK_N]) {
#pragma unroll
  for (int n = 0; n < BLOCK_N; n += 2 * LANE_CHUNK) {
    u32 pair[LANE_CHUNK];
#pragma unroll
    for (int i = 0; i < LANE_CHUNK; ++i) pair[i] = pair_from_float<IN>(x[n + 2 * i], x[n + 2 * i + 1]);
    tensor_store(weights + n / 2, pair);
  }
}

// by a warp: multiplies the sums of its lanes with a factor each, unless all of them are 1
__device__ __forceinline__ void rescale_sums(u32 sums, float factor) {
  if (__all_sync(0xffffffffu, factor == 1.f)) return;
#pragma unroll 1
  for (int n = 0; n < DIM; n += LANE_CHUNK) {
    float x[LANE_CHUNK];
    u32 scaled[LANE_CHUNK];
    tensor_load(x, sums + n);
#pragma unroll
    for (int i = 0; i < LANE_CHUNK; ++i) scaled[i] = __float_as_uint(x[i] * factor);
    tensor_store(sums + n, scaled);
  }
}
