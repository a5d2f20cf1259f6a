// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k], where m or n is small. S is the large operand, and
// the small one consists of a few vectors x: C[line, vector] = sum_k S[line, k] x[vector, k], for `lines`
// lines of K elements. with ALONG_K, the rows of S lie along k. without ALONG_K, they lie along the lines.
// then S is a B that is not transposed, and A has few rows. rows of S are lds elements apart. elements of x
// are x_vector and x_k apart, those of C c_line and c_vector.
//
// stage 1 of skinny, few vectors: S goes from memory to registers, 16 bytes per load. the lanes of a warp
// form a rectangle of such pieces: 8 lanes along the lines, 4 along k. `share` warps of a block and SPLIT
// blocks of a cluster share the same lines, and each of them has a part of k. 16-bit types are multiplied by
// mma.sync. it adds up over k, where the order does not matter. so the piece of a lane, as it was loaded,
// serves two fragments. for fp32, each lane multiplies its piece by all vectors.
//
// what it gains: S is read once, whatever its rows are aligned to. as many warps as fill the device read it,
// without shared memory and without waiting for each other.
//
// what limits it: for a large S, device memory. each warp reads x again, from the L1 or the L2. for a small
// S, the latency of a few loads, one after the other, and of adding up the parts.

#include "ptx/cluster.cuh"
#include "ptx/mma.cuh"
#include "tile/convert.cuh"
#include "tile/row.cuh"
#include "tile/vector.cuh"
#include "tile/warp.cuh"

constexpr int WIDTH = VECTOR_BYTES / sizeof(IN);
constexpr int K_STEP = 4 * WIDTH, LINES = 8 * WIDTH;  // of a warp at once
constexpr int THREADS = WARPS * WARP;
constexpr int PITCH = LINES + 1;  // spreads the vectors over the banks
constexpr bool TENSOR = sizeof(IN) == 2;
// rows of fp32 along k that begin anywhere are read from the multiple of 16 bytes before them on, and
// elements of x are moved to match: the lines of a lane are 8 rows apart, so all begin as far behind such a
// multiple
constexpr bool MOVES_X = !S_ALIGNED && ALONG_K && !TENSOR;
constexpr int BEYOND = S_ALIGNED || MOVES_X ? 0 : WIDTH;  // elements after a chunk that loading it may read
// K_EVEN: K is a multiple of WIDTH. S_EVEN: with S_ALIGNED, chunks of S are inside of it or outside as a
// whole
constexpr int REST = UNROLL > 1 ? UNROLL - 1 : 1;

static_assert(VECTORS % (TENSOR ? 8 : 4) == 0, "mma takes 8 vectors at once; four lanes add up fp32");

using Chunk = Vector<IN, WIDTH>;

// where a lane is in its warp: along the lines, along k
struct Lane {
  int line = threadIdx.x % WARP / 4, k = threadIdx.x % 4;
};

// WIDTH chunks of S: of as many lines with ALONG_K, else of as many k
struct Square {
  Chunk chunk[WIDTH];

