// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 6, ldmatrix: a tile goes to shared memory in vectors of 16 bytes. of four matrices of eight vectors,
// ldmatrix.x4 hands each lane 4 bytes a matrix: two elements of a column, where it transposes matrices of
// 16-bit elements, or one element of 32 bits. each vector has an address of its own. so matrices are chosen
// whose rows are apart, and what a lane receives is a vector of y. in shared memory, the vectors of a row are
// permuted, so that the eight of a matrix lie in different banks.
//
// what it gains: three instructions move a vector of y: a copy, an ldmatrix and a store. no element is moved
// on its own.
//
// what limits it: device memory. rows of x and y have to be whole vectors.
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"
#include "tile/warp.cuh"

constexpr int WIDTH = VECTOR_BYTES / sizeof(IN), CHUNKS = TILE_C / WIDTH, WARPS = THREADS / WARP;
constexpr int PAIR = sizeof(u32) / sizeof(IN);  // elements of a column in a register
// an ldmatrix takes vectors of ROWS rows, and makes DOWN x ACROSS vectors of each column of WIDTH
constexpr int ROWS = TILE_R < WARP ? TILE_R : WARP, DOWN = ROWS / WIDTH, ACROSS = WARP / ROWS;
static_assert(TILE_R % ROWS == 0 && WARP % ROWS == 0 && ROWS % WIDTH == 0, "a tile has whole matrices");
static_assert(CHUNKS % 8 == 0, "vectors of a row are permuted among eight");
static_assert(THREADS % CHUNKS == 0 && TILE_R % (THREADS / CHUNKS) == 0,
              "each thread copies as many vectors");
static_assert(CHUNKS % (WARPS * ACROSS) == 0, "each warp stores as many columns");

// where a vector of the tile is
__device__ __forceinline__ IN* place(IN* tile, int row, int chunk) {
  const int odd = PAIR == 2 ? row : row / 4;
  return tile + (row * CHUNKS + (chunk ^ (odd % 2 * 4 + row / 8 % 2 * 2 + row / 16 % 2))) * WIDTH;
}

// copies a tile; what lies outside of the matrix becomes zero
__device__ __forceinline__ void load(IN* tile, const IN* x, long long ldx, int rows, int columns) {
  constexpr int STEP = THREADS / CHUNKS;
  const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
  const IN* from = x + row * ldx + chunk * WIDTH;
  const int left = chunk * WIDTH < columns ? rows - row : 0;
#pragma unroll
  for (int r = 0; r < TILE_R; r += STEP) {
    cp_async_past_l1<VECTOR_BYTES>(place(tile, row + r, chunk), from, r < left ? VECTOR_BYTES : 0);
    from += STEP * ldx;
  }
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_ldmatrix(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                       long long ldy, int tiles) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  IN* const tile = reinterpret_cast<IN*>(memory);
  const int r0 = blockIdx.x / tiles * TILE_R, c0 = blockIdx.x % tiles * TILE_C;
  load(tile, x + r0 * ldx + c0, ldx, rows - r0, columns - c0);

  // the lane gives the address of row lane % 8 of matrix lane / 8. lanes of vector `given` get 4 bytes of it
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, given = lane % 8 / PAIR;
  const int row = given % DOWN * WIDTH + lane / 8 * PAIR + lane % PAIR;
  // the lane gets vector `got`, of column `c` of WIDTH
  const int got = PAIR == 2 ? lane % 4 : lane / 4, c = PAIR == 2 ? lane / 4 : lane % 4;
  const int r = r0 + got % DOWN * WIDTH;
#pragma unroll
  for (int first = 0; first < CHUNKS; first += WARPS * ACROSS) {
    const int chunk = first + warp * ACROSS;
    const int column = c0 + (chunk + got / DOWN) * WIDTH + c, left = column < columns ? rows - r : 0;
    IN* const to = y + column * ldy + r;
#pragma unroll
    for (int step = 0; step < TILE_R; step += ROWS) {
      u32 v[4];
      const IN* const from = place(tile, row + step, chunk + given / DOWN);
      if constexpr (PAIR == 2)
        ldmatrix_x4_trans(v, from);
      else
        ldmatrix_x4(v, from);
      if (step < left) *reinterpret_cast<uint4*>(to + step) = {v[0], v[1], v[2], v[3]};
    }
  }
}
