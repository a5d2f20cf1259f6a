// y[r, i] = factor x[r, i], as a sum of `terms` (which is factor) equal ones. x, y: (m, n), float.
//
// swept: m or n. a row is cut into tiles of TILE elements, and a block works on one, one element a thread.
// the last tile of a row takes as long as the others, however little of it there is; so does the last wave of
// blocks, however few there are. `one` is 1, which the compiler does not know.

extern "C" __global__ void __launch_bounds__(TILE)
    quantisation(const float* __restrict__ x, float* __restrict__ y, int n, int terms, float one) {
  const int i = blockIdx.x * TILE + threadIdx.x;
  const long long at = static_cast<long long>(blockIdx.y) * n + i;
  const float term = i < n ? x[at] : 0.f;
  float sum = 0.f;
#pragma unroll 8
  for (int k = 0; k < terms; ++k) sum = fmaf(term, one, sum);
  if (i < n) y[at] = sum;
}
