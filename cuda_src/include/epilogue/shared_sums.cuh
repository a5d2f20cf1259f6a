// a tile of C whose sums lie in shared memory, its k split over the blocks of a cluster: each block adds up a
// part of the tile and stores it in whole rows. sm_90.
#pragma once
#include "ptx/cluster.cuh"
#include "tile/convert.cuh"
#include "tile/row.cuh"
#include "tile/vector.cuh"

// what is stored of a sum of this place of a tile: the sum
struct AsItIs {
  __device__ __forceinline__ float operator()(float sum, int, int) const { return sum; }
};

// adds up `sums` of all RANKS blocks
template <int RANKS, int PIECE>
__device__ __forceinline__ Vector<float, PIECE> total_of(const float* sums) {
  Vector<float, PIECE> total = {};
  if constexpr (RANKS == 1) {
    total = load_vector<PIECE>(sums);
  } else {
#pragma unroll
    for (int from = 0; from < RANKS; ++from) {
      float part[PIECE];
      cluster_load(part, sums, from);
#pragma unroll
      for (int e = 0; e < PIECE; ++e) total.x[e] += part[e];
    }
  }
  return total;
}

// by the THREADS of each of RANKS blocks: stores ROWS x COLUMNS sums, rows PITCH apart, at `to`, PIECE
// neighbours at once, where addresses and ldc allow that. `rows` and `columns`: how many of them C has.
// whoever wrote sums need not have waited. a thread has the sums for AT_ONCE stores in flight. `change` is
// given a sum and its place in the tile, and gives what is stored
template <int RANKS, int ROWS, int COLUMNS, int PITCH, int THREADS, int PIECE,
          int AT_ONCE = RANKS < 4 ? 4 / RANKS : 1, class Out, class Change = AsItIs>
__device__ __forceinline__ void store_shared_sums(const float* sums, int rank, Out* to, int ldc, int rows,
                                                  int columns, const Change& change = {}) {
  constexpr int ROW_PIECES = COLUMNS / PIECE;
  if constexpr (RANKS > 1)
    cluster_sync();
  else
    __syncthreads();
#pragma unroll AT_ONCE
  for (int i = rank * THREADS + threadIdx.x; i < ROWS * ROW_PIECES; i += RANKS * THREADS) {
    const int row = i / ROW_PIECES, column = i % ROW_PIECES * PIECE;
    if (row >= rows || column >= columns) continue;
    const float* const own = sums + row * PITCH + column;
    const Vector<float, PIECE> total = total_of<RANKS, PIECE>(own);
    Vector<Out, PIECE> out;
#pragma unroll
    for (int e = 0; e < PIECE; ++e) out.x[e] = from_float<Out>(change(total.x[e], row, column + e));
    Out* const here = to + static_cast<long long>(row) * ldc + column;
    if (column + PIECE <= columns) {
      store_vector(here, out);
    } else {
#pragma unroll
      for (int e = 0; e < PIECE - 1; ++e)
        if (column + e < columns) here[e] = out.x[e];
    }
  }
  if constexpr (RANKS > 1) cluster_sync();  // the others have read what is here
}

