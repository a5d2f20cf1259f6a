// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim), with any strides; offsets_q, offsets_k: (batch
// + 1) int32, where sequences begin and end; lse: (heads, rows). dim up to DIM. bf16 and fp16.
//
// tensor cores: a block takes WARPS x 16 rows of a sequence, as a block of attention's `tensor_core` does of
// a head. what lies behind the end of the sequence is loaded as zeros, so tiles need not end where sequences
// do. the number of tiles is not known at the launch. so there are blocks for the largest possible number,
// and a block finds its tile in the offsets.
//
// what it gains: the products take a fraction of the time, and all rows of a block share what is loaded.
//
// what limits it: every operand passes through registers, and mma.sync cannot reach the full rate of the
// tensor cores of Hopper.

#include "../../attention/mma/rows.cuh"
#include "../row_tiles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_varlen_tensor_core(const IN* q, const IN* k, const IN* v, const int* offsets_q,
                                 const int* offsets_k, IN* o, float* lse, long long q_row, long long q_head,
                                 long long k_row, long long k_head, long long o_row, long long o_head,
                                 int batch, int heads, int group, int rows, int dim, int causal, float scale,
                                 int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  const RowTiles<BLOCK_M> tiles{offsets_q, batch};
  const RowTile mine = tiles.find(blockIdx.x, heads);
  if (mine.sequence < 0) return;
  const Sequence sequence(offsets_q, offsets_k, mine.sequence);
  if (mine.tile * BLOCK_M >= sequence.rows) return;
  const long long first = sequence.key_offset * k_row + mine.head / group * k_head;
  const Head g{q + sequence.row_offset * q_row + mine.head * q_head,
               k + first,
               v + first,
               q_row,
               k_row,
               sequence.rows,
               sequence.keys,
               dim,
               aligned != 0};
  const auto results = [&]() -> HeadResults {
    return {o + sequence.row_offset * o_row + mine.head * o_head,
            lse + static_cast<long long>(mine.head) * rows + sequence.row_offset, o_row,
            o_row % CHUNK == 0 && o_head % CHUNK == 0};
  };
  attend_rows(*reinterpret_cast<Shared*>(memory), g, mine.tile * BLOCK_M, causal, scale, results);
}
