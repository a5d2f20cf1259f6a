// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and do come as tensor maps, so
// their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. sums: (batch heads, padded,
// DIM) fp32, scratch. bf16 and fp16, sm_90a.
//
// wide: at dim 256, dk and dv of 64 keys fill the registers of two consumers. so each consumer has half of
// their columns. one consumer computes the weights of a tile, the other the gradients of its logits. they
// work at the same time, except that the second needs the weights. both results go through shared memory,
// where they are left operands of the products for dv and dk. a consumer also computes half of the columns of
// dq, 64 at a time. rows of q have two buffers. rows of do have one, because their last product is over
// early.
//
// what it gains: every product is computed once. if each consumer only had half of the columns, both would
// compute all logits.
//
// what limits it: the consumers synchronise twice per tile. a product of 64 keys and 64 rows reads as many
// bytes per cycle as shared memory delivers.

#include "pipeline/roles.cuh"
#include "tiles.cuh"

static_assert(WIDE && BANDS == 1, "half of the columns is for vectors of more than 128 elements, in tiles of 64 rows");

using roles = Roles<CONSUMERS, 24>;
using ring = Pipeline<2, roles::CONSUMER_WARPS>;

struct Shared {
  Keys k, v;
  Rows q[ring::PIPELINE_STAGES], d_o;
  Scores p[2], ds[2];  // of every other tile: consumers may be one apart
  alignas(128) Chunk staged[CONSUMERS];
  alignas(128) Statistic lse2[ring::PIPELINE_STAGES], delta;
  ring rows;
  Barrier keys_full, gradients_full, gradients_empty;

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      rows.init();
      mbarrier_init(keys_full, 1);
      mbarrier_init(gradients_full, 1);
      mbarrier_init(gradients_empty, roles::CONSUMER_WARPS);
      mbarrier_init_fence();
    }
    __syncthreads();
  }

  // a consumer warp: its lanes meet, then it is done with the gradients of o
  __device__ __forceinline__ void release_gradients() {
    __syncwarp();
    if (threadIdx.x % WARP == 0) mbarrier_arrive(gradients_empty);
  }

  // by consumers: when one has written its scores
  static __device__ __forceinline__ void meet() {
    async_fence();
    named_sync<roles::CONSUMER_THREADS>(1 + CONSUMERS);
  }
};
static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the tiles do not fit into shared memory");

// by one thread: loads what the consumers multiply, ahead of time
__device__ __forceinline__ void produce(const Operands& g, Shared& shared, const WorkTile& tile) {
  mbarrier_arrive_expect(shared.keys_full, 2 * sizeof(Keys));
  shared.k.load(g.k, shared.keys_full, tile.batch, tile.key_head, tile.first);
  shared.v.load(g.v, shared.keys_full, tile.batch, tile.key_head, tile.first);
  int head = tile.key_head * g.group;
  for (RowTile at(g, tile); at.any();) {
    const ring::place to = at.buffer();
    shared.rows.acquire(to);
    Barrier& rows = shared.rows.commit(to.stage, sizeof(Rows) + sizeof(Statistic));
    shared.q[to.stage].load(g.q, rows, tile.batch, head, at.row);
    bulk_load(shared.lse2[to.stage], g.lse2 + at.place, sizeof(Statistic), rows);
    mbarrier_wait(shared.gradients_empty, at.number % 2 ^ 1);
    mbarrier_arrive_expect(shared.gradients_full, sizeof(Rows) + sizeof(Statistic));
    shared.d_o.load(g.d_o, shared.gradients_full, tile.batch, head, at.row);
    bulk_load(shared.delta, g.delta + at.place, sizeof(Statistic), shared.gradients_full);
    const int last = at.row;
    at.advance(g, tile);
    head += at.row <= last;
  }
}

// what follows the scores of a tile, by either consumer: dv is in flight
__device__ __forceinline__ void finish(Gradients& gradients, Shared& shared, const RowTile& at) {
  const int consumer = gradients.consumer, buffer = at.buffer().stage, chunk = consumer * CONSUMER_CHUNKS;
  float dq[CONSUMER_CHUNKS][32];
#pragma unroll
  for (int i = 0; i < CONSUMER_CHUNKS; ++i) multiply_scores(dq[i], shared.ds[buffer], chunk + i, shared.k);
  add_scores(gradients.dk, shared.ds[buffer], shared.q[buffer], consumer);
  wgmma_wait<3>();
  shared.release_gradients();
  wgmma_wait<2>();
  gradients.add(shared.staged[consumer], dq[0], at.place, chunk);
  wgmma_wait<1>();
  gradients.add(shared.staged[consumer], dq[1], at.place, chunk + 1);
  wgmma_wait<0>();
  shared.rows.release(buffer);
}

// the consumer that computes weights
__device__ __forceinline__ void weigh(const Operands& g, Shared& shared, const WorkTile& tile) {
  Gradients gradients(g, tile, 0);
  mbarrier_wait(shared.keys_full, 0);
  for (RowTile at(g, tile); at.any(); at.advance(g, tile)) {
    const ring::place from = at.buffer();
    float p[BLOCK_M / 2];
    shared.rows.wait(from);
    multiply_vectors(p, shared.k, 0, shared.q[from.stage]);
    wgmma_wait<0>();
    gradients.weigh(p, shared.lse2[from.stage], at.row);
    Operand of_p;
    to_left_operand<IN>(of_p, p);
    shared.p[from.stage].put(0, of_p);
    shared.meet();
    mbarrier_wait(shared.gradients_full, at.number % 2);
    add_scores(gradients.dv, shared.p[from.stage], shared.d_o, 0);
    shared.meet();
    finish(gradients, shared, at);
  }
  gradients.store();
}

// the consumer that computes gradients of the logits
__device__ __forceinline__ void differentiate(const Operands& g, Shared& shared, const WorkTile& tile) {
  Gradients gradients(g, tile, 1);
  mbarrier_wait(shared.keys_full, 0);
  for (RowTile at(g, tile); at.any(); at.advance(g, tile)) {
    const ring::place from = at.buffer();
    float ds[BLOCK_M / 2], p[BLOCK_M / 2];
    mbarrier_wait(shared.gradients_full, at.number % 2);
    multiply_vectors(ds, shared.v, 0, shared.d_o);
    shared.meet();
    add_scores(gradients.dv, shared.p[from.stage], shared.d_o, 1);
    Operand of_p, of_ds;
    shared.p[from.stage].get(0, of_p);
    from_left_operand<IN>(p, of_p);
    wgmma_wait<1>();
    gradients.differentiate(ds, p, shared.delta);
    to_left_operand<IN>(of_ds, ds);
    shared.ds[from.stage].put(0, of_ds);
    shared.meet();
    shared.rows.wait(from);
    finish(gradients, shared, at);
  }
  gradients.store();
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_backward_wide(BACKWARD_MAPS, BACKWARD_PARAMETERS) {
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
    if (uniform(roles::consumer()) == 0)
      weigh(g, shared, tile);
    else
      differentiate(g, shared, tile);
  }
}
