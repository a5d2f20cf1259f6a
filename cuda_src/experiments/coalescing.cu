// y[i] = factor x[i]. x, y: (n), float.
//
// swept: STRIDE, the distance in elements between neighbouring lanes. a request of a warp is served in
// sectors of 32 bytes, and takes all that its lanes touch: the further apart they lie, the more sectors for
// the same bytes. whatever STRIDE is, every element is read and written once.

extern "C" __global__ void __launch_bounds__(THREADS)
    coalescing(const float* __restrict__ x, float* __restrict__ y, long long n, float factor) {
  const long long step = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long i = step * STRIDE + blockIdx.y;
  if (i < n) y[i] = factor * x[i];
}
