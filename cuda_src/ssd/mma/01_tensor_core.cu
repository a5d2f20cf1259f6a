// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE.
//
// tensor cores: a block takes 64 columns of a head, one chunk of 64 positions after the other. its state
// stays in registers, in fp32. mma.sync multiplies. the weights within a chunk stay in registers: the
// accumulators of c b^T are multiplied by the decays and rounded, and are the left operand of the product
// with x. b^T is multiplied by its decays in registers, too. once a chunk the state is rounded and goes
// through shared memory, because all warps multiply with all of it. cp.async loads the next chunk.
//
// what it gains: the products take a fraction of the time, and only x, b, c and y are moved.
//
// what limits it: each chunk waits for the one before it. with few heads most multiprocessors have nothing to
// do.

#include "chunk.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) ssd_tensor_core(SSD_PARAMETERS, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, blockIdx.x % heads);
  const Columns columns(g, blockIdx.x / heads, aligned);
  float(&sums)[CHUNK] = shared.sums[threadIdx.x / WARP];

  load_chunk<true>(shared.chunk[0], g, columns, 0, length);
  State state;
  state.load(g.h0, g, columns);
  for (int first = 0; first < length; first += CHUNK) {
    Chunk& chunk = shared.chunk[first / CHUNK % 2];
    load_chunk<true>(shared.chunk[first / CHUNK % 2 ^ 1], g, columns, first + CHUNK, length);
    state.share(shared.state);
    cp_async_wait<1>();
    __syncthreads();  // the chunk and the state have come for everyone
    const float last = sum_decays(shared, chunk);
    store_outputs(g, columns, shared, chunk, sums, first, length);
    advance(state, chunk, sums, last);
    __syncthreads();  // everyone is done with them
  }
  cp_async_wait<0>();
  state.store(g.h, g, columns);
}
