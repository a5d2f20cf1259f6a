// copies of rows to rows that are multiples of 16 bytes apart, as tensor maps need them
#pragma once

// by warps: each takes EACH x 32 neighbours of a row, one of `rows` of so many columns, `ld` elements apart,
// and puts them where rows are `packed` elements apart
template <int EACH, int THREADS, class Element>
__device__ __forceinline__ void realign_rows(const Element* from, Element* to, int rows, int columns, int ld,
                                             int packed) {
  const int parts = (columns + EACH * 32 - 1) / (EACH * 32);
  const long long number = static_cast<long long>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  const long long row = number / parts;
  const int first = static_cast<int>(number % parts) * EACH * 32 + threadIdx.x % 32;
  if (row >= rows) return;
  Element x[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    if (first + i * 32 < columns) x[i] = from[row * ld + first + i * 32];
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    if (first + i * 32 < columns) to[row * packed + first + i * 32] = x[i];
}

// the same of rows that become columns, by blocks of 64 x 64
template <int THREADS, class Element>
__device__ __forceinline__ void turn_rows(const Element* from, Element* to, int rows, int columns, int ld,
                                          int packed) {
  constexpr int SIDE = 64;
  __shared__ Element tile[SIDE][SIDE + 1];
  const int across = (columns + SIDE - 1) / SIDE, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const int row = blockIdx.x / across * SIDE, column = blockIdx.x % across * SIDE;
#pragma unroll 4
  for (int i = y; i < SIDE; i += THREADS / SIDE)
    if (row + i < rows && column + x < columns)
      tile[i][x] = from[static_cast<long long>(row + i) * ld + column + x];
  __syncthreads();
#pragma unroll 4
  for (int i = y; i < SIDE; i += THREADS / SIDE)
    if (column + i < columns && row + x < rows)
      to[static_cast<long long>(column + i) * packed + row + x] = tile[x][i];
}
