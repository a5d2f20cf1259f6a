// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials, for few rows and many
// keys. q, o: (batch, heads, rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse:
// (batch, heads, rows). dim up to DIM. bf16 and fp16.
//
// overlapped merge: as split_keys, but the second kernel is launched programmatically. its blocks may start
// as soon as all blocks of the first kernel have started, and wait for its end before they read. sm_90.
//
// what it gains: the second launch costs no start of a kernel, and no end of one before it.
//
// what limits it: the memory. blocks of the second kernel start where a multiprocessor has room beside the
// first.

#include "decode.cuh"
#include "ptx/grid_dependency.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_overlapped_merge(const IN* q, const IN* k, const IN* v, IN* o, float* lse, float* partial,
                               float* stats, long long q_batch, long long q_head, long long q_row,
                               long long k_batch, long long k_head, long long k_row, long long o_batch,
                               long long o_head, long long o_row, int heads, int group, int rows, int keys,
                               int dim, int causal, float scale, int aligned, int splits, int part) {
  grid_dependency_launch();
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
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_merge_overlapped(IN* o, float* lse, float* partial, float* stats, long long o_batch,
                               long long o_head, long long o_row, int heads, int group, int rows, int dim,
                               float scale, int splits) {
  const Problem p = {0, 0, 0, 0, 0, 0, o_batch, o_head, o_row, heads, group, rows, 0, dim, 0, scale, 0};
  grid_dependency_wait();
  merge_row(p, blockIdx.x, partial, stats, splits, o, lse);
}
