// what the decode stages share: a warp attends with 16 rows to its own tiles of keys, which it alone loads;
// what several warps, or several blocks, have found for the same rows is merged.
#pragma once
#include "ptx/mma.cuh"
#include "tile/async_tile.cuh"
#include "tile/fragment.cuh"
#include "tile/fragment_softmax.cuh"

constexpr int THREADS = WARPS * WARP, BLOCK_ROWS = 16, BLOCK_KEYS = WARPS * KEYS;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN), ROW_CHUNKS = DIM / CHUNK;  // elements that move together
constexpr int LANE_COLUMNS = 4, ROW_VECTORS = DIM / LANE_COLUMNS;           // that a thread merges at once

static_assert((WARPS & (WARPS - 1)) == 0, "warps share out what is merged by halves");
static_assert(KEYS % 16 == 0 && STAGES >= 2,
              "an mma takes 16 keys; a tile is loaded while another is multiplied");

// where the arrays lie, and the sizes. k and v lie alike
struct Problem {
  long long q_batch, q_head, q_row, k_batch, k_head, k_row, o_batch, o_head, o_row;
  int heads, group, rows, keys, dim, causal;
  float scale;
  int aligned;

  __device__ __forceinline__ float factor() const { return scale * LOG2_E; }  // of logits, as exponents of 2
  __device__ __forceinline__ int key_heads() const { return heads / group; }
  // rows of the heads that share keys, and tiles of them
  __device__ __forceinline__ int packed() const { return group * rows; }
  __device__ __forceinline__ int tiles() const { return (packed() + BLOCK_ROWS - 1) / BLOCK_ROWS; }
  // keys that a packed row sees; those of all heads come before the next row
  __device__ __forceinline__ int seen(int packed_row) const {
    const int row = min(packed_row / group, rows - 1);
    return causal ? max(0, min(keys, row + 1 + keys - rows)) : keys;
  }
};

// up to 16 packed rows of one batch and one head of keys
struct RowTile {
  int batch, key_head, first, count;  // packed rows

  // of all tiles of all heads of keys of all batches
  __device__ __forceinline__ RowTile(const Problem& p, int number) {
    first = number % p.tiles() * BLOCK_ROWS;
    key_head = number / p.tiles() % p.key_heads();
    batch = number / p.tiles() / p.key_heads();
    count = min(BLOCK_ROWS, p.packed() - first);
  }
  // of these rows one alone
  __device__ __forceinline__ RowTile only(int row) const {
    RowTile one = *this;
    one.first += row, one.count = 1;
    return one;
  }
  __device__ __forceinline__ int head(const Problem& p, int row) const {
    return key_head * p.group + (first + row) % p.group;
  }
  __device__ __forceinline__ int place(const Problem& p, int row) const { return (first + row) / p.group; }
};

// which of the tiles of rows a block works on, and which of its keys: blocks in a row, tiles first, then
// parts of the keys, so that what shares keys is worked on at the same time, and what is merged, too
struct SharedTile {
  int tile, split;

  __device__ __forceinline__ SharedTile(const Problem& p, int block, int splits) {
    split = block / p.tiles() % splits;
    tile = block / p.tiles() / splits * p.tiles() + block % p.tiles();
  }
};

// of some columns of one row, what different keys give: averages not yet divided by the sum of the weights,
// the largest logit, and the sum of the weights relative to it
struct Merged {
  using Columns = Vector<float, LANE_COLUMNS>;
  Columns o = {};
  float max = -infinity(), sum = 0.f;

  // `stats` are maximum and sum. factor is positive
  __device__ __forceinline__ void add(const Columns& x, float2 stats, float factor) {
    const float largest = fmaxf(max, stats.x), base = ExpSum::base(largest);
    const float before = ex2((max - base) * factor), more = ex2((stats.x - base) * factor);
#pragma unroll
    for (int i = 0; i < LANE_COLUMNS; ++i) o.x[i] = o.x[i] * before + x.x[i] * more;
    sum = sum * before + stats.y * more;
    max = largest;
  }
};

// where parts of the keys leave what they give for the rows of a tile, in shared or global memory
struct Parts {
  float* o;
  float2* stats;                  // maximum, sum
  int o_step, o_row, stats_step;  // from one part to the next, from one row to the next

  __device__ __forceinline__ void store(int part, int row, int column, const Merged& merged) const {
    store_vector(o + part * o_step + row * o_row + column, merged.o);
    if (column == 0) stats[part * stats_step + row] = {merged.max, merged.sum};
  }
  // every `step`-th part from `first` on, in this order, so that the result is the same every time
  __device__ __forceinline__ Merged merge(int row, int column, int first, int parts, int step,
                                          float factor) const {
    Merged merged;
#pragma unroll 4
    for (int part = first; part < parts; part += step)
      merged.add(load_vector<LANE_COLUMNS>(o + part * o_step + row * o_row + column),
                 stats[part * stats_step + row], factor);
    return merged;
  }
};

