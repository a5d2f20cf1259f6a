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
