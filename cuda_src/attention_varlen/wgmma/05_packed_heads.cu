// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k, v and o come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// packed heads: a work tile has the rows of all heads that share keys, one row of queries after the other. a
// sequence that decodes fills `group` rows, so its keys are read once, not once for each head. long keys are
// split into parts: the kernel before knows all lengths, and makes parts so short that every multiprocessor
// gets several work tiles. blocks leave what their parts give in memory. the last one merges it, always in
// the same order. a consumer none of whose rows exist computes nothing. the kernel is launched
// programmatically.
//
// what it gains: work tiles of sequences that decode are fewer by `group`, and no long one is left at the
// end. 64 of them with 131,072 keys (h32/4 d128) take 328 us on an H200, where row_by_row takes 610.
//
// what limits it: memory, where all sequences decode. products, where they do not: a tile of 64 rows is the
// smallest that wgmma multiplies.

#include "packed_rows.cuh"
#include "ptx/flag.cuh"
#include "ptx/grid_dependency.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank_parts(const int* offsets_q, const int* offsets_k, Rank* ranks, int* ticket,
                                int group, int chunks, int heads, int batch, int units, int shares,
                                int slots) {
  grid_dependency_launch();
  rank_parts(offsets_q, offsets_k, ranks, {group, chunks, heads}, batch, units, shares, slots);
  if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;
}

struct PackedMemory : Drawn<PackedRows> {
  bool merging;  // this block has the last of the parts
};
static_assert(sizeof(PackedMemory) <= roles::SHARED_BYTES,
              "the tiles do not fit into shared memory: lower TILE_KEYS");

struct PackedConsumer : Consumer {
  static constexpr int MERGED = 12;   // named barrier
  static constexpr int COLUMNS = 32;  // that a warp merges at once
  Packing packing;
  bool& merging;
  Slots slots;

  __device__ __forceinline__ void consume(const PackedRows& tile) {
    const int consumer = uniform(roles::consumer()), first = Outputs::first_row(consumer);
    const bool idle = consumer * WGMMA_M >= tile.count;
    Averages averages(tile, tile, consumer);
    if (tile.tiles > 0 && idle) pass(tile, consumer);
    if (tile.tiles > 0 && !idle) multiply(tile, averages, consumer, g.scale * LOG2_E);
    if (tile.parts > 1) {
      if (tile.tiles > 0) outputs.leave(shared, queries);
      if (first < tile.count) slots.store(tile.slot + tile.part * tile.step + first / WARP_ROWS, averages);
      merge(tile);
      return;
    }
    if (!idle) {
      finish(tile, averages.row, averages.sum, averages.softmax, true);
      if (tile.tiles > 0) Outputs::gather(consumer);
      if (tile.tiles > 0 && packing.boxes() && first + WARP_ROWS <= tile.count)
        outputs.store(shared, averages, tile.place(tile.first + first), tile.head,
                      tile.of_group(tile.first + first), consumer, queries);
      else
        store(tile, averages.row, averages.sum, 0);
    }
    if (tile.tiles > 0) outputs.leave(shared, queries);
  }

  __device__ __forceinline__ bool inside(const PackedRows& tile, int row) const {
    return row - tile.first < tile.count && tile.of_group(row) < packing.group;
  }
  __device__ __forceinline__ int head(const PackedRows& tile, int row) const {
    return tile.head * packing.group + tile.of_group(row);
  }

  // a consumer without rows: waits, clears and releases as the others do
  __device__ __forceinline__ void pass(const PackedRows& tile, int consumer) {
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    outputs.release(shared);
    for (int i = tile.tiles - 1; i >= 0; --i) {
      keys.wait();
      if (i < tile.tiles - 1) Order::wait(consumer), Order::pass(consumer);
      keys.release();
      keys.advance();
      values.wait();
      if (i == tile.tiles - 1 && tile.beyond())
        clear_beyond(shared.v[values.stage()], tile.keys - i * BLOCK_N);
      values.release();
      values.advance();
    }
  }

  // sums become averages, and the logarithms of the sums of exponentials are stored
  template <int SUMS>
  __device__ __forceinline__ void finish(const PackedRows& tile, int row, float (&sum)[SUMS],
                                         const FragmentSoftmax& softmax, bool logarithms) {
    float factor[2], log_sum[2];
    softmax.finish(g.scale, factor, log_sum);
    scale_rows(sum, factor);
    if (!logarithms || threadIdx.x % ROW_LANES > 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int of = row + 8 * i; inside(tile, of))
        g.lse[static_cast<long long>(head(tile, of)) * g.rows + tile.place(of)] = log_sum[i];
  }

  template <int SUMS>
  __device__ __forceinline__ void store(const PackedRows& tile, int row, const float (&sum)[SUMS],
                                        int column) {
    constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);
    const auto to = [&](int of) {
      return g.o + tile.place(of) * g.o_row + head(tile, of) * g.o_head + column;
    };
    store_rows({to(row), to(row + 8)}, {inside(tile, row), inside(tile, row + 8)}, sum, g.dim - column,
               g.o_row % CHUNK == 0 && g.o_head % CHUNK == 0);
  }

  // by all consumers: a part is stored, and if it is the last of its rows, warps share what is to be merged
  __device__ __forceinline__ void merge(const PackedRows& tile) {
    named_sync<roles::CONSUMER_THREADS>(MERGED);
    if (threadIdx.x == WARPGROUP) merging = count_to_last(slots.counters + tile.slot, tile.parts);
    named_sync<roles::CONSUMER_THREADS>(MERGED);
    if (!merging) return;
    const int warps = (tile.count + WARP_ROWS - 1) / WARP_ROWS;
    for (int i = roles::warp_of_all(); i < warps * (DIM / COLUMNS); i += roles::CONSUMER_WARPS) {
      const int warp = i / (DIM / COLUMNS), column = i % (DIM / COLUMNS) * COLUMNS;
      const int row = tile.first + warp * WARP_ROWS + threadIdx.x % WARP / ROW_LANES;
      float sum[COLUMNS / 2] = {};
      FragmentSoftmax softmax;
      slots.merge(tile.slot + warp, tile.step, tile.parts, column / 8, sum, softmax, g.scale * LOG2_E);
      finish(tile, row, sum, softmax, column == 0);
      store(tile, row, sum, column);
    }
  }
};

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_packed_heads(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                  const __grid_constant__ TensorMap v, const int* offsets_q,
                                  const int* offsets_k, const Rank* ranks, int* ticket, float4* found,
                                  unsigned* counters, const __grid_constant__ TensorMap stored, IN* o,
                                  float* lse, long long o_row, long long o_head, int group, int chunks,
                                  int heads, int batch, int units, int rows, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char bytes[];
  PackedMemory& memory = *reinterpret_cast<PackedMemory*>(bytes);
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, units, 1, rows, 0, dim, scale};
  const Packing packing{group, chunks, heads};
  if (packing.places() * heads < BLOCK_M) {  // rows of the tile that no queries come to
    for (int i = threadIdx.x; i < sizeof(memory.shared.q) / VECTOR_BYTES; i += roles::THREADS)
      reinterpret_cast<int4*>(memory.shared.q)[i] = int4{};
    async_fence();
  }
  memory.start();
  grid_dependency_wait();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x < WARP)
      produce<PackedProducer>(g, memory, RankedParts{offsets_q, offsets_k, ranks, packing, batch}, ticket);
  } else {
    roles::consume();
    consume_drawn(PackedConsumer{{g, memory.shared, {stored}}, packing, memory.merging, {found, counters}},
                  memory);
  }
}
