// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and do come as tensor maps, so
// their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. sums: (batch heads, padded,
// DIM) fp32, scratch. bf16 and fp16, sm_90a.
//
// deterministic: the result of a sum of floats depends on the order. here blocks add their parts of dq in the
// order of their keys. a flag for each part of dq says how many blocks have added to it, and a block waits
// for those before it. it raises the flag one tile later, when its own part is in memory. blocks draw key
// tiles from a counter, in the order in which they begin. so a block only waits for blocks that already run.
//
// what it gains: two runs give the same bits.
//
// what limits it: the blocks of a head follow each other at a distance of a tile or two. so blocks that begin
// at the same time wait at first.

#include "ptx/flag.cuh"
#include "specialised.cuh"

// flags of all parts, and the ticket behind them
extern "C" __global__ void __launch_bounds__(256) attention_backward_clear(int* flags, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) flags[i] = 0;
}

struct Ticketed : Shared {
  int ticket;
};
static_assert(sizeof(Ticketed) <= roles::SHARED_BYTES, "the tiles do not fit into shared memory");

// a consumer's parts of dq of all tiles, in order
struct Ordered {
  const Gradients& gradients;
  int* flags;  // of this consumer's part of every tile, CONSUMERS apart
  int before;  // key tiles before this one
  int* raised = nullptr;

  // the part before is in memory: thread 0 says so
  __device__ __forceinline__ void raise() {
    if (threadIdx.x % WARPGROUP > 0) return;
    tma_store_wait<0>();
    if (raised) flag_raise(raised);
  }

  __device__ __forceinline__ void add(Chunk& staged, const float (&dq)[32], int place) {
    raise();
    gradients.stage(staged, dq);
    raised = flags + place / BLOCK_M * CONSUMERS;
    if (threadIdx.x % WARPGROUP < WARP) flag_wait(raised, before);
    gradients.send(staged, place, gradients.consumer);
  }
};

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile, int* flags) {
  const int consumer = uniform(roles::consumer());
  Consumed<ring> of_q{shared.rows}, of_o{shared.gradients};
  Gradients gradients(g, tile, consumer);
  Ordered ordered{gradients, flags + consumer, tile.first / BLOCK_N};
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
    ordered.add(shared.staged[consumer], dq, at.place);
    wgmma_wait<0>();
    of_q.release();
  }
  ordered.raise();
  gradients.store();
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_backward_deterministic(BACKWARD_MAPS, BACKWARD_PARAMETERS, int* flags, int parts) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Ticketed& shared = *reinterpret_cast<Ticketed*>(memory);
  const Operands g BACKWARD_OPERANDS;
  if (threadIdx.x == 0) shared.ticket = atomicAdd(flags + parts, 1);
  shared.start();
  const WorkTile tile(g, uniform(shared.ticket));
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) produce(g, shared, tile);
  } else {
    roles::consume();
    consume(g, shared, tile, flags);
  }
}
