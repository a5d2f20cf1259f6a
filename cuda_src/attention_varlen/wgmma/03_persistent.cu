// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k and v come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// persistent: as many blocks as fit on the device stay there and take tiles of the ranked sequences, to and
// fro, so that all get about as many keys. while the consumers end a tile, the producer already loads queries
// and keys of the next.
//
// what it gains: no tile but the first waits for its first keys, and no blocks start where there is no tile:
// with short sequences that was most of the time.
//
// what limits it: who gets which tile is settled before: a block that is late stays so.

#include "ranked.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank(const int* offsets_q, const int* offsets_k, int* order, int* starts, int batch) {
  rank_sequences(offsets_q, offsets_k, order, starts, batch);
}

// the block's work tile 0, 1, ...
__device__ __forceinline__ int number_of(int mine) {
  return mine * gridDim.x + (mine % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_persistent(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                const __grid_constant__ TensorMap v, const int* offsets_q,
                                const int* offsets_k, const int* order, const int* starts, IN* o, float* lse,
                                long long o_row, long long o_head, int batch, int heads, int group, int rows,
                                int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  const Ranked ranked{offsets_q, offsets_k, order, starts, batch};
  const int all = ranked.all(heads);
  shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x >= WARP) return;
    Producer producer{g, shared};
    for (int mine = 0; number_of(mine) < all; ++mine) {
      const PackedTile tile = ranked.tile(g, number_of(mine));
      if (threadIdx.x == 0) producer.load(tile);
      __syncwarp();
    }
  } else {
    roles::consume();
    Buffer keys{shared.keys}, values{shared.values};
    int parity = 0;
    Order::start(roles::consumer());
    for (int mine = 0; number_of(mine) < all; ++mine)
      consume(g, shared, ranked.tile(g, number_of(mine)), keys, values, parity);
    Order::finish(roles::consumer());
  }
}
