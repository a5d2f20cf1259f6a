// KEYS, a multiple of 64, is given. o = (q k^T) v with no softmax, so that all of it is exact: what attention is made
// of. q, o: (HEADS, 128, 64), k, v: (HEADS, KEYS, 64), of bf16, o float; a block has head blockIdx.x.
//
// composed of pieces: q comes once a work tile, k and v have circular buffers of their own, and the consumers
// alternate within an iteration: one multiplies while the other rounds its scores.
#include <cuda_bf16.h>

#include "pipeline/circular_buffer.cuh"
#include "pipeline/ordered.cuh"
#include "pipeline/roles.cuh"
#include "ptx/tma.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/k_tile.cuh"

using Element = __nv_bfloat16;
using roles = Roles<2>;
constexpr int WIDTH = 64, STEP = 64, ROWS = roles::CONSUMERS * WGMMA_M, TILES = KEYS / STEP;
using Ring = Pipeline<2, roles::CONSUMER_WARPS>;

struct Shared {
  alignas(1024) Element q[ROWS * WIDTH], k[Ring::PIPELINE_STAGES][STEP * WIDTH], v[Ring::PIPELINE_STAGES][STEP * WIDTH];
  Ring keys, values;
  Barrier q_full;
};

struct Maps {
  const TensorMap &q, &k, &v;
};

__device__ __forceinline__ void produce(const Maps& maps, Shared& shared) {
  Ring::place to;
  const int head = blockIdx.x;
  mbarrier_arrive_expect(shared.q_full, sizeof(shared.q));
  tma_load(shared.q, maps.q, shared.q_full, head * ROWS, 0);
  for (int i = 0; i < TILES; ++i, to.advance()) {
    const int row = head * KEYS + i * STEP;
    shared.keys.acquire(to);
    tma_load(shared.k[to.stage], maps.k, shared.keys.commit(to.stage, sizeof(shared.k[0])), row, 0);
    shared.values.acquire(to);
    tma_load(shared.v[to.stage], maps.v, shared.values.commit(to.stage, sizeof(shared.v[0])), row, 0);
  }
}

__device__ __forceinline__ void consume(Shared& shared, float* o) {
  const int mine = uniform(roles::consumer());
  Consumed<Ring> keys{shared.keys}, values{shared.values};
  float sum[WIDTH / 2];
  PingPong<>::start(mine);
  mbarrier_wait(shared.q_full, 0);
  for (int i = 0; i < TILES; ++i, keys.advance(), values.advance()) {
    float scores[STEP / 2];
    PingPong<>::wait(mine);
    keys.wait();
    KTile<Element>::multiply<true>(scores, &shared.q[mine * WGMMA_M * WIDTH], shared.k[keys.stage()], false);
    wgmma_wait<0>();
    keys.release();
    if (mine == 0 || i + 1 < TILES) PingPong<>::pass(mine);
    u32 weights[STEP / WGMMA_K][4];
    to_left_operand<Element>(weights, scores);
    values.wait();
    const u64 columns = swizzled_operand(shared_address(shared.v[values.stage()]), 0, ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEP / WGMMA_K; ++k)
      wgmma_bf16<1>(sum, weights[k], operand_at(columns, k * WGMMA_K * ROW_BYTES), i + k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    values.release();
  }
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i) {
    const FragmentPlace at = fragment_place(i);
    o[(blockIdx.x * ROWS + mine * WGMMA_M + at.row) * WIDTH + at.column] = sum[i];
  }
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
              const __grid_constant__ TensorMap v, float* o) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    shared.keys.init();
    shared.values.init();
    mbarrier_init(shared.q_full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) produce({q, k, v}, shared);
  } else {
    roles::consume();
    consume(shared, o);
  }
}
