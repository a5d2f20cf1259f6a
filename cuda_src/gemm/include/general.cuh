// what a product has beyond C = A B or A B^T: with TRANS_A, A is stored as (K, M). BATCHED, there are as many
// products as matrices, which are steps apart. with an EPILOGUE C is activation(alpha A B + beta added).
#pragma once
#include "tile/convert.cuh"

#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef BATCHED
#define BATCHED 0
#endif
#ifndef EPILOGUE
#define EPILOGUE 0
#define ADDED 0
#define ACTIVATION 0
#endif

constexpr int RELU = 1, GELU = 2, SILU = 3;

// elements from one matrix of a batch to the next, 0 of one for all
struct Steps {
  long long a, b, c, added;
};

// `added` has rows `leading` elements apart, or is one row with 0; so many rows and columns of it are there
struct Epilogue {
  const OUT* added;
  int leading, rows, columns;
  float alpha, beta;

  // the same of a part of C that begins at (row, column), of matrix `number` of a batch
  __device__ __forceinline__ Epilogue from(int row, int column, int number = 0, long long step = 0) const {
    const OUT* const first = added + number * step + static_cast<long long>(row) * leading + column;
    return {ADDED ? first : added, leading, rows - row, columns - column, alpha, beta};
  }

  // what is stored of a sum; outside of C any number
  __device__ __forceinline__ float operator()(float sum, int row, int column) const {
#if EPILOGUE
    float x = alpha * sum;
    if (ADDED && row < rows && column < columns)
      x += beta * to_float(added[static_cast<long long>(row) * leading + column]);
    if constexpr (ACTIVATION == RELU) return x < 0.f ? 0.f : x;
    if constexpr (ACTIVATION == GELU) return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
    if constexpr (ACTIVATION == SILU) return x / (1.f + expf(-x));
    return x;
#else
    return sum;
#endif
  }
};
