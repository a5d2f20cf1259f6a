// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// warp specialisation: one thread of the first warpgroup, the producer, asks TMA for queries, keys and
// values. the other warpgroups are consumers, with 64 rows each. they multiply, and wait only for what they
// need next. keys and values each have a circular buffer, so a tile of keys can be loaded while its values
// are still multiplied. the producer's warpgroup gives registers to the consumers.
//
// what it gains: consumers no longer wait for each other. they drift apart, and while one computes weights,
// the other may multiply.
//
// what limits it: nothing makes the consumers alternate.

#include "specialised.cuh"

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile) {
  const int consumer = uniform(roles::consumer());
  Consumed<ring> keys{shared.keys}, values{shared.values};
  Averages averages(g, tile, consumer);
  if (tile.tiles > 0) mbarrier_wait(shared.q_full[0], 0);
  for (int i = tile.tiles - 1; i >= 0; --i, keys.advance(), values.advance()) {
    float logits[BLOCK_N / 2], rescale[2];
    keys.wait();
    multiply_keys(logits, shared.q[0], consumer * WGMMA_M, shared.k[keys.stage()]);
    wgmma_wait<0>();
    keys.release();
    if (i >= averages.whole) averages.mask(g, logits, i);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
    scale_rows(averages.sum, rescale);

    u32 weights[BLOCK_N / WGMMA_K][4];
    to_left_operand<IN>(weights, logits);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    wgmma_wait<0>();
    values.release();
  }
  averages.store(g, tile);
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_specialised(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                          const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch,
                          long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                          float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const int last = g.row_tiles() - 1;
  const WorkTile tile(g, blockIdx.x / (last + 1), last - blockIdx.x % (last + 1));  // the longest first
  shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) Producer{g, shared}.load(tile);
  } else {
    roles::consume();
    consume(g, shared, tile);
  }
}
