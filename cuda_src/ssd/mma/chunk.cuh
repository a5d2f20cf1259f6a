// what the stages of this track have in common: chunks as cp.async loads them and mma.sync multiplies them.
#pragma once
#include "../state.cuh"

// what is loaded of a chunk
struct Chunk {
  AsyncTile<IN, CHUNK, DSTATE, THREADS> c, b;
  AsyncTile<IN, CHUNK, COLUMNS, THREADS> x;
  float log_a[CHUNK];
};

struct Shared {
  Chunk chunk[2];
  AsyncTile<IN, DSTATE, COLUMNS, THREADS> state;  // before a chunk, rounded
  float sums[WARPS][CHUNK];                       // of each warp the same
};

// starts to load the chunk whose places begin at `first`, unless there is none; one group of copies either way. for the
// state alone c is not needed
template <bool OUTPUTS>
__device__ __forceinline__ void load_chunk(Chunk& chunk, const Operands& g, const Columns& columns, int first, int end) {
  if (first < end) {
    if (OUTPUTS) chunk.c.load(g.c, g.bc_place, first, end, g.dstate, columns.bc_aligned);
    chunk.b.load(g.b, g.bc_place, first, end, g.dstate, columns.bc_aligned);
    chunk.x.load(g.x + columns.first, g.x_place, first, end, columns.count, columns.x_aligned);
    for (int row = threadIdx.x; row < CHUNK; row += THREADS) {  // those behind the end are 0, which changes nothing
      const bool inside = first + row < end;
      const float* const from = g.log_a + static_cast<long long>(inside ? first + row : first) * g.heads;
      cp_async<4>(&chunk.log_a[row], from, inside ? 4 : 0);
    }
  }
  cp_async_commit();
}

// by a warp: the sums of the logarithms of decays, for itself; returns that of the whole chunk
__device__ __forceinline__ float sum_decays(Shared& shared, const Chunk& chunk) {
  float(&sums)[CHUNK] = shared.sums[threadIdx.x / WARP];
  const int at = threadIdx.x % WARP * 2;
  sum_decays(sums, chunk.log_a[at], chunk.log_a[at + 1]);
  __syncwarp();
  return sums[CHUNK - 1];
}

// by a warp: x of the chunk from place `place` on, 16 of them, and columns of two chunks of 8, as right operands
__device__ __forceinline__ void load_values(u32 (&b)[4], Chunk& chunk, int place, int i) {
  const int lane = threadIdx.x % WARP;
  ldmatrix_x4_trans(b, chunk.x.chunk(place + lane % 16, i + lane / 16));
}

// the state after the chunk
__device__ __forceinline__ void advance(State& state, Chunk& chunk, const float (&sums)[CHUNK], float last) {
  const float kept = ex2(last);
  state.every([&](int, int, float& element) { element *= kept; });
#pragma unroll
  for (int place = 0; place < CHUNK; place += 16) {
    u32 a[STATE_TILES][4];
#pragma unroll
    for (int tile = 0; tile < STATE_TILES; ++tile) decayed_operand(a[tile], chunk.b, sums, last, tile, place);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b[4];
      load_values(b, chunk, place, i);
#pragma unroll
      for (int tile = 0; tile < STATE_TILES; ++tile) {
        mma(state.value[tile][i], a[tile], b[0], b[1], IN());
        mma(state.value[tile][i + 1], a[tile], b[2], b[3], IN());
      }
    }
  }
}

// y of the chunk whose places begin at `first`, from the state that is shared
__device__ __forceinline__ void store_outputs(const Operands& g, const Columns& columns, Shared& shared, Chunk& chunk,
                                              const float (&sums)[CHUNK], int first, int end) {
  const int lane = threadIdx.x % WARP, own = threadIdx.x / WARP * 16, row = own + lane / 4;
  float y[COLUMNS / 2] = {}, weight[CHUNK / 2] = {};
  auto& ys = reinterpret_cast<float(&)[COLUMNS / 8][4]>(y);
  auto& weights = reinterpret_cast<float(&)[CHUNK / 8][4]>(weight);
#pragma unroll
  for (int n = 0; n < DSTATE; n += 16) {
    u32 a[4], b[4];
    ldmatrix_x4(a, chunk.c.chunk(own + lane % 16, n / EACH + lane / 16));
#pragma unroll
    for (int place = 0; place < CHUNK; place += 16) {
      if (place > own) break;  // later than all rows of the warp
      ldmatrix_x4(b, chunk.b.chunk(place + lane / 16 * 8 + lane % 8, n / EACH + lane / 8 % 2));
      mma(weights[place / 8], a, b[0], b[1], IN());
      mma(weights[place / 8 + 1], a, b[2], b[3], IN());
    }
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      ldmatrix_x4_trans(b, shared.state.chunk(n + lane % 16, i + lane / 16));
      mma(ys[i], a, b[0], b[1], IN());
      mma(ys[i + 1], a, b[2], b[3], IN());
    }
  }

  decay_rows(y, sums, row);
  weigh(weight, sums, row);
  u32 a[CHUNK / 16][4];
  to_left_operand<IN>(a, weight);
#pragma unroll
  for (int place = 0; place < CHUNK; place += 16) {
    if (place > own) break;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b[4];
      load_values(b, chunk, place, i);
      mma(ys[i], a[place / 16], b[0], b[1], IN());
      mma(ys[i + 1], a[place / 16], b[2], b[3], IN());
    }
  }
  store_places(g, columns, y, first, row, end);
}
