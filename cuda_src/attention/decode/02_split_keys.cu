// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials, for few rows and many
// keys. q, o: (batch, heads, rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse:
// (batch, heads, rows). dim up to DIM. bf16 and fp16.
//
// split keys: as many blocks share a tile of rows as fill the GPU, each with `part` of its keys.
// what they found goes to memory in fp32, and a second kernel merges it, a block for every row. with one
// block a tile this is packed_heads, and there is nothing to merge.
//
// what it gains: all multiprocessors are at work, however few heads there are.
//
// what limits it: the memory; with few keys the second launch, some 3 us.

#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_split_keys(const IN* q, const IN* k, const IN* v, IN* o, float* lse, float* partial,
                         float* stats, long long q_batch, long long q_head, long long q_row,
                         long long k_batch, long long k_head, long long k_row, long long o_batch,
                         long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                         int causal, float scale, int aligned, int splits, int part) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Problem p = {q_batch, q_head, q_row, k_batch, k_head, k_row,  o_batch, o_head, o_row,
                     heads,   group,  rows,  keys,    dim,    causal, scale,   aligned};
  const SharedTile mine(p, blockIdx.x, splits);
  const RowTile tile(p, mine.tile);
  attend(shared, p, tile, q, k, v, mine.split * part, (mine.split + 1) * part);
  __syncthreads();
  if (splits == 1) return store_result(shared.parts(), WARPS, p, tile, o, lse);
  store_part(parts_of_tile(partial, stats, p, mine.tile, splits), mine.split, shared.parts(), p, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_merge_splits(IN* o, float* lse, float* partial, float* stats, long long o_batch,
                           long long o_head, long long o_row, int heads, int group, int rows, int dim,
                           float scale, int splits) {
  __shared__ __align__(16) float o_shared[WARPS][DIM];
  __shared__ float2 stats_shared[WARPS];
  Problem p = {};
  p.o_batch = o_batch, p.o_head = o_head, p.o_row = o_row;
  p.heads = heads, p.group = group, p.rows = rows, p.dim = dim, p.scale = scale;
  const int tile_rows = min(BLOCK_ROWS, p.packed()), number = blockIdx.x / tile_rows,
            row = blockIdx.x % tile_rows;
  const RowTile tile(p, number);
  if (row >= tile.count) return;
  Parts parts = parts_of_tile(partial, stats, p, number, splits);
  parts.o += row * parts.o_row, parts.stats += row;
  merge_parts({o_shared[0], stats_shared, DIM, 0, 1}, parts, splits, p, tile.only(row), o, lse);
}