  // all of it, and BEYOND, lies in S. `from`: the first line and k of the warp
  __device__ __forceinline__ void load(const IN* S, int lds, int line0, int k0, int lines) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const IN* from = S;
      if (ALONG_K)  // the last line again where there are no more
        from += static_cast<long long>(min(line0 + i * 8 + lane.line, lines - 1)) * lds + k0 + lane.k * WIDTH;
      else
        from += static_cast<long long>(k0 + lane.k * WIDTH + i) * lds + line0 + lane.line * WIDTH;
      if constexpr (MOVES_X)
        chunk[i] = load_vector<WIDTH>(from - row_head<WIDTH>(from));
      else if constexpr (!S_ALIGNED)
        chunk[i] = load_vector_anywhere<WIDTH>(from);
      else if constexpr (READ_ONCE)
        chunk[i] = load_vector_once<WIDTH>(from);
      else
        chunk[i] = load_vector<WIDTH>(from);
    }
  }

  // what of it lies in S; the rest is zero, or, where it belongs to no line, anything. rows begin at k =
  // `moved`
  __device__ __forceinline__ void load_edge(const IN* S, int lds, int line0, int k0, int lines, int K,
                                            int moved) {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) chunk[i] = {};
    if constexpr (MOVES_X) {
      load_moved(S, lds, line0, k0 - moved, lines, K);
      return;
    }
    if constexpr (S_ALIGNED) load_part<false>(S, lds, line0, k0, lines, K);
    if constexpr (!S_EVEN) load_part<true>(S, lds, line0, k0, lines, K);
  }

 private:
  __device__ __forceinline__ void load_moved(const IN* S, int lds, int line0, int k0, int lines, int K) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const int line = line0 + i * 8 + lane.line, k = k0 + lane.k * WIDTH + j;
        if (line < lines && k >= 0 && k < K) chunk[i].x[j] = S[static_cast<long long>(line) * lds + k];
      }
  }

  // of whole chunks in S, or BY_ELEMENTS, where these would reach beyond the end of S
  template <bool BY_ELEMENTS>
  __device__ __forceinline__ void load_part(const IN* S, int lds, int line0, int k0, int lines, int K) {
    const Lane lane;
    const long long end = static_cast<long long>(ALONG_K ? lines - 1 : K - 1) * lds + (ALONG_K ? K : lines);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const int line = line0 + (ALONG_K ? i * 8 + lane.line : lane.line * WIDTH);
      const int k = k0 + lane.k * WIDTH + (ALONG_K ? 0 : i);
      const int valid = line < lines && k < K ? ALONG_K ? K - k : lines - line : 0;
      const long long at = static_cast<long long>(ALONG_K ? line : k) * lds + (ALONG_K ? k : line);
      if (valid <= 0 || (S_ALIGNED && !S_EVEN && (at + WIDTH > end) != BY_ELEMENTS)) continue;
      if constexpr (BY_ELEMENTS)
        chunk[i] = load_tail<WIDTH>(S + at, valid, false);
      else
        chunk[i] = load_vector<WIDTH>(S + at);
    }
    if constexpr (ALONG_K && !S_EVEN && !BY_ELEMENTS)
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) keep_first(chunk[i], K - k0 - lane.k * WIDTH);
  }
};

// WIDTH elements of each vector that a lane multiplies: with mma of one in eight, else of all
struct Others {
  static constexpr int COUNT = TENSOR ? VECTORS / 8 : VECTORS;
  Chunk chunk[COUNT];

  // of `count` vectors that there are, which begin at k = `moved`. WHOLE: all elements are inside of k; else
  // those that are not become zero
  template <bool WHOLE>
  __device__ __forceinline__ void load(const IN* x, int x_vector, int x_k, int count, int k0, int K,
                                       int moved) {
    const Lane lane;
    const int k = k0 + lane.k * WIDTH - moved;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {  // the last vector again where there are no more
      const int vector = min(TENSOR ? i * 8 + lane.line : i, count - 1);
      const IN* from = x + static_cast<long long>(vector) * x_vector + static_cast<long long>(k) * x_k;
      if constexpr (X_ALIGNED && !MOVES_X && WHOLE) {
        chunk[i] = load_vector<WIDTH>(from);
      } else if constexpr (X_ALIGNED && !MOVES_X && K_EVEN) {
        chunk[i] = {};
        if (k < K) chunk[i] = load_vector<WIDTH>(from);
      } else {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j, from += x_k)
          chunk[i].x[j] = WHOLE || (k + j >= 0 && k + j < K) ? *from : IN(0.f);
      }
    }
  }
};

// the sums of a lane: what mma has of eight vectors or sixteen
template <class Element, bool TENSOR_CORES = TENSOR>
struct Sums {
  float sum[WIDTH][4] = {};

  __device__ __forceinline__ void add(const Square& square, const Others& others) {
    Vector<u32, 4> held[2] = {};
#pragma unroll
    for (int half = 0; half < Others::COUNT; ++half)
      held[half] = reinterpret_cast<const Vector<u32, 4>&>(others.chunk[half]);
    const auto& words = reinterpret_cast<const Vector<u32, 4>(&)[WIDTH]>(square);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
#pragma unroll
      for (int pair = 0; pair < 4; pair += 2) {
        const u32 a[4] = {held[0].x[pair], held[1].x[pair], held[0].x[pair + 1], held[1].x[pair + 1]};
        if constexpr (ALONG_K) {
          mma(sum[i], a, words[i].x[pair], words[i].x[pair + 1], Element());
        } else {  // column i of the square
          const unsigned which = i % 2 ? 0x7632 : 0x5410;
          const int row = 2 * pair;
          mma(sum[i], a, __byte_perm(words[row].x[i / 2], words[row + 1].x[i / 2], which),
              __byte_perm(words[row + 2].x[i / 2], words[row + 3].x[i / 2], which), Element());
        }
      }
  }

