// gradients of softmax and of norms, of parts of a row that a thread holds in registers.
#pragma once
#include "tile/norm_row.cuh"
#include "tile/row.cuh"
#include "tile/row_reduce.cuh"

// three sums at once
struct ThreeSums {
  struct Value {
    float first, second, third;
  };
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ Value identity() { return {0.f, 0.f, 0.f}; }
  static __device__ __forceinline__ Value combine(Value a, Value b) {
    return {a.first + b.first, a.second + b.second, a.third + b.third};
  }
};

// sum of a b over COUNT vectors; elements outside of the row have to be 0
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float sum_products(const Vector<Element, WIDTH> (&a)[COUNT],
                                              const Vector<Element, WIDTH> (&b)[COUNT]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats one(a[i]), other(b[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += one.x[j] * other.x[j];
  }
  return sum;
}

// y (dy - dot)
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> softmax_gradient(const Vector<Element, WIDTH>& y,
                                                               const Vector<Element, WIDTH>& dy, float dot) {
  const Floats of_y(y), of_dy(dy);
  Vector<Out, WIDTH> dx;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) dx.x[j] = from_float<Out>(of_y.x[j] * (of_dy.x[j] - dot));
  return dx;
}

// what the gradient of a norm needs of a row: how it was normalised, the mean of g = w dy, and that of g
// times the normalised elements
struct RowGradient {
  float mean, scale, of_g, of_products;

  __device__ __forceinline__ float normalised(float x) const { return (x - mean) * scale; }
  __device__ __forceinline__ float dx(float x, float g) const { return of_normalised(normalised(x), g); }
  __device__ __forceinline__ float of_normalised(float n, float g) const {
    return scale * (g - of_g - n * of_products);
  }
};

// sums of w dy and of w dy (x - mean) scale over a vector
template <int WIDTH, class Element>
__device__ __forceinline__ void add_gradient_sums(TwoSums::Value& sums, const Vector<Element, WIDTH>& x,
                                                  const Vector<Element, WIDTH>& dy,
                                                  const Vector<Element, WIDTH>& w, float mean, float scale) {
  const Floats of_x(x), of_dy(dy), weights(w);
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    const float g = weights.x[j] * of_dy.x[j];
    sums.first += g;
    sums.second += g * ((of_x.x[j] - mean) * scale);
  }
}

// sums of x^2 and of x w dy over a vector
template <int WIDTH, class Element>
__device__ __forceinline__ void add_uncentred_sums(TwoSums::Value& sums, const Vector<Element, WIDTH>& x,
                                                   const Vector<Element, WIDTH>& dy,
                                                   const Vector<Element, WIDTH>& w) {
  const Floats of_x(x), of_dy(dy), weights(w);
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    sums.first += of_x.x[j] * of_x.x[j];
    sums.second += of_x.x[j] * (weights.x[j] * of_dy.x[j]);
  }
}

// sums of (x - mean)^2, of g = w dy and of g (x - mean) over a vector that begins at `column`; elements
// outside of the row have to be 0. WHOLE as in tile/row.cuh
template <bool WHOLE, int WIDTH, class Element>
__device__ __forceinline__ void add_centred_sums(ThreeSums::Value& sums, const Vector<Element, WIDTH>& x,
                                                 const Vector<Element, WIDTH>& dy,
                                                 const Vector<Element, WIDTH>& w, float mean, int column,
                                                 int columns) {
  const Floats of_x(x), of_dy(dy), weights(w);
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    const int at = column + (WHOLE ? 0 : j);
    const float distance = of_x.x[j] - mean, g = weights.x[j] * of_dy.x[j];
    if (at >= 0 && at < columns) sums.first += distance * distance;
    sums.second += g;
    sums.third += g * distance;
  }
}

template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> norm_gradient(const Vector<Element, WIDTH>& x,
                                                            const Vector<Element, WIDTH>& dy,
                                                            const Vector<Element, WIDTH>& w,
                                                            RowGradient row) {
  const Floats of_x(x), of_dy(dy), weights(w);
  Vector<Out, WIDTH> dx;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) dx.x[j] = from_float<Out>(row.dx(of_x.x[j], weights.x[j] * of_dy.x[j]));
  return dx;
}

// what an element adds to the gradients of its column: to that of the weight, and of the bias where there is
// one
__device__ __forceinline__ void add_to_column(float& sum, float dy, float normalised) {
  sum += dy * normalised;
}
__device__ __forceinline__ void add_to_column(TwoSums::Value& sums, float dy, float normalised) {
  sums.first += dy * normalised;
  sums.second += dy;
}

