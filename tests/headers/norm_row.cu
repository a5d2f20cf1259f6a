// EVEN is given
#include "tile/norm_row.cuh"

// of the columns first to first + 8 of a row of `columns`: {count, mean, squares} of both vectors at once,
// and of one combined with the other; the sum of squares; by a thread that holds both. x: (8), y: (10)
extern "C" __global__ void sums(const float* x, float* y, int first, int columns) {
  const Vector<float, 4> v[2] = {load_vector<4>(x), load_vector<4>(x + 4)};
  const Vector<float, 4> lower[1] = {v[0]}, upper[1] = {v[1]};
  const Moments::Value whole = moments<EVEN>(v, first, 4, columns);
  const Moments::Value parts = Moments::combine(
      Moments::combine(moments<EVEN>(lower, first, 0, columns), moments<EVEN>(upper, first + 4, 0, columns)),
      Moments::identity());
  y[0] = whole.count, y[1] = whole.mean, y[2] = whole.squares;
  y[3] = parts.count, y[4] = parts.mean, y[5] = parts.squares;
  y[6] = sum_squares(v);
  __shared__ MomentsScratch<1> scratch;
  const Moments::Value held = held_moments<EVEN, 1, 1>(v, first, 4, columns, scratch);
  y[7] = held.count, y[8] = held.mean, y[9] = held.squares;
}

// {count, mean, squares} of a row that one thread holds. x: (8), y: (3)
extern "C" __global__ void held_row(const float* x, float* y, int first, int columns) {
  __shared__ RowScratch<Sum, 1> scratch[2];
  const Vector<float, 4> v[2] = {load_vector<4>(x), load_vector<4>(x + 4)};
  const Moments::Value all = row_moments<EVEN, 1, 1>(v, first, 4, columns, scratch);
  y[0] = all.count, y[1] = all.mean, y[2] = all.squares;
}

// y: x scale w; (x - mean) scale w + b; x + b. x, w, b: (4), y: (3, 4)
extern "C" __global__ void results(const float* x, const float* w, const float* b, float* y, float mean,
                                   float scale) {
  const auto vx = load_vector<4>(x), vw = load_vector<4>(w), vb = load_vector<4>(b);
  store_vector(y, scaled<float>(vx, scale, vw));
  store_vector(y + 4, standardized<float>(vx, mean, scale, vw, vb));
  store_vector(y + 8, added(vx, vb));
}