// as store_shared_sums, of rows that begin anywhere: the sums of a row begin row_head(row) further on. so
// 16 bytes of C are whole vectors of sums, and what is left at the two ends of a row are single elements
template <int RANKS, int ROWS, int COLUMNS, int PITCH, int THREADS, class Out, class Change>
__device__ __forceinline__ void store_moved_sums(const float* sums, int rank, Out* to, int ldc, int rows,
                                                 int columns, const Change& change) {
  constexpr int CHUNK = VECTOR_BYTES / sizeof(Out), ROW_CHUNKS = COLUMNS / CHUNK + 1, ENDS = 2 * CHUNK;
  static_assert(PITCH >= COLUMNS + CHUNK - 1, "a row of sums needs room to begin further on");
  const int first = rank * THREADS + threadIdx.x, valid = min(columns, COLUMNS);
  if constexpr (RANKS > 1)
    cluster_sync();
  else
    __syncthreads();
#pragma unroll 2
  for (int i = first; i < ROWS * ROW_CHUNKS; i += RANKS * THREADS) {
    const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS * CHUNK;
    Out* const row_of_c = to + static_cast<long long>(row) * ldc;
    const int column = chunk - row_head<CHUNK>(row_of_c);
    if (row >= rows || column < 0 || column + CHUNK > valid) continue;
    Vector<Out, CHUNK> out;
#pragma unroll
    for (int part = 0; part < CHUNK; part += 4) {
      const Vector<float, 4> total = total_of<RANKS, 4>(sums + row * PITCH + chunk + part);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out.x[part + e] = from_float<Out>(change(total.x[e], row, column + part + e));
    }
    store_vector(row_of_c + column, out);
  }
  // the ends of a row, an element each: those before its first whole vector, and those behind the last
#pragma unroll 2
  for (int i = first; i < ROWS * ENDS; i += RANKS * THREADS) {
    const int row = i / ENDS, end = i % ENDS;
    Out* const row_of_c = to + static_cast<long long>(row) * ldc;
    const int behind = row_head<CHUNK>(row_of_c), before = min((CHUNK - behind) % CHUNK, valid);
    const int left = (behind + valid) % CHUNK, column = end < CHUNK ? end : valid - left + end - CHUNK;
    if (row >= rows || (end < CHUNK ? column >= before : column < before || column >= valid)) continue;
    const float total = total_of<RANKS, 1>(sums + row * PITCH + behind + column).x[0];
    row_of_c[column] = from_float<Out>(change(total, row, column));
  }
  if constexpr (RANKS > 1) cluster_sync();  // the others have read what is here
}

// by each of WARPS_DOWN x WARPS_ACROSS warps, with the sums of mma.sync of TILES_M x TILES_N pieces of 16 x
// 8: puts them into shared memory and stores the tile. `to`, rows and columns as above
template <int RANKS, int WARPS_DOWN, int WARPS_ACROSS, int PIECE, int TILES_M, int TILES_N, class Out,
          class Change = AsItIs>
__device__ __forceinline__ void store_fragments(float* sums, const float (&sum)[TILES_M][TILES_N][4],
                                                int rank, Out* to, int ldc, int rows, int columns,
                                                const Change& change = {}) {
  constexpr int WARP_M = TILES_M * 16, WARP_N = TILES_N * 8, ROWS = WARPS_DOWN * WARP_M,
                COLUMNS = WARPS_ACROSS * WARP_N;
  constexpr int PITCH = COLUMNS + 8, THREADS = WARPS_DOWN * WARPS_ACROSS * 32,
                CHUNK = VECTOR_BYTES / sizeof(Out);
  constexpr bool MOVED = PIECE * sizeof(Out) < 8;  // smaller pieces are too many stores
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp / WARPS_ACROSS * WARP_M, warp_n = warp % WARPS_ACROSS * WARP_N;
#pragma unroll
  for (int i = 0; i < TILES_M * 2; ++i) {
    const int row = warp_m + i * 8 + lane / 4;
    const int behind = MOVED ? row_head<CHUNK>(to + static_cast<long long>(row) * ldc) : 0;
    float* const own = sums + row * PITCH + warp_n + lane % 4 * 2 + behind;
#pragma unroll
    for (int j = 0; j < TILES_N; ++j) {
      const float* s = &sum[i / 2][j][i % 2 * 2];
      if constexpr (MOVED && PIECE % 2) {
        own[j * 8] = s[0];
        own[j * 8 + 1] = s[1];
      } else {
        store_vector(own + j * 8, Vector<float, 2>{s[0], s[1]});
      }
    }
  }
  if constexpr (MOVED)
    store_moved_sums<RANKS, ROWS, COLUMNS, PITCH, THREADS>(sums, rank, to, ldc, rows, columns, change);
  else
    store_shared_sums<RANKS, ROWS, COLUMNS, PITCH, THREADS, PIECE>(sums, rank, to, ldc, rows, columns,
                                                                   change);
}
