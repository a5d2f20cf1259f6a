// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// overlap within a consumer: a consumer waits only for the product of the keys. it computes the weights of
// the next tile while the product of the values of this tile is still computed.
//
// what it gains: a consumer's exponentials overlap with its own products. this fills the times when the other
// consumers leave the tensor cores idle.
//
// what limits it: a block has one work tile. its tensor cores idle while the first keys are loaded, and while
// results are stored.

#include "pipeline/ordered.cuh"
#include "specialised.cuh"

using Order = PingPong<1, WARPGROUPS>;

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile) {
  const int consumer = uniform(roles::consumer());
  Consumed<ring> keys{shared.keys}, values{shared.values};
  Averages averages(g, tile, consumer);
  Order::start(consumer);
  if (tile.tiles > 0) mbarrier_wait(shared.q_full[0], 0);
  float logits[BLOCK_N / 2], rescale[2];
  u32 weights[BLOCK_N / WGMMA_K][4];
  if (tile.tiles > 0) {
    keys.wait();
    multiply_keys(logits, shared.q[0], consumer * WGMMA_M, shared.k[keys.stage()]);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(g, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
  }
  for (int i = tile.tiles - 2; i >= 0; --i) {
    // at the beginning of an iteration: elsewhere compilers would wait before the logits are weighed
    wgmma_wait<0>();
    values.release_last();
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    keys.wait();
    Order::wait(consumer);
    multiply_keys(logits, shared.q[0], consumer * WGMMA_M, shared.k[keys.stage()]);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    Order::pass(consumer);
    wgmma_wait<1>();
    keys.release();
    keys.advance();
    values.release_previous();
    values.advance();
    if (i >= averages.whole) averages.mask(g, logits, i);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
  }
  wgmma_wait<0>();
  values.release_last();
  if (tile.tiles > 0) {
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    wgmma_wait<0>();
    values.release();
  }
  Order::finish(consumer);
  averages.store(g, tile);
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_overlap(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
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
