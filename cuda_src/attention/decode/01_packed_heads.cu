// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials, for few rows and many
// keys. q, o: (batch, heads, rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse:
// (batch, heads, rows). dim up to DIM. bf16 and fp16.
//
// packed heads: the rows of all heads that share keys are packed into one tile of 16 rows. so the tensor
// cores have more to do, and keys are read once, not once for each head. a block takes such a tile and all
// keys. each of its warps attends to every WARPS-th tile of KEYS keys. it loads these tiles by cp.async,
// STAGES - 1 tiles ahead. warps wait for each other only at the end, when their results are merged in shared
// memory.
//
// what it gains: keys and values are read once, and tens of kilobytes of them are in flight all the time.
//
// what limits it: the number of blocks. if there are fewer pairs of a batch and a head of keys than blocks
// that the GPU can hold, most of the GPU is idle.

#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_packed_heads(const IN* q, const IN* k, const IN* v, IN* o, float* lse, long long q_batch,
                           long long q_head, long long q_row, long long k_batch, long long k_head,
                           long long k_row, long long o_batch, long long o_head, long long o_row, int heads,
                           int group, int rows, int keys, int dim, int causal, float scale, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Problem p = {q_batch, q_head, q_row, k_batch, k_head, k_row,  o_batch, o_head, o_row,
                     heads,   group,  rows,  keys,    dim,    causal, scale,   aligned};
  const RowTile tile(p, blockIdx.x);
  attend(shared, p, tile, q, k, v, 0, p.keys);
  __syncthreads();
  store_result(shared.parts(), WARPS, p, tile, o, lse);
}