struct WarpShared {
  using Tile = AsyncTile<IN, KEYS, DIM, WARP>;
  static constexpr int FOUND_ROW = DIM + 8;  // rows of a fragment begin in other banks
  union {
    struct {
      Tile k[STAGES], v[STAGES];
    };
    float found[BLOCK_ROWS * FOUND_ROW];
  };
};

struct Shared {
  AsyncTile<IN, BLOCK_ROWS, DIM, THREADS> q;
  WarpShared warps[WARPS];
  float2 stats[WARPS][BLOCK_ROWS];

  // what the warps found, a part each
  __device__ __forceinline__ Parts parts() {
    return {warps[0].found, stats[0], sizeof(WarpShared) / sizeof(float), WarpShared::FOUND_ROW, BLOCK_ROWS};
  }
};

// the queries of a tile; those behind the last are zero
__device__ __forceinline__ void load_queries(Shared& shared, const Problem& p, const RowTile& tile,
                                             const IN* q) {
  q += tile.batch * p.q_batch;
  for (int i = threadIdx.x; i < BLOCK_ROWS * ROW_CHUNKS; i += THREADS) {
    const int row = i / ROW_CHUNKS, column = i % ROW_CHUNKS * CHUNK;
    const IN* const from = q + tile.head(p, row) * p.q_head + tile.place(p, row) * p.q_row + column;
    store_vector(shared.q.chunk(row, i % ROW_CHUNKS),
                 load_tail<CHUNK>(from, row < tile.count ? p.dim - column : 0, p.aligned));
  }
}

// each warp attends to its share of the keys from `begin` to `end` and leaves what it found in shared memory
__device__ __forceinline__ void attend(Shared& shared, const Problem& p, const RowTile& tile, const IN* q,
                                       const IN* k, const IN* v, int begin, int end) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  WarpShared& mine = shared.warps[warp];
  k += tile.batch * p.k_batch + tile.key_head * p.k_head;
  v += tile.batch * p.k_batch + tile.key_head * p.k_head;
  end = min(end, p.seen(tile.first + tile.count - 1));  // the last row sees the most
  begin += warp * KEYS;
  const int tiles = max(0, (end - begin + BLOCK_KEYS - 1) / BLOCK_KEYS);

  const auto load = [&](int number) {
    if (number < tiles) {
      const int first = begin + number * BLOCK_KEYS;
      mine.k[number % STAGES].load(k, p.k_row, first, p.keys, p.dim, p.aligned);
      mine.v[number % STAGES].load(v, p.k_row, first, p.keys, p.dim, p.aligned);
    }
    cp_async_commit();
  };
#pragma unroll 1
  for (int number = 0; number < STAGES - 1; ++number) load(number);
  load_queries(shared, p, tile, q);
  __syncthreads();
  u32 a[DIM / 16][4];
#pragma unroll
  for (int c = 0; c < DIM / 16; ++c) ldmatrix_x4(a[c], shared.q.chunk(lane % 16, 2 * c + lane / 16));

  const int row = tile.first + lane / 4;  // and that 8 further down
  const int least = min(end, p.seen(tile.first)), upper = min(end, p.seen(row)),
            lower = min(end, p.seen(row + 8));
  float sum[DIM / 2] = {};
  auto& sums = reinterpret_cast<float (&)[DIM / 8][4]>(sum);
  FragmentSoftmax softmax;
#pragma unroll 1
  for (int number = 0; number < tiles; ++number) {
    cp_async_wait<STAGES - 2>();
    __syncwarp();  // this tile has come for all lanes, and all are done with the one before
    load(number + STAGES - 1);
    auto &key_tile = mine.k[number % STAGES], &value_tile = mine.v[number % STAGES];

    float logit[KEYS / 2] = {};
    auto& logits = reinterpret_cast<float (&)[KEYS / 8][4]>(logit);
#pragma unroll
    for (int c = 0; c < ROW_CHUNKS; c += 2)  // 16 elements of each vector
#pragma unroll
      for (int n = 0; n < KEYS; n += 16) {
        u32 b[4];  // keys n to n + 7, and 8 more, each in two chunks
        ldmatrix_x4(b, key_tile.chunk(n + lane / 16 * 8 + lane % 8, c + lane / 8 % 2));
        mma(logits[n / 8], a[c / 2], b[0], b[1], IN());
        mma(logits[n / 8 + 1], a[c / 2], b[2], b[3], IN());
      }
    const int before = begin + number * BLOCK_KEYS;
    if (before + KEYS > least) mask_columns(logit, {upper - before, lower - before});
    float rescale[2];
    softmax.weigh(logit, p.factor(), rescale);
    scale_rows(sum, rescale);

    u32 weights[KEYS / 16][4];
    to_left_operand<IN>(weights, logit);
#pragma unroll
    for (int n = 0; n < KEYS; n += 16)
#pragma unroll
      for (int c = 0; c < ROW_CHUNKS; c += 2) {
        u32 b[4];  // columns of two chunks, each of keys n to n + 7 and 8 more
        ldmatrix_x4_trans(b, value_tile.chunk(n + lane % 16, c + lane / 16));
        mma(sums[c], weights[n / 16], b[0], b[1], IN());
        mma(sums[c + 1], weights[n / 16], b[2], b[3], IN());
      }
  }
  cp_async_wait<0>();
  __syncwarp();  // the tiles make room for what was found

