// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see scan.cuh.
//
// chunked: a block takes CHUNK positions at a time. y is a sum of two terms. the first comes from the state
// before the chunk: (c h) of every row, times the decays up to that row. the second comes from the chunk
// itself. it is like causal attention with decays as weights: ((c b^T) o L) x. the state after the chunk is
// computed by a product, too. a block takes 64 columns of a head, one chunk after the other.
//
// what it gains: the positions of a chunk no longer wait for each other, and all threads of a block work on
// them.
//
// what limits it: the products run on CUDA cores, and each instruction loads an operand from shared memory.

#include "../scan.cuh"

constexpr int COLUMNS = 64, THREADS = 256;

static_assert(CHUNK % 16 == 0 && CHUNK <= 64, "rows of a chunk are shared by 4 groups of threads");

struct Shared {
  float c[CHUNK][DSTATE + 1], b[CHUNK][DSTATE + 1];  // rows begin in different banks
  float x[CHUNK][COLUMNS], weights[CHUNK][CHUNK + 1], state[DSTATE][COLUMNS];
  float sums[CHUNK];  // of the logarithms of decays, from the beginning of the chunk
};

extern "C" __global__ void __launch_bounds__(THREADS) ssd_chunked(SSD_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, blockIdx.x % heads);
  const int first_column = blockIdx.x / heads * COLUMNS;
  const int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS;
  const bool inside = first_column + column < headdim;

  for (int n = part; n < DSTATE; n += THREADS / COLUMNS)
    shared.state[n][column] = inside ? g.h0[n * headdim + first_column + column] : 0.f;
  for (int first = 0; first < length; first += CHUNK) {
    const int rows = min(CHUNK, length - first);
    for (int i = threadIdx.x; i < CHUNK * DSTATE; i += THREADS) {
      const int row = i / DSTATE, n = i % DSTATE;
      const long long at = (first + row) * bc_place + n;
      shared.c[row][n] = row < rows ? to_float(g.c[at]) : 0.f;
      shared.b[row][n] = row < rows ? to_float(g.b[at]) : 0.f;
    }
    for (int row = part; row < CHUNK; row += THREADS / COLUMNS)
      shared.x[row][column] =
          row < rows && inside ? to_float(g.x[(first + row) * x_place + first_column + column]) : 0.f;
    if (threadIdx.x == 0) {
      float sum = 0.f;
      for (int row = 0; row < CHUNK; ++row) {
        if (row < rows) sum += log2_decay(g.log_a[static_cast<long long>(first + row) * heads]);
        shared.sums[row] = sum;
      }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < CHUNK * CHUNK; i += THREADS) {
      const int row = i / CHUNK, other = i % CHUNK;
      float dot = 0.f;
      if (other <= row) {
        for (int n = 0; n < DSTATE; ++n) dot += shared.c[row][n] * shared.b[other][n];
        dot *= exp2f(shared.sums[row] - shared.sums[other]);
      }
      shared.weights[row][other] = dot;
    }
    __syncthreads();

    for (int row = part; row < rows; row += THREADS / COLUMNS) {
      float sum = 0.f;
      for (int n = 0; n < DSTATE; ++n) sum += shared.c[row][n] * shared.state[n][column];
      sum *= exp2f(shared.sums[row]);
      for (int other = 0; other <= row; ++other) sum += shared.weights[row][other] * shared.x[other][column];
      if (inside) g.y[(first + row) * g.y_place() + first_column + column] = from_float<IN>(sum);
    }
    __syncthreads();

    const float last = shared.sums[CHUNK - 1];
    for (int n = part; n < DSTATE; n += THREADS / COLUMNS) {
      float sum = shared.state[n][column] * exp2f(last);
      for (int row = 0; row < rows; ++row)
        sum += shared.b[row][n] * exp2f(last - shared.sums[row]) * shared.x[row][column];
      shared.state[n][column] = sum;
    }
    __syncthreads();
  }
  for (int n = part; n < DSTATE; n += THREADS / COLUMNS)
    if (inside) g.h[n * headdim + first_column + column] = shared.state[n][column];
}
