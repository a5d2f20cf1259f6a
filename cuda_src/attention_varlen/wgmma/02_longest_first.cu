// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k and v come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// longest first: a small first kernel ranks sequences by their number of keys and adds up their tiles. blocks
// start in the order of the ranks. so the tiles that take longest begin first, and short ones fill the gaps
// at the end.
//
// what it gains: all multiprocessors end at about the same time, whatever the order of the sequences.
//
// what limits it: one more launch, which takes some microseconds. there is a block for every tile that is
// possible, not only for those that exist.

#include "ranked.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank(const int* offsets_q, const int* offsets_k, int* order, int* starts, int batch) {
  rank_sequences(offsets_q, offsets_k, order, starts, batch);
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_longest_first(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                   const __grid_constant__ TensorMap v, const int* offsets_q,
                                   const int* offsets_k, const int* order, const int* starts, IN* o,
                                   float* lse, long long o_row, long long o_head, int batch, int heads,
                                   int group, int rows, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  const Ranked ranked{offsets_q, offsets_k, order, starts, batch};
  const int number = blockIdx.x;
  if (number < ranked.all(heads)) attend(g, *reinterpret_cast<Shared*>(memory), ranked.tile(g, number));
}
