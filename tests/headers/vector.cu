// TYPE and N are given
#include "tile/convert.cuh"
#include "tile/vector.cuh"

// y[t] = x[t], N elements at once. x, y: (threads, N)
extern "C" __global__ void whole(const TYPE* x, TYPE* y) {
  store_vector(y + threadIdx.x * N, load_vector<N>(x + threadIdx.x * N));
}

#if WHOLE_ONCE
// the same, of what is read only once
extern "C" __global__ void whole_once(const TYPE* x, TYPE* y) {
  store_vector(y + threadIdx.x * N, load_vector_once<N>(x + threadIdx.x * N));
}
#endif

// y[t] = x[offset + t N], N elements that begin anywhere; the first t + 1 of them in `kept`, the others zero.
// x ends with the last vector at a multiple of 16 bytes of which any is wanted. y, kept: (threads, N)
#if ANYWHERE
extern "C" __global__ void anywhere(const TYPE* x, TYPE* y, TYPE* kept, int offset) {
  auto v = load_vector_anywhere<N>(x + offset + threadIdx.x * N);
  store_vector(y + threadIdx.x * N, v);
  keep_first(v, threadIdx.x + 1);
  store_vector(kept + threadIdx.x * N, v);
}
#endif

// the first `valid` elements from x + offset on: what load_tail makes of them, N, in `loaded`; what
// store_tail stores of them at y + offset. by one thread
extern "C" __global__ void tail(const TYPE* x, TYPE* loaded, TYPE* y, int valid, int offset) {
  const auto v = load_tail<N>(x + offset, valid, offset == 0);
  store_vector(loaded, v);
  store_tail(y + offset, v, valid, offset == 0);
}
