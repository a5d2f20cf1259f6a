// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials, for few rows and many
// keys. q, o: (batch, heads, rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse:
// (batch, heads, rows). dim up to DIM. bf16 and fp16.
//
// last block: blocks that share a tile of rows share a counter. a block counts itself when its result is in
// memory. the last one to do so merges the results, always in the same order. `counters` has one for each
// tile, and all are zero at the beginning and at the end.
//
// what it gains: there is no second launch, and tiles are merged while others are still computed.
//
// what limits it: the memory.

#include "decode.cuh"
#include "ptx/flag.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_last_block(const IN* q, const IN* k, const IN* v, IN* o, float* lse, float* partial,
                         float* stats, long long q_batch, long long q_head, long long q_row,
                         long long k_batch, long long k_head, long long k_row, long long o_batch,
                         long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                         int causal, float scale, int aligned, int splits, int part, unsigned* counters) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Problem p = {q_batch, q_head, q_row, k_batch, k_head, k_row,  o_batch, o_head, o_row,
                     heads,   group,  rows,  keys,    dim,    causal, scale,   aligned};
  const SharedTile mine(p, blockIdx.x, splits);
  const RowTile tile(p, mine.tile);
  attend(shared, p, tile, q, k, v, mine.split * part, (mine.split + 1) * part);
  __syncthreads();
  if (splits == 1) return store_result(shared.parts(), WARPS, p, tile, o, lse);
  const Parts parts = parts_of_tile(partial, stats, p, mine.tile, splits);
  store_part(parts, mine.split, shared.parts(), p, tile);
  __syncthreads();  // all threads have written before one counts for them
  __shared__ bool last;
  if (threadIdx.x == 0) last = count_to_last(counters + mine.tile, splits);
  __syncthreads();
  if (last) merge_parts(shared.parts(), parts, splits, p, tile, o, lse);
}