#pragma unroll
  for (int i = 0; i < DIM / 2; i += 2)
    store_vector(mine.found + (lane / 4 + i / 2 % 2 * 8) * WarpShared::FOUND_ROW + i / 4 * 8 + lane % 4 * 2,
                 Vector<float, 2>{sum[i], sum[i + 1]});
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float total = warp_reduce<Sum, ROW_LANES>(softmax.sum[i]);
    if (lane % ROW_LANES == 0) shared.stats[warp][lane / 4 + i * 8] = {softmax.max[i], total};
  }
}

// a tile is done: what all `parts` found, divided by the sums
__device__ __forceinline__ void store_result(const Parts& from, int parts, const Problem& p,
                                             const RowTile& tile, IN* o, float* lse) {
  o += tile.batch * p.o_batch;
  lse += static_cast<long long>(tile.batch) * p.heads * p.rows;
  for (int i = threadIdx.x; i < tile.count * ROW_VECTORS; i += THREADS) {
    const int row = i / ROW_VECTORS, column = i % ROW_VECTORS * LANE_COLUMNS;
    const Merged merged = from.merge(row, column, 0, parts, 1, p.factor());
    const float divided = merged.sum == 0.f ? 0.f : 1.f / merged.sum;
    Vector<IN, LANE_COLUMNS> rounded;
#pragma unroll
    for (int j = 0; j < LANE_COLUMNS; ++j) rounded.x[j] = from_float<IN>(merged.o.x[j] * divided);
    const int head = tile.head(p, row), place = tile.place(p, row);
    store_tail(o + head * p.o_head + place * p.o_row + column, rounded, p.dim - column,
               p.dim % LANE_COLUMNS == 0);
    if (column == 0)
      lse[static_cast<long long>(head) * p.rows + place] = merged.max * p.scale + logf(merged.sum);
  }
}

// where blocks that share a tile leave what they found: o (tiles, splits, rows of a tile, DIM), stats (tiles,
// splits, rows of a tile, 2)
__device__ __forceinline__ Parts parts_of_tile(float* o, float* stats, const Problem& p, int tile,
                                               int splits) {
  const int rows = min(BLOCK_ROWS, p.packed());
  const long long before = static_cast<long long>(tile) * splits * rows;
  return {o + before * DIM, reinterpret_cast<float2*>(stats) + before, rows * DIM, DIM, rows};
}

// a block becomes a part: what all of its warps found
__device__ __forceinline__ void store_part(const Parts& to, int number, const Parts& from, const Problem& p,
                                           const RowTile& tile) {
  for (int i = threadIdx.x; i < tile.count * ROW_VECTORS; i += THREADS) {
    const int row = i / ROW_VECTORS, column = i % ROW_VECTORS * LANE_COLUMNS;
    to.store(number, row, column, from.merge(row, column, 0, WARPS, 1, p.factor()));
  }
}

// the result of `parts` by one block, with `shared` for as many parts as it has warps: where rows are few,
// warps share the parts of one
__device__ __forceinline__ void merge_parts(const Parts& shared, const Parts& from, int parts,
                                            const Problem& p, const RowTile& tile, IN* o, float* lse) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, vectors = tile.count * ROW_VECTORS;
  int sharing = WARPS;
  while (sharing > 1 && vectors > THREADS / sharing) sharing /= 2;
  for (int i = warp / sharing * WARP + lane; i < vectors; i += THREADS / sharing) {
    const int row = i / ROW_VECTORS, column = i % ROW_VECTORS * LANE_COLUMNS, share = warp % sharing;
    shared.store(share, row, column, from.merge(row, column, share, parts, sharing, p.factor()));
  }
  __syncthreads();
  store_result(shared, sharing, p, tile, o, lse);
}

// one row of the tiles of all heads of keys of all batches, by one block
__device__ __forceinline__ void merge_row(const Problem& p, int number, float* partial, float* stats,
                                          int splits, IN* o, float* lse) {
  __shared__ __align__(VECTOR_BYTES) float o_shared[WARPS][DIM];
  __shared__ float2 stats_shared[WARPS];
  const int rows = min(BLOCK_ROWS, p.packed()), row = number % rows;
  const RowTile tile(p, number / rows);
  if (row >= tile.count) return;
  Parts parts = parts_of_tile(partial, stats, p, number / rows, splits);
  parts.o += row * parts.o_row, parts.stats += row;
  merge_parts({o_shared[0], stats_shared, DIM, 0, 1}, parts, splits, p, tile.only(row), o, lse);
}
