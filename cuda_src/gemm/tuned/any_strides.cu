// C = activation(alpha A B + beta added). A: elements a_m and a_k apart, B: b_k and b_n, C: (M, N), rows ldc
// apart, added: rows ld_added apart, 0 of one row for all. matrices of a batch are steps apart.
//
// any strides: as coalesced, one thread computes one element of C. it takes every problem, from any address
// on.
//
// what limits it: there are two loads for every multiplication.

#include "general.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    gemm_any_strides(const IN* A, const IN* B, OUT* C, int M, int N, int K, long long a_m, long long a_k,
                     long long b_k, long long b_n, int ldc, const OUT* added, int ld_added, float alpha,
                     float beta, long long step_a, long long step_b, long long step_c, long long step_added) {
  const int m = blockIdx.y * BLOCK_Y + threadIdx.y;
  const int n = blockIdx.x * BLOCK_X + threadIdx.x;
  if (m >= M || n >= N) return;

  const int number = blockIdx.z;
  const IN* a = A + number * step_a + m * a_m;
  const IN* b = B + number * step_b + n * b_n;
  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += to_float(a[k * a_k]) * to_float(b[k * b_k]);
  const Epilogue epilogue = Epilogue{added, ld_added, M, N, alpha, beta}.from(0, 0, number, step_added);
  C[number * step_c + static_cast<long long>(m) * ldc + n] = from_float<OUT>(epilogue(sum, m, n));
}
