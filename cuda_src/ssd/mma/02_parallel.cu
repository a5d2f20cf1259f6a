// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE. states: (batch, heads, segments, dstate, headdim), decays: (batch, heads, segments), fp32.
//
// parallel: a sequence is cut into segments of some chunks. there are enough segments to give every
// multiprocessor something to do. there are three kernels. the first computes the state that each segment
// alone would leave, and its decay. the second computes the states before all segments, by a scan with as
// many steps as there are segments. the third begins with these states, and computes the outputs of all
// segments as in tensor_core.
//
// what it gains: few heads of long sequences use the whole device.
//
// what limits it: each chunk takes one more product, and b and x are read twice.

#include "../segments.cuh"
#include "chunk.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    ssd_segment_states(SSD_PARAMETERS, int aligned, float* states, float* decays, int segments, int each) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int head = blockIdx.x % heads;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x / heads, aligned);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  float(&sums)[CHUNK] = shared.sums[threadIdx.x / WARP];

  load_chunk<false>(shared.chunk[0], g, columns, own.first, own.end);
  State state;
  float decay = 0.f;
  for (int i = 0; own.first + i * CHUNK < own.end; ++i) {
    Chunk& chunk = shared.chunk[i % 2];
    load_chunk<false>(shared.chunk[i % 2 ^ 1], g, columns, own.first + (i + 1) * CHUNK, own.end);
    cp_async_wait<1>();
    __syncthreads();  // the chunk has come for everyone
    const float last = sum_decays(shared, chunk);
    advance(state, chunk, sums, last);
    decay += last;
    __syncthreads();  // everyone is done with it
  }
  cp_async_wait<0>();
  state.store(states + own.number * dstate * headdim, g, columns);
  if (threadIdx.x == 0 && columns.first == 0) decays[own.number] = decay;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ssd_segment_outputs(SSD_PARAMETERS, int aligned, const float* states, int segments, int each) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int head = blockIdx.x % heads;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x / heads, aligned);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  float(&sums)[CHUNK] = shared.sums[threadIdx.x / WARP];

  load_chunk<true>(shared.chunk[0], g, columns, own.first, own.end);
  State state;
  state.load(states + own.number * dstate * headdim, g, columns);
  for (int i = 0; own.first + i * CHUNK < own.end; ++i) {
    Chunk& chunk = shared.chunk[i % 2];
    const int first = own.first + i * CHUNK;
    load_chunk<true>(shared.chunk[i % 2 ^ 1], g, columns, first + CHUNK, own.end);
    state.share(shared.state);
    cp_async_wait<1>();
    __syncthreads();  // the chunk and the state have come for everyone
    const float last = sum_decays(shared, chunk);
    store_outputs(g, columns, shared, chunk, sums, first, own.end);
    if (first + CHUNK < own.end) advance(state, chunk, sums, last);
    __syncthreads();  // everyone is done with them
  }
  cp_async_wait<0>();
}
