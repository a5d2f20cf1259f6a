// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k and v come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// persistent: as many blocks as fit on the device stay there. the tiles are ranked, and the producer of a
// block draws the next one from a counter. it does so as soon as all loads of the last tile are in flight,
// and posts the tile to the consumers through shared memory.
//
// what it gains: a block that is done early takes more tiles. only the first tile waits for its first keys
// and for the search in the table. no block starts without a tile.
//
// what limits it: the exponentials besides the products, as in attention. also tiles with few rows: a
// sequence that decodes fills only one row of 128.

#include "drawn.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank(const int* offsets_q, const int* offsets_k, int* order, int* starts, int* ticket,
                          int batch) {
  rank_sequences(offsets_q, offsets_k, order, starts, batch);
  if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;
}

__device__ __forceinline__ void consume(const Operands& g, Memory& memory) {
  Buffer keys{memory.shared.keys}, values{memory.shared.values};
  QueryPlace of_queries;
  Order::start(roles::consumer());
  for (Memory::place from; memory.take(from); memory.leave(from))
    consume(g, memory.shared, memory.tile[from.stage], keys, values, of_queries);
  Order::finish(roles::consumer());
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_persistent(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                const __grid_constant__ TensorMap v, const int* offsets_q,
                                const int* offsets_k, const int* order, const int* starts, int* ticket, IN* o,
                                float* lse, long long o_row, long long o_head, int batch, int heads,
                                int group, int rows, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  memory.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x < WARP) produce(g, memory, Ranked{offsets_q, offsets_k, order, starts, batch}, ticket);
  } else {
    roles::consume();
    consume(g, memory);
  }
}
