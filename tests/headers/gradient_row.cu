#include "tile/gradient_row.cuh"

// x, dy, w: (4), y: (3, 4), sums: (3). products and gradient of softmax, sums and gradient of a norm
extern "C" __global__ void gradients(const float* x, const float* dy, const float* w, float* y, float* sums,
                                     float mean, float scale, float of_g, float of_products) {
  const Vector<float, 4> a[1] = {load_vector<4>(x)}, b[1] = {load_vector<4>(dy)};
  const auto c = load_vector<4>(w);
  sums[0] = sum_products(a, b);
  store_vector(y, softmax_gradient<float>(a[0], b[0], of_g));
  TwoSums::Value two = TwoSums::identity();
  add_gradient_sums(two, a[0], b[0], c, mean, scale);
  two = TwoSums::combine(two, {1.f, 2.f});
  sums[1] = two.first, sums[2] = two.second;
  store_vector(y + 4, norm_gradient<float>(a[0], b[0], c, {mean, scale, of_g, of_products}));
}

// the state of a row of 8 in two parts of 4, each of a thread: part by part, both combined, and both as
// combine_parts finds them with OF_A_ROW threads, at most a warp. x, dy, w: (8), y: (4, 5)
extern "C" __global__ void states(const float* x, const float* dy, const float* w, float* y) {
  __shared__ GradientMoments::Value parts[2];
  __shared__ GradientScratch<32> scratch;
  if (threadIdx.x < 2) {
    const int first = threadIdx.x * 4;
    GradientRow<1, 4, true, float> held;
    held.load(RowWalk<4, true>(x, 8), x, dy, threadIdx.x, 2);
    const Vector<float, 4> weights[1] = {load_vector<4>(w + first)};
    parts[threadIdx.x] = gradient_moments(held, weights, first, 0, 8);
  }
  __syncthreads();
  const auto store = [&](int row, GradientMoments::Value s) {
    y[row * 5] = s.x.count, y[row * 5 + 1] = s.x.mean, y[row * 5 + 2] = s.x.squares;
    y[row * 5 + 3] = s.of_g, y[row * 5 + 4] = s.of_products;
  };
  if (threadIdx.x == 0) {
    store(0, parts[0]);
    store(1, parts[1]);
    store(2, GradientMoments::combine(GradientMoments::combine(parts[0], parts[1]),
                                      GradientMoments::identity()));
  }
  combine_parts<GradientMoments, (OF_A_ROW < 32 ? OF_A_ROW : 32), 32>(
      parts, 1, 2, scratch, [&](int, GradientMoments::Value s) { store(3, s); });
}

// x: (128, 2), y: (OF_A_ROW, 2). groups of OF_A_ROW of 128 threads add up two columns each
extern "C" __global__ void added(const float* x, float* y) {
  __shared__ GroupScratch<Sum, OF_A_ROW, 128, 2> scratch;
  float sums[2] = {x[threadIdx.x * 2], x[threadIdx.x * 2 + 1]};
  add_up_groups<Sum, OF_A_ROW, 128>(sums, scratch);
  if (threadIdx.x < OF_A_ROW) y[threadIdx.x * 2] = sums[0], y[threadIdx.x * 2 + 1] = sums[1];
}

// sum: the sum of w dy (x - mean) over `columns`
extern "C" __global__ void recomputed(const float* x, const float* dy, const float* w, float* sum, float mean,
                                      int columns) {
  __shared__ RowScratch<Sum, 64> scratch;
  sum[threadIdx.x] = sum_centred_products<64>(x, dy, w, mean, columns, scratch);
}
