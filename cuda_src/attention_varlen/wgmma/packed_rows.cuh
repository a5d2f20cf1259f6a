// packed rows: rows of the heads that share keys, one row of queries after the other, and the work tiles of
// them, whose keys several blocks may share. a kernel before decides how many do. sm_90a.
#pragma once
#include "row_by_row.cuh"

constexpr int LEAST = (LEAST_KEYS + BLOCK_N - 1) / BLOCK_N;  // tiles of keys of a part
constexpr int WARP_ROWS = Outputs::ROWS;

// `group` heads share keys, and `heads` of them a work tile: all, or one of `chunks`, the last of which may
// have fewer
struct Packing {
  int group, chunks, heads;

  __device__ __forceinline__ int places() const { return BLOCK_M / heads; }  // rows of queries of a tile
  // whether the rows of a warp are a box of (rows, heads) that TMA stores
  __device__ __forceinline__ bool boxes() const {
    return chunks * heads == group && (WARP_ROWS % heads == 0 || heads % WARP_ROWS == 0);
  }
};

// what the kernel before says of the sequence of a rank: work tiles of a head of those with lower ranks,
// parts of its keys, and the first place for what parts give (none without several)
struct alignas(16) Rank {
  int sequence, before, parts, slot;
};

// work tiles of a sequence, if its keys are in one part
struct Amount {
  int tiles, warps, key_tiles;  // of a head of keys; warps with rows, and tiles of keys, of one at most

  __device__ __forceinline__ Amount(const Sequence& sequence, const Packing& packing)
      : tiles((sequence.rows + packing.places() - 1) / packing.places()),
        warps((min(sequence.rows, packing.places()) * packing.heads + WARP_ROWS - 1) / WARP_ROWS),
        key_tiles((sequence.keys + BLOCK_N - 1) / BLOCK_N) {}
};

// `count` packed rows of a head of keys, from `first` of the sequence on, and tiles of keys of one of
// `parts`. key_offset and keys are of what begins with this part. of other parts slots are `step` further on
struct PackedRows {
  int head, first_head, heads, first, count, tiles, row_offset, rows, key_offset, keys, part, parts, slot,
      step;

  PackedRows() = default;

  __device__ __forceinline__ PackedRows(const Sequence& sequence, const Rank& rank, const Packing& packing,
                                        int unit, int row_tile, int of_part)
      : head(uniform(unit / packing.chunks)),
        first_head(uniform(unit % packing.chunks) * packing.heads),
        heads(packing.heads),
        first(uniform(row_tile) * queries()),
        count(min(queries(), uniform(sequence.rows) * heads - first)),
        row_offset(uniform(sequence.row_offset)),
        rows(uniform(sequence.rows)),
        key_offset(uniform(sequence.key_offset)),
        keys(uniform(sequence.keys)),
        part(uniform(of_part)),
        parts(uniform(rank.parts)) {
    const Amount amount(sequence, packing);
    step = uniform(amount.warps);
    slot = uniform(rank.slot + (unit * amount.tiles + row_tile) * parts * step);
    const int all = (seen(first + count - 1) + BLOCK_N - 1) / BLOCK_N;
    const int begin = all * part / parts;
    tiles = all * (part + 1) / parts - begin;
    key_offset += begin * BLOCK_N, keys -= begin * BLOCK_N;
  }

  // how many keys from the part's first on a packed row sees
  __device__ __forceinline__ int seen(int row) const {
    return CAUSAL ? max(0, min(keys, row / heads + 1 + keys - rows)) : keys;
  }
  __device__ __forceinline__ bool beyond() const { return tiles * BLOCK_N > keys; }

  // of a packed row its row, and its head of those that share keys
  __device__ __forceinline__ int place(int row) const { return row_offset + row / heads; }
  __device__ __forceinline__ int of_group(int row) const { return first_head + row % heads; }

  // that are loaded
  __device__ __forceinline__ int queries() const { return BLOCK_M / heads * heads; }
};

// one thread, which loads as attention's producer does, but queries from a map of (rows, key heads, group,
// dim)
struct PackedProducer {
  const Operands& g;
  Shared& shared;
  ring::place to = {};
  QueryPlace queries = {};

  __device__ __forceinline__ void load(const PackedRows& tile) {
    if (tile.tiles == 0) return;
    load(shared.keys, shared.k, g.k, tile, tile.tiles - 1, to);
    mbarrier_wait(shared.q_empty[queries.stage], queries.parity ^ 1);
    Barrier& full = shared.q_full[queries.stage];
    mbarrier_arrive_expect(full, tile.queries() * DIM * sizeof(IN));
    shared.q[queries.stage].load(g.q, full, tile.place(tile.first), tile.head, tile.first_head);
    queries.advance();
    for (int i = tile.tiles - 1; i >= 0; --i) {
      const ring::place values = to;
      to.advance();
      if (i > 0) load(shared.keys, shared.k, g.k, tile, i - 1, to);
      load(shared.values, shared.v, g.v, tile, i, values);
    }
  }

 private:
  static __device__ __forceinline__ void load(ring& barriers, Keys* stages, const TensorMap& map,
                                              const PackedRows& tile, int number, const ring::place& at) {
    barriers.acquire(at);
    Barrier& full = barriers.commit(at.stage, sizeof(Keys));
    stages[at.stage].load(map, full, 0, tile.head, tile.key_offset + number * BLOCK_N);
  }
};

