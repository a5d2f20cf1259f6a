// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// TMA and wgmma: a block takes 128 rows of a head. a warpgroup takes 64 of them with all keys. it takes a
// tile of BLOCK_N keys at a time, and begins with the last tile. one thread asks TMA for the next tile of
// keys and values while the present one is multiplied. wgmma reads them, and the queries, from shared memory.
// logits and weights stay in registers: the accumulators of the first product, rounded, are the left operand
// of the second.
//
// what it gains: the operands no longer pass through registers, and no thread computes their addresses.
//
// what limits it: all warps wait for each other before a tile is loaded, and the tensor cores wait for the
// softmax of every tile.

#include "tiles.cuh"

constexpr int THREADS = WARPGROUPS * WARPGROUP, BUFFERS = 2;

struct Shared {
  Queries q;
  Keys k[BUFFERS], v[BUFFERS];
  Barrier q_full, full[BUFFERS];
};

// by thread 0: asks for a tile of keys and values
__device__ __forceinline__ void load(const Operands& g, Shared& shared, const WorkTile& tile, int number) {
  if (threadIdx.x > 0 || number < 0) return;
  Barrier& full = shared.full[number % BUFFERS];
  mbarrier_arrive_expect(full, 2 * sizeof(Keys));
  shared.k[number % BUFFERS].load(g.k, full, tile.batch, tile.head / g.group, number * BLOCK_N);
  shared.v[number % BUFFERS].load(g.v, full, tile.batch, tile.head / g.group, number * BLOCK_N);
}

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile) {
  const int consumer = uniform(threadIdx.x / WARPGROUP);
  Averages averages(g, tile, consumer);
  mbarrier_wait(shared.q_full, 0);
  for (int i = tile.tiles - 1; i >= 0; --i) {
    float logits[BLOCK_N / 2], rescale[2];
    load(g, shared, tile, i - 1);
    mbarrier_wait(shared.full[i % BUFFERS], (tile.tiles - 1 - i) / BUFFERS % 2);
    multiply_keys(logits, shared.q, consumer * WGMMA_M, shared.k[i % BUFFERS]);
    wgmma_wait<0>();
    if (i >= averages.whole) averages.mask(g, logits, i);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
    scale_rows(averages.sum, rescale);

    u32 weights[BLOCK_N / WGMMA_K][4];
    to_left_operand<IN>(weights, logits);
    add_values(averages.sum, weights, shared.v[i % BUFFERS]);
    wgmma_wait<0>();
    __syncthreads();  // everyone is done with the tile
  }
  averages.store(g, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_tma(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                  const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch, long long o_head,
                  long long o_row, int heads, int group, int rows, int keys, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const int last = g.row_tiles() - 1;
  const WorkTile tile(g, blockIdx.x / (last + 1), last - blockIdx.x % (last + 1));  // the longest first
  if (threadIdx.x == 0) {
    mbarrier_init(shared.q_full, 1);
    for (Barrier& full : shared.full) mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(shared.q_full, sizeof(Queries));
    shared.q.load(q, shared.q_full, tile.batch, tile.head, tile.first);
  }
  load(g, shared, tile, tile.tiles - 1);
  __syncthreads();
  consume(g, shared, tile);
}
