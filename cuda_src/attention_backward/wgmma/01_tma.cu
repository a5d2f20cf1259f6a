// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and do come as tensor maps, so
// their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. sums: (batch heads, padded,
// DIM) fp32, scratch. bf16 and fp16, sm_90a.
//
// TMA and wgmma: a block owns 128 keys, and each warpgroup 64 of them. one thread asks TMA for the next tile
// of rows while the present one is multiplied. logits are computed transposed. so p^T and ds^T stay in
// registers, where they are left operands of the products for dv and dk. only ds goes to shared memory, as an
// operand of the product for dq. this product is then added to memory in bulk, from shared memory.
//
// what it gains: the operands no longer pass through registers, no thread computes their addresses, and a
// bulk reduction replaces 64 atomic additions of each thread.
//
// what limits it: all warps wait for each other twice per tile, and the tensor cores wait for the weights of
// each tile.

#include "tiles.cuh"

constexpr int THREADS = CONSUMERS * WARPGROUP, BUFFERS = 2;

struct Shared {
  Keys k, v;
  Rows q[BUFFERS], d_o[BUFFERS];
  Scores ds;
  alignas(128) Chunk staged[CONSUMERS];
  alignas(128) Statistic lse2[BUFFERS], delta[BUFFERS];
  Barrier keys_full, full[BUFFERS];
};

// by thread 0: asks for a tile of rows
__device__ __forceinline__ void load(const Operands& g, Shared& shared, const WorkTile& tile, const RowTile& rows) {
  if (threadIdx.x > 0 || !rows.any()) return;
  const int buffer = rows.number % BUFFERS;
  Barrier& full = shared.full[buffer];
  mbarrier_arrive_expect(full, 2 * sizeof(Rows) + 2 * sizeof(Statistic));
  shared.q[buffer].load(g.q, full, tile.batch, rows.place / g.padded % g.heads, rows.row);
  shared.d_o[buffer].load(g.d_o, full, tile.batch, rows.place / g.padded % g.heads, rows.row);
  bulk_load(shared.lse2[buffer], g.lse2 + rows.place, sizeof(Statistic), full);
  bulk_load(shared.delta[buffer], g.delta + rows.place, sizeof(Statistic), full);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward_tma(BACKWARD_MAPS, BACKWARD_PARAMETERS) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g BACKWARD_OPERANDS;
  const WorkTile tile(g, blockIdx.x);
  if (threadIdx.x == 0) {
    mbarrier_init(shared.keys_full, 1);
    for (Barrier& full : shared.full) mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(shared.keys_full, 2 * sizeof(Keys));
    shared.k.load(g.k, shared.keys_full, tile.batch, tile.key_head, tile.first);
    shared.v.load(g.v, shared.keys_full, tile.batch, tile.key_head, tile.first);
  }
  RowTile at(g, tile), next = at;
  load(g, shared, tile, next);
  __syncthreads();
  const int consumer = uniform(threadIdx.x / WARPGROUP);
  Gradients gradients(g, tile, consumer);
  mbarrier_wait(shared.keys_full, 0);
  for (; at.any(); at.advance(g, tile)) {
    const int buffer = at.number % BUFFERS;
    next.advance(g, tile);
    load(g, shared, tile, next);
    mbarrier_wait(shared.full[buffer], at.number / BUFFERS % 2);
    float p[BLOCK_M / 2], ds[BLOCK_M / 2];
    multiply_vectors(p, shared.k, consumer * WGMMA_M, shared.q[buffer]);
    multiply_vectors(ds, shared.v, consumer * WGMMA_M, shared.d_o[buffer]);
    wgmma_wait<0>();
    gradients.weigh(p, shared.lse2[buffer], at.row);
    gradients.differentiate(ds, p, shared.delta[buffer]);

    Operand of_p, of_ds;
    to_left_operand<IN>(of_p, p);
    to_left_operand<IN>(of_ds, ds);
    shared.ds.put(consumer * WGMMA_M, of_ds);
    async_fence();
    __syncthreads();  // the gradients of the logits are there for everyone
    float dq[32];
    add_weighted(gradients.dv, of_p, shared.d_o[buffer]);
    add_weighted(gradients.dk, of_ds, shared.q[buffer]);
    multiply_scores(dq, shared.ds, consumer, shared.k);
    wgmma_wait<0>();
    __syncthreads();  // everyone is done with them, and with the tile
    gradients.add(shared.staged[consumer], dq, at.place, consumer);
  }
  gradients.store();
}