  // to shared memory
  __device__ __forceinline__ void store(float (*to)[PITCH]) const {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
#pragma unroll
      for (int j = 0; j < VECTORS / 4; ++j) {
        const int column = lane.k * 2 + j % 2;
        to[lane.line + j / 2 * 8][ALONG_K ? i * 8 + column : column * WIDTH + i] = sum[i][j];
      }
  }
};

// of its lines with all vectors
template <class Element>
struct Sums<Element, false> {
  float sum[WIDTH][VECTORS] = {};

  __device__ __forceinline__ void add(const Square& square, const Others& others) {
#pragma unroll
    for (int vector = 0; vector < VECTORS; ++vector)
#pragma unroll
      for (int i = 0; i < WIDTH; ++i)
#pragma unroll
        for (int j = 0; j < WIDTH; ++j)
          sum[i][vector] += to_float(ALONG_K ? square.chunk[i].x[j] : square.chunk[j].x[i]) *
                            to_float(others.chunk[vector].x[j]);
  }

  // four lanes have sums of the same lines: each hands on those of half of its vectors, twice
  __device__ __forceinline__ void store(float (*to)[PITCH]) {
    const Lane lane;
    const int first = lane.k / 2 * (VECTORS / 2) + lane.k % 2 * (VECTORS / 4);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
#pragma unroll
      for (int distance = 2; distance > 0; distance /= 2) {
        const bool upper = lane.k & distance;
        const int half = VECTORS * distance / 4;
#pragma unroll
        for (int v = 0; v < half; ++v) {
          const float keep = upper ? sum[i][v + half] : sum[i][v],
                      give = upper ? sum[i][v] : sum[i][v + half];
          sum[i][v] = keep + __shfl_xor_sync(ALL_LANES, give, distance);
        }
      }
#pragma unroll
      for (int v = 0; v < VECTORS / 4; ++v)
        to[first + v][ALONG_K ? i * 8 + lane.line : lane.line * WIDTH + i] = sum[i][v];
    }
  }
};

// the sums of a block that are elements of C: of each group of `share` warps, where its first warp holds
// them. (the oldest compilers take no lambda with an `auto` parameter)
struct BlockSums {
  int groups, share, vectors, lines;
  bool line_by_line;  // lines are neighbours in C: threads that are neighbours take them, else vectors

  template <class Work>
  __device__ __forceinline__ void each(float (&held)[WARPS][VECTORS][PITCH], int from, int step,
                                       Work work) const {
    for (int i = from; i < groups * VECTORS * LINES; i += step) {
      const int group = i / (VECTORS * LINES), vector = line_by_line ? i / LINES % VECTORS : i % VECTORS;
      const int line = line_by_line ? i % LINES : i / VECTORS % LINES;
      if (vector < vectors && group * LINES + line < lines)
        work(&held[group * share][vector][line], vector, group * LINES + line);
    }
  }
};