// the same as norm_gradient of the vector with this number, and what it adds to the gradients of its columns
template <class Out, int WIDTH, class Element, class Value, int COUNT>
__device__ __forceinline__ Vector<Out, WIDTH> norm_gradients(const Vector<Element, WIDTH>& x,
                                                             const Vector<Element, WIDTH>& dy,
                                                             const Vector<Element, WIDTH>& w, RowGradient row,
                                                             int vector, Value (&sums)[COUNT]) {
  const Floats of_x(x), of_dy(dy), weights(w);
  Vector<Out, WIDTH> dx;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    const float normalised = row.normalised(of_x.x[j]);
    dx.x[j] = from_float<Out>(row.of_normalised(normalised, weights.x[j] * of_dy.x[j]));
    add_to_column(sums[vector * WIDTH + j], of_dy.x[j], normalised);
  }
  return dx;
}

// what a thread holds of a row of x and of dy: COUNT vectors of each, the first at the row's vector `member`,
// the others `step` further each
template <int COUNT, int WIDTH, bool WHOLE, class Element>
struct GradientRow {
  Vector<Element, WIDTH> x[COUNT], dy[COUNT];

  __device__ __forceinline__ void load(const RowWalk<WIDTH, WHOLE>& walk, const Element* of_x,
                                       const Element* of_dy, int member, int step) {
    const Element outside = from_float<Element>(0.f);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = walk.load(of_x, walk.column(member + i * step), outside);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) dy[i] = walk.load(of_dy, walk.column(member + i * step), outside);
  }
};

// what the gradient of layer norm needs of a part of a row: its moments, the sum of g = w dy, and that of g
// times the distance from the part's mean. two such are combined without cancellation, as moments are: with
// another mean the distances change by the same number
struct GradientMoments {
  struct Value {
    Moments::Value x;
    float of_g, of_products;
  };
  static constexpr bool COMMUTES = false;

  static __device__ __forceinline__ Value identity() { return {Moments::identity(), 0.f, 0.f}; }

  static __device__ __forceinline__ Value combine(Value a, Value b) {
    const Moments::Value x = Moments::combine(a.x, b.x);
    return {x, a.of_g + b.of_g,
            a.of_products + b.of_products + (a.x.mean - x.mean) * a.of_g + (b.x.mean - x.mean) * b.of_g};
  }
};

template <int BLOCK>
struct GradientScratch {
  RowScratch<TwoSums, BLOCK> counted;
  RowScratch<ThreeSums, BLOCK> centred;
};

// what MEMBERS threads have of a row, as row_reduce: the mean of all first, and then everything about that,
// which takes one division and not one each time that two are combined
template <int MEMBERS, int BLOCK>
__device__ __forceinline__ GradientMoments::Value reduce_states(GradientMoments::Value own,
                                                                GradientScratch<BLOCK>& scratch) {
  const TwoSums::Value all =
      row_reduce<TwoSums, MEMBERS, BLOCK>({own.x.count, own.x.count * own.x.mean}, scratch.counted);
  const float mean = all.first > 0.f ? all.second / all.first : 0.f, off = own.x.mean - mean;
  const ThreeSums::Value sums = row_reduce<ThreeSums, MEMBERS, BLOCK>(
      {own.x.squares + own.x.count * off * off, own.of_g, own.of_products + own.of_g * off}, scratch.centred);
  return {{all.first, mean, sums.first}, sums.second, sums.third};
}

// the same of two sums
template <int MEMBERS, int BLOCK>
__device__ __forceinline__ TwoSums::Value reduce_states(TwoSums::Value own,
                                                        RowScratch<TwoSums, BLOCK>& scratch) {
  return row_reduce<TwoSums, MEMBERS, BLOCK>(own, scratch);
}

// combines what `parts` parts have of each of `rows` rows, (rows, parts), MEMBERS threads a row, and has one
// of them call use(row, state). by all BLOCK threads; MEMBERS is at most a warp, or the block
template <class Op, int MEMBERS, int BLOCK, class Scratch, class Use>
__device__ __forceinline__ void combine_parts(const typename Op::Value* states, int rows, int parts,
                                              Scratch& scratch, const Use& use) {
  for (int first = 0; first < rows; first += BLOCK / MEMBERS) {
    const int row = first + threadIdx.x / MEMBERS;
    typename Op::Value state = Op::identity();
    if (row < rows)
      for (int i = threadIdx.x % MEMBERS; i < parts; i += MEMBERS)
        state = Op::combine(state, states[static_cast<long long>(row) * parts + i]);
    state = reduce_states<MEMBERS, BLOCK>(state, scratch);
    if (row < rows && threadIdx.x % MEMBERS == 0) use(row, state);
    if (MEMBERS > WARP) __syncthreads();
  }
}

