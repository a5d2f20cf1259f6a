// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE. x, b and c come as tensor maps, too, so their heads and places are multiples of 16 bytes apart.
// states: (batch, heads, segments, dstate, headdim), decays: (batch, heads, segments), fp32; states are h0
// where there is one segment. sm_90a.
//
// TMA and wgmma: a block is a warpgroup. it takes 64 columns of a head, one chunk of 64 positions after the
// other. one thread asks TMA for the next chunk. wgmma reads c, b, x and the state from shared memory. the
// weights are computed from the product of c and b, while c is multiplied by the state. y is stored while the
// next state is computed. with few heads a sequence has several segments, as in parallel. otherwise it has
// one segment, and there is one kernel.
//
// what it gains: the right operands no longer pass through registers. no thread computes the addresses of
// what is loaded.
//
// what limits it: each chunk waits for the one before it, so a block waits for every product. other blocks of
// the multiprocessor have to fill that time.

#include "../segments.cuh"
#include "chunk.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    ssd_tma_states(SSD_MAPS, SSD_PARAMETERS, float* states, float* decays, int segments, int each) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int head = blockIdx.x % heads;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x / heads, 0);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  const Maps maps{x_map, b_map, c_map, static_cast<int>(blockIdx.y), head, head / group, columns.first};
  const int first = own.first, end = own.end;

  shared.start();
  load_chunk<StateChunk>(shared, maps, 0, first, end);
  Summed summed;
  summed.load(g, 0, first, end);
  summed.store(shared, 0);
  summed.load(g, 1, first, end);
  State state;
  float decay = 0.f;
  for (int i = 0; first + i * CHUNK < end; ++i) {
    Chunk& chunk = shared.chunk[i % BUFFERS];
    __syncthreads();  // the sums are there for everyone, and everyone is done with the chunk before
    load_chunk<StateChunk>(shared, maps, i + 1, first, end);
    summed.store(shared, i + 1);
    summed.load(g, i + 2, first, end);
    float(&sums)[CHUNK] = shared.sums[i % BUFFERS];
    const float last = sums[CHUNK - 1], kept = ex2(last);
    mbarrier_wait(shared.full[i % BUFFERS], i / BUFFERS % 2);
    Decayed decayed;
    decayed.make(chunk, sums, last);
    decay_state(state, kept);
    advance(state, decayed, chunk);
    wgmma_wait<0>();
    decay += last;
  }
  state.store(states + own.number * dstate * headdim, g, columns);
  if (threadIdx.x == 0 && columns.first == 0) decays[own.number] = decay;
}

extern "C" __global__ void __launch_bounds__(THREADS, DSTATE > 64 ? 2 : RESIDENT)
    ssd_tma_outputs(SSD_MAPS, SSD_PARAMETERS, const float* states, int segments, int each) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int head = blockIdx.x % heads;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x / heads, 0);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  const Maps maps{x_map, b_map, c_map, static_cast<int>(blockIdx.y), head, head / group, columns.first};
  const int first = own.first, end = own.end;

  shared.start();
  load_chunk<Chunk>(shared, maps, 0, first, end);
  Summed summed;
  summed.load(g, 0, first, end);
  summed.store(shared, 0);
  summed.load(g, 1, first, end);
  State state;
  state.load(states + own.number * dstate * headdim, g, columns);
  for (int i = 0; first + i * CHUNK < end; ++i) {
    Chunk& chunk = shared.chunk[i % BUFFERS];
    StateTile& before = shared.state[i % BUFFERS];
    state.share(before);
    async_fence();
    __syncthreads();  // state and sums are there for everyone, and everyone is done with the chunk before
    load_chunk<Chunk>(shared, maps, i + 1, first, end);
    summed.store(shared, i + 1);
    summed.load(g, i + 2, first, end);
    float(&sums)[CHUNK] = shared.sums[i % BUFFERS];
    const float last = sums[CHUNK - 1], kept = ex2(last);
    mbarrier_wait(shared.full[i % BUFFERS], i / BUFFERS % 2);

    float y[COLUMNS / 2] = {}, weight[CHUNK / 2] = {};
    decay_state(state, kept);
    multiply_places(weight, chunk);
    multiply_state(y, chunk, before);
    Decayed decayed;
    decayed.make(chunk, sums, last);
    wgmma_wait<1>();
    weigh(weight, sums, state.row);
    u32 weights[CHUNK / WGMMA_K][4];
    to_left_operand<IN>(weights, weight);
    wgmma_wait<0>();
    decay_rows(y, sums, state.row);
    for (float& element : y) settle(element);
    add_places(y, weights, chunk);
    advance(state, decayed, chunk);
    wgmma_wait<STATE_TILES>();
    store_places(g, columns, y, first + i * CHUNK, state.row, end);
    wgmma_wait<0>();
  }
  if (segments == 1) state.store(g.h, g, columns);
}
