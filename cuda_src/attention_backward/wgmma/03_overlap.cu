// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do o)),
// dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk, dv: (batch,
// heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and do come as tensor maps, so their rows, heads and
// batches are multiples of 16 bytes apart. dim up to DIM. sums: (batch heads, padded, DIM) fp32, scratch. bf16 and
// fp16, sm_90a.
//
//
// overlap within a consumer: products of the next tile are issued before it waits for those of this one. logits of
// the next tile are computed while this one's part of dq goes to memory, do v^T and dk while weights are, and dk while
// the gradients of the logits are. dk reads these from shared memory, as dq does, so that no registers are held for it.
//
// what it gains: the tensor cores always have a product to compute.
//
// what limits it: shared memory. a product of 64 keys and 64 rows reads as many bytes of it a cycle as it has.

#include "specialised.cuh"

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile) {
  const int consumer = uniform(roles::consumer()), first = consumer * WGMMA_M;
  Consumed<ring> of_q{shared.rows}, of_o{shared.gradients};
  Gradients gradients(g, tile, consumer);
  float p[BLOCK_M / 2], ds[BLOCK_M / 2];
  mbarrier_wait(shared.keys_full, 0);
  of_q.wait();
  multiply_vectors(p, shared.k, first, shared.q[of_q.stage()]);
  of_o.wait();
  multiply_vectors(ds, shared.v, first, shared.d_o[of_o.stage()]);
  wgmma_commit();  // in the place of dk of a tile before
  for (RowTile at(g, tile); at.any(); at.advance(g, tile)) {
    Scores& scores = shared.ds[at.number % 2];
    const bool more = at.number + 1 < at.all;
    wgmma_wait<2>();  // the logits are there
    gradients.weigh(p, shared.lse2[of_q.stage()], at.row);
    wgmma_wait<1>();
    gradients.differentiate(ds, p, shared.delta[of_o.stage()]);
    Operand of_p, of_ds;
    to_left_operand<IN>(of_p, p);
    to_left_operand<IN>(of_ds, ds);
    scores.put(consumer, of_ds);
    wgmma_wait<0>();  // dk of the tile before
    of_q.release_previous();
    shared.meet();

    float dq[32];
    const Rows &q = shared.q[of_q.stage()], &d_o = shared.d_o[of_o.stage()];
    add_weighted(gradients.dv, of_p, d_o);
    multiply_scores(dq, scores, consumer, shared.k);
    of_q.advance();
    if (more) {
      of_q.wait();
      multiply_vectors(p, shared.k, first, shared.q[of_q.stage()]);
    } else {
      wgmma_commit();
    }
    wgmma_wait<2>();
    of_o.release();
    of_o.advance();
    wgmma_wait<1>();
    gradients.add(shared.part[consumer], dq, at);
    if (more) {
      of_o.wait();
      multiply_vectors(ds, shared.v, first, shared.d_o[of_o.stage()]);
    }
    add_scores(gradients.dk, scores, consumer, q);
  }
  wgmma_wait<0>();
  gradients.store();
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_backward_overlap(BACKWARD_MAPS, BACKWARD_PARAMETERS) {
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