extern "C" __global__ void __cluster_dims__(SPLIT) __launch_bounds__(THREADS, RESIDENT / THREADS)
    gemm_few_vectors(const IN* __restrict__ S, const IN* __restrict__ x, OUT* __restrict__ C, int lines,
                     int vectors, int K, int lds, int x_vector, int x_k, int c_line, int c_vector,
                     int share_bits) {
  __shared__ float held[WARPS][VECTORS][PITCH];
  if constexpr (SPLIT > 1) cluster_started();
  const int warp = threadIdx.x / WARP, rank = cluster_rank_of<SPLIT>();
  const int share = 1 << share_bits, groups = WARPS >> share_bits;
  // blocks that have other vectors of the same lines run side by side: the second one finds S in the L2
  int tile = blockIdx.x / SPLIT, vector0 = 0;
  if (vectors > VECTORS) {
    const int passes = (vectors + VECTORS - 1) / VECTORS;
    vector0 = tile % passes * VECTORS, tile /= passes;
  }
  const int block_line = tile * groups * LINES, line0 = block_line + (warp >> share_bits) * LINES;
  const IN* const own_x = x + static_cast<long long>(vector0) * x_vector;
  const int own_vectors = vectors - vector0;

  const int moved = MOVES_X ? row_head<WIDTH>(S + static_cast<long long>(line0 + Lane().line) * lds) : 0;

  const int steps = (K + (MOVES_X ? WIDTH - 1 : 0) + K_STEP - 1) / K_STEP;
  const int first = static_cast<int>(static_cast<long long>(steps) * rank / SPLIT);
  const int end = static_cast<int>(static_cast<long long>(steps) * (rank + 1) / SPLIT);
  // what a chunk reads beyond its line is of S, too, but after the last line or k: steps before need not look
  const int over = line0 + LINES + BEYOND - lines;
  const int inside = ALONG_K ? K - BEYOND : over <= 0 ? K : K - (over + lds - 1) / lds;
  const int whole = min(end, max(0, inside) / K_STEP);

  Sums<IN> sums;
  if (line0 < lines) {
    const auto load_others = [&](Others& others, int step) {
      others.load<true>(own_x, x_vector, x_k, own_vectors, step * K_STEP, K, moved);
    };
    const auto add_edge = [&](int step) {
      Square square;
      Others others;
      others.load<false>(own_x, x_vector, x_k, own_vectors, step * K_STEP, K, moved);
      square.load_edge(S, lds, line0, step * K_STEP, lines, K, moved);
      sums.add(square, others);
    };
    int step = first + (warp & share - 1);
    if (MOVES_X && step == 0) {  // elements before the rows are not theirs
      add_edge(step);
      step += share;
    }
#pragma unroll 1
    for (; step + (UNROLL - 1) * share < whole; step += UNROLL * share) {
      Square square[UNROLL];
      Others others[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) square[u].load(S, lds, line0, (step + u * share) * K_STEP, lines);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) load_others(others[u], step + u * share);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sums.add(square[u], others[u]);
    }
    if constexpr (UNROLL > 1)
      if (step < whole) {
        Square square[REST] = {};
        Others others[REST] = {};
#pragma unroll
        for (int u = 0; u < REST; ++u)
          if (step + u * share < whole) {
            square[u].load(S, lds, line0, (step + u * share) * K_STEP, lines);
            load_others(others[u], step + u * share);
          }
#pragma unroll
        for (int u = 0; u < REST; ++u) sums.add(square[u], others[u]);
        step += whole - step + share - 1 >> share_bits << share_bits;
      }
#pragma unroll 1
    for (; step < end; step += share) add_edge(step);
  }
  sums.store(held[warp]);
  __syncthreads();

  // the sums of the block's warps, and of the cluster's blocks, in their order
  const BlockSums of_block{groups, share, vectors - vector0, lines - block_line, c_line == 1};
  const auto add_warps = [&](const float* own) {
    float sum = *own;
#pragma unroll 4
    for (int w = 1; w < share; ++w) sum += own[w * VECTORS * PITCH];
    return sum;
  };
  const auto store = [&](float sum, int vector, int line) {
    C[static_cast<long long>(block_line + line) * c_line +
      static_cast<long long>(vector0 + vector) * c_vector] = from_float<OUT>(sum);
  };
  if constexpr (SPLIT == 1) {
    of_block.each(held, threadIdx.x, THREADS,
                  [&](float* own, int vector, int line) { store(add_warps(own), vector, line); });
  } else {
    of_block.each(held, threadIdx.x, THREADS, [&](float* own, int, int) { *own = add_warps(own); });
    cluster_sync();
    of_block.each(held, rank * THREADS + threadIdx.x, SPLIT * THREADS, [&](float* own, int vector, int line) {
      float sum = 0.f;
#pragma unroll
      for (int from = 0; from < SPLIT; ++from) sum += cluster_load(own, from);
      store(sum, vector, line);
    });
    cluster_sync();  // the others have read what is here
  }
}
