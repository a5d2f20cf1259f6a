// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k and v come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// TMA and wgmma: a block computes a tile of rows of a sequence as in attention's `overlap`. tensor maps cover
// all sequences, so the last tile of a sequence also contains rows of the next one. logits of those keys are
// masked, their values are cleared in shared memory, and results of those rows are not stored.
//
// what it gains: operands occupy no registers, and loads occupy no threads.
//
// what limits it: blocks take sequences in the order of the input. if the last sequence is long, few
// multiprocessors work at the end.

#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_tma(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                         const __grid_constant__ TensorMap v, const int* offsets_q, const int* offsets_k,
                         IN* o, float* lse, long long o_row, long long o_head, int batch, int heads,
                         int group, int rows, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  const RowTile mine = RowTiles<BLOCK_M>{offsets_q, batch}.find(blockIdx.x, heads);
  if (mine.sequence < 0) return;
  const PackedTile tile(Sequence(offsets_q, offsets_k, mine.sequence), mine.head, mine.tile);
  if (tile.first < tile.rows) attend(g, *reinterpret_cast<Shared*>(memory), tile);
}
