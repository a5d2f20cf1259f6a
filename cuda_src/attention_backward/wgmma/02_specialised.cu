// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and do come as tensor maps, so
// their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. sums: (batch heads, padded,
// DIM) fp32, scratch. bf16 and fp16, sm_90a.
//
// warp specialisation: one thread of the first warpgroup, the producer, asks TMA for keys, values and rows.
// there are two consumers, with 64 keys each. they wait only for what they need next. q and do each have a
// circular buffer, whose stages are released when the last product with them is over. the consumers
// synchronise once per tile, when the gradients of its logits are in shared memory. the producer's warpgroup
// gives registers to the consumers.
//
// what it gains: no warp waits for a load. while one consumer computes weights, the other may multiply.
//
// what limits it: a consumer waits for the products of a tile before it begins the next one. so the tensor
// cores idle while both consumers compute weights.

#include "specialised.cuh"

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile) {
  const int consumer = uniform(roles::consumer());
  Consumed<ring> of_q{shared.rows}, of_o{shared.gradients};
  Gradients gradients(g, tile, consumer);
  mbarrier_wait(shared.keys_full, 0);
  for (RowTile at(g, tile); at.any(); at.advance(g, tile), of_q.advance(), of_o.advance()) {
    const Rows &q = shared.q[of_q.stage()], &d_o = shared.d_o[of_o.stage()];
    Scores& scores = shared.ds[at.number % 2];
    float p[BLOCK_M / 2], ds[BLOCK_M / 2], dq[32];
    of_q.wait();
    multiply_vectors(p, shared.k, consumer * WGMMA_M, q);
    of_o.wait();
    multiply_vectors(ds, shared.v, consumer * WGMMA_M, d_o);
    wgmma_wait<1>();
    gradients.weigh(p, shared.lse2[of_q.stage()], at.row);
    wgmma_wait<0>();
    gradients.differentiate(ds, p, shared.delta[of_o.stage()]);

    Operand of_p, of_ds;
    to_left_operand<IN>(of_p, p);
    to_left_operand<IN>(of_ds, ds);
    add_weighted(gradients.dv, of_p, d_o);
    scores.put(consumer * WGMMA_M, of_ds);
    shared.meet();
    multiply_scores(dq, scores, consumer, shared.k);
    add_weighted(gradients.dk, of_ds, q);
    wgmma_wait<2>();
    of_o.release();
    wgmma_wait<1>();
    gradients.add(shared.staged[consumer], dq, at.place, consumer);
    wgmma_wait<0>();
    of_q.release();
  }
  gradients.store();
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_backward_specialised(BACKWARD_MAPS, BACKWARD_PARAMETERS) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g BACKWARD_OPERANDS;
  const WorkTile tile(g, blockIdx.x);
  shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) produce(g, shared, tile);
  } else {
    roles::consume();
    consume(g, shared, tile);
  }
}