// the kernel before, by one warp for each sequence. ranks: (batch + 1), most keys first. keys of sequences
// with more than one of `shares` of all the work are split, but not into parts of fewer than LEAST tiles of
// keys. there are `slots`, each for what a part gives for a warp's rows
__device__ __forceinline__ void rank_parts(const int* offsets_q, const int* offsets_k, Rank* ranks,
                                           const Packing& packing, int batch, int units, int shares,
                                           int slots) {
  const int mine = blockIdx.x * RANKED + threadIdx.x / WARP;
  if (mine >= batch) return;
  float work = 0.f, stored = 0.f;
  for (int i = threadIdx.x % WARP; i < batch; i += WARP) {
    const Amount other(Sequence(offsets_q, offsets_k, i), packing);
    const float products = static_cast<float>(other.tiles) * other.key_tiles;
    work += products, stored += products * other.warps;
  }
  // parts are rounded, so there are up to 4/3 of what this asks for
  const float share = warp_sum(work) * units / shares, fitting = 1.34f * warp_sum(stored) * units / slots;
  const float length = fmaxf(LEAST, fmaxf(share, fitting));
  const auto parts_of = [&](const Amount& of) {
    return max(1, static_cast<int>(of.key_tiles / length + 0.5f));
  };

  const Sequence own(offsets_q, offsets_k, mine);
  unsigned rank = 0, before = 0, slot = 0;
  for (int i = threadIdx.x % WARP; i < batch; i += WARP) {
    const Sequence other(offsets_q, offsets_k, i);
    if (other.keys < own.keys || (other.keys == own.keys && i >= mine)) continue;
    const Amount of(other, packing);
    const int parts = parts_of(of);
    ++rank, before += of.tiles * parts;
    if (parts > 1) slot += of.tiles * parts * of.warps;
  }
  rank = __reduce_add_sync(ALL_LANES, rank), before = __reduce_add_sync(ALL_LANES, before);
  slot = __reduce_add_sync(ALL_LANES, slot);
  if (threadIdx.x % WARP > 0) return;
  const Amount of(own, packing);
  const int parts = parts_of(of);
  ranks[rank] = {mine, static_cast<int>(before), parts, static_cast<int>(slot) * units};
  if (rank == batch - 1) ranks[batch] = {0, static_cast<int>(before) + of.tiles * parts, 1, 0};
}

// that table
struct RankedParts {
  const int *offsets_q, *offsets_k;
  const Rank* ranks;
  Packing packing;
  int batch;

  // work tiles of all units: heads of keys, and chunks of those that share them
  __device__ __forceinline__ int all(int units) const { return ranks[batch].before * units; }

  // work tile `number` of them, by a warp, all lanes: in the order of `Ranked`, parts of the same rows one
  // after the other
  __device__ __forceinline__ PackedRows tile(const Operands& g, int number) const {
    const int found = find_last(batch, number / g.heads, [&](int i) { return ranks[i].before; });
    const Rank rank = ranks[found];
    const Sequence sequence(offsets_q, offsets_k, rank.sequence);
    const int tiles = Amount(sequence, packing).tiles * rank.parts, within = number - rank.before * g.heads;
    const int fitting = CACHED / (2 * static_cast<int>(sizeof(IN))) / g.dim / max(1, sequence.keys);
    const int together = CAUSAL ? max(1, min(g.heads, packing.chunks * fitting)) : packing.chunks;
    const int first = within / (together * tiles) * together, units = min(together, g.heads - first);
    const int place = within - first * tiles, last = tiles - 1 - place / units;
    return {sequence, rank, packing, first + place % units, last / rank.parts, last % rank.parts};
  }
};

// where parts leave what they found, a slot for each warp with rows: averages not yet divided, and of the two
// rows of a thread the largest logit and the sum of the weights of its columns
struct Slots {
  static constexpr int VECTORS = DIM / 8, SLOT = (VECTORS + 1) * WARP;  // a lane's
  float4* found;                                                        // (slots, VECTORS + 1, 32)
  unsigned* counters;                                                   // (slots), zero before and after

  __device__ __forceinline__ float4* lane(int slot) const {
    return found + static_cast<long long>(slot) * SLOT + threadIdx.x % WARP;
  }
  __device__ __forceinline__ void store(int slot, const Averages& of) const {
    float4* const to = lane(slot);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      to[i * WARP] = {of.sum[4 * i], of.sum[4 * i + 1], of.sum[4 * i + 2], of.sum[4 * i + 3]};
    to[VECTORS * WARP] = {of.softmax.max[0], of.softmax.max[1], of.softmax.sum[0], of.softmax.sum[1]};
  }
  // of `parts` slots, so many apart, 8 columns for each 4 elements from vector `first` on: always in this
  // order
  template <int SUMS>
  __device__ __forceinline__ void merge(int slot, int step, int parts, int first, float (&sum)[SUMS],
                                        FragmentSoftmax& softmax, float factor) const {
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
      const float4* const from = lane(slot + part * step);
      const float4 stats = from[VECTORS * WARP];
      const float max[2] = {stats.x, stats.y}, sums[2] = {stats.z, stats.w};
      float before[2], more[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float largest = fmaxf(softmax.max[row], max[row]), base = ExpSum::base(largest);
        before[row] = ex2((softmax.max[row] - base) * factor), more[row] = ex2((max[row] - base) * factor);
        softmax.sum[row] = softmax.sum[row] * before[row] + sums[row] * more[row];
        softmax.max[row] = largest;
      }
#pragma unroll
      for (int i = 0; i < SUMS / 4; ++i) {
        const float4 x = from[(first + i) * WARP];
        sum[4 * i] = sum[4 * i] * before[0] + x.x * more[0];
        sum[4 * i + 1] = sum[4 * i + 1] * before[0] + x.y * more[0];
        sum[4 * i + 2] = sum[4 * i + 2] * before[1] + x.z * more[1];
        sum[4 * i + 3] = sum[4 * i + 3] * before[1] + x.w * more[1];
      }
    }
  }
};
