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
  Gradients gradients(g, tile, consumer);
  Operand of_p;  // of the present tile, and gradients of its logits are in shared memory
  RowTile at(g, tile);
  mbarrier_wait(shared.keys_full, 0);
  {
    float p[BLOCK_M / 2], ds[BLOCK_M / 2];
    shared.rows.wait(at.buffer());
    multiply_vectors(p, shared.k, first, shared.q[0]);
    shared.gradients.wait(at.buffer());
    multiply_vectors(ds, shared.v, first, shared.d_o[0]);
    wgmma_wait<1>();
    gradients.weigh(p, shared.lse2[0], at.row);
    wgmma_wait<0>();
    gradients.differentiate(ds, p, shared.delta[0]);
    to_left_operand<IN>(of_p, p);
    shared.ds[0].put(consumer, ds);
    shared.meet();
  }
  while (at.number + 1 < at.all) {
    float p[BLOCK_M / 2], ds[BLOCK_M / 2], dq[32];
    const int now = at.buffer().stage;
    add_weighted(gradients.dv, of_p, shared.d_o[now]);
    multiply_scores(dq, shared.ds[now], consumer, shared.k);
    const int place = at.place;
    at.advance(g, tile);
    const ring::place next = at.buffer();
    shared.rows.wait(next);
    multiply_vectors(p, shared.k, first, shared.q[next.stage]);
    wgmma_wait<2>();
    shared.gradients.release(now);
    wgmma_wait<1>();
    gradients.add(shared.part[consumer], dq, place);
    shared.gradients.wait(next);
    multiply_vectors(ds, shared.v, first, shared.d_o[next.stage]);
    add_scores(gradients.dk, shared.ds[now], consumer, shared.q[now]);
    wgmma_wait<2>();
    gradients.weigh(p, shared.lse2[next.stage], at.row);
    wgmma_wait<1>();
    gradients.differentiate(ds, p, shared.delta[next.stage]);
    to_left_operand<IN>(of_p, p);
    shared.ds[next.stage].put(consumer, ds);
    wgmma_wait<0>();
    shared.rows.release(now);
    shared.meet();
  }
  float dq[32];
  const int last = at.buffer().stage;
  add_weighted(gradients.dv, of_p, shared.d_o[last]);
  multiply_scores(dq, shared.ds[last], consumer, shared.k);
  add_scores(gradients.dk, shared.ds[last], consumer, shared.q[last]);
  wgmma_wait<1>();
  gradients.add(shared.part[consumer], dq, at.place);
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
