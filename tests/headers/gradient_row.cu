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
    const auto a = load_vector<4>(x + threadIdx.x * 4), b = load_vector<4>(dy + threadIdx.x * 4);
    const float mean = (a.x[0] + a.x[1] + a.x[2] + a.x[3]) / 4;
    ThreeSums::Value sums = ThreeSums::identity();
    add_centred_sums<true>(sums, a, b, load_vector<4>(w + threadIdx.x * 4), mean, threadIdx.x * 4, 8);
    parts[threadIdx.x] = {{4.f, mean, sums.first}, sums.second, sums.third};
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

// what is known of rows before and after those of infinite g are taken anew: {mean, scale, of_g,
// of_products}. x, dy: (rows, columns), w: (columns), y: (rows, 4)
extern "C" __global__ void retaken(const float* x, const float* dy, const float* w, float* y, int rows,
                                   int columns) {
  __shared__ RowScratch<Sum, 64> scratch;
  __shared__ RowGradient of_rows[2];
  if (threadIdx.x < 2) of_rows[threadIdx.x] = {2.f, 0.5f, threadIdx.x ? infinity() : 1.f, 7.f};
  __syncthreads();
  retake_infinite<64>(of_rows, rows, x, dy, w, columns, static_cast<long long>(columns), scratch);
  if (threadIdx.x >= rows) return;
  const RowGradient found = of_rows[threadIdx.x];
  float* to = y + threadIdx.x * 4;
  to[0] = found.mean, to[1] = found.scale, to[2] = found.of_g, to[3] = found.of_products;
}