// takes the products of those of `rows` rows anew, element by element, whose g is infinite: they cannot be
// found of parts with other means, since the difference of two infinities may be anything. x, dy: rows `ld`
// elements apart. by all BLOCK threads, behind a barrier, and before one
template <int BLOCK, class Element>
__device__ __forceinline__ void retake_infinite(RowGradient* of_rows, int rows, const Element* x,
                                                const Element* dy, const Element* w, int columns,
                                                long long ld, RowScratch<Sum, BLOCK>& scratch) {
  for (int row = 0; row < rows; ++row, x += ld, dy += ld) {
    const RowGradient found = of_rows[row];
    if (!isinf(found.of_g)) continue;
    float sum = 0.f;
    for (int c = threadIdx.x; c < columns; c += BLOCK)
      sum += to_float(w[c]) * to_float(dy[c]) * (to_float(x[c]) - found.mean);
    sum = row_reduce<Sum, BLOCK, BLOCK>(sum, scratch);
    if (threadIdx.x == 0) of_rows[row].of_products = sum * found.scale / columns;
    __syncthreads();
  }
}

// what the groups of a block have of the same columns
template <class Op, int MEMBERS, int BLOCK, int COUNT>
struct GroupScratch {
  typename Op::Value of[MEMBERS < BLOCK ? COUNT * MEMBERS : 1];
};

// adds up what groups of MEMBERS threads, a power of two, have of COUNT columns a thread: in the threads of
// the first group, at every run in the same order. by all BLOCK threads
template <class Op, int MEMBERS, int BLOCK, int COUNT>
__device__ __forceinline__ void add_up_groups(typename Op::Value (&sums)[COUNT],
                                              GroupScratch<Op, MEMBERS, BLOCK, COUNT>& scratch) {
  constexpr int TOGETHER = MEMBERS < WARP ? WARP : MEMBERS;  // threads that store at once
  if constexpr (MEMBERS < BLOCK) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int distance = MEMBERS; distance < WARP; distance *= 2)
        sums[i] = Op::combine(sums[i], shuffle_xor(sums[i], distance));
    for (int turn = 0; turn < BLOCK / TOGETHER; ++turn) {
      if (threadIdx.x / TOGETHER == turn && threadIdx.x % TOGETHER < MEMBERS)
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
          typename Op::Value& sum = scratch.of[i * MEMBERS + threadIdx.x % TOGETHER];
          sum = turn ? Op::combine(sum, sums[i]) : sums[i];
        }
      __syncthreads();
    }
    if (threadIdx.x < MEMBERS)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) sums[i] = scratch.of[i * MEMBERS + threadIdx.x];
  }
}

// sums of columns as they move to and from memory
template <class Value>
using SumBits = Vector<unsigned, sizeof(Value) / sizeof(unsigned)>;

// stores what a thread has of COUNT columns: those of the vectors of WIDTH elements with the numbers
// `member`, member + MEMBERS, ... of `columns`. the sums of neighbouring members lie beside each other, so
// that a warp stores whole lines
template <int MEMBERS, int WIDTH, class Value, int COUNT>
__device__ __forceinline__ void keep_sums(Value* partial, const Value (&sums)[COUNT], int member,
                                          int columns) {
#pragma unroll
  for (int own = 0; own < COUNT; ++own)
    if ((own / WIDTH * MEMBERS + member) * WIDTH < columns)
      *reinterpret_cast<SumBits<Value>*>(&partial[own * MEMBERS + member]) =
          reinterpret_cast<const SumBits<Value>&>(sums[own]);
}

// the column whose sum lies at a place there
template <int MEMBERS, int WIDTH>
__device__ __forceinline__ int kept_column(int place) {
  const int i = place / MEMBERS;
  return (i / WIDTH * MEMBERS + place % MEMBERS) * WIDTH + i % WIDTH;
}

// what the first `parts` of PLACES sums each have at a place for each of TOGETHER neighbouring threads, a
// power of two of lanes, added up: in the first TOGETHER threads. by all BLOCK threads, which share the
// parts, and load several at once. parts are 0 where nothing is kept
template <class Op, int TOGETHER, int PLACES, int BLOCK>
__device__ __forceinline__ typename Op::Value add_up_kept(const typename Op::Value* partial, int place,
                                                          int parts, typename Op::Value (&scratch)[BLOCK]) {
  using Value = typename Op::Value;
  constexpr int AT_ONCE = 8, STEP = BLOCK / TOGETHER;
  Value sum = Op::identity();
  for (int first = threadIdx.x / TOGETHER; first < parts; first += AT_ONCE * STEP) {
    Value found[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const long long part = first + i * STEP;
      found[i] = Op::identity();
      if (part < parts)
        reinterpret_cast<SumBits<Value>&>(found[i]) =
            *reinterpret_cast<const SumBits<Value>*>(&partial[part * PLACES + place]);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sum = Op::combine(sum, found[i]);
  }
#pragma unroll
  for (int distance = TOGETHER; distance < WARP; distance *= 2)
    sum = Op::combine(sum, shuffle_xor(sum, distance));
  if (threadIdx.x % WARP < TOGETHER) scratch[threadIdx.x / WARP * TOGETHER + threadIdx.x % WARP] = sum;
  __syncthreads();
  if (threadIdx.x < TOGETHER)
#pragma unroll
    for (int i = 1; i < BLOCK / WARP; ++i) sum = Op::combine(sum, scratch[i * TOGETHER + threadIdx.x]);
  return sum;
}
