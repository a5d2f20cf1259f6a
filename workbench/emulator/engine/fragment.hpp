// Fragments: how a matrix is spread over the registers of a warp, the same for mma.sync and (where PTX leaves
// it open) wmma, and the product of matrices that have been gathered from them.
//
// Of a tile of 8 rows, lane l holds from row l / 4 the elements that fit into a register, from column l % 4
// on; B is held by columns in the same way. Larger matrices are several such tiles, those along M or N first
// for A, along K first for B.
#pragma once

#include "matrix.hpp"
#include "sparse.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct DoubleElement {
  static constexpr int kPacked = 1;
  using Cell = double;
  static double unpack(double cell, int) { return cell; }
};

template <class E, class = void>
struct PackedCell {
  using type = uint32_t;
};
template <class E>
struct PackedCell<E, std::void_t<typename E::Cell>> {
  using type = typename E::Cell;
};

// Registers of an operand with `across` rows of A or columns of B, and K elements along each.
template <class E, int Across, int K>
constexpr int kFragmentRegisters = Across * K / (kLanes * E::kPacked);

template <class E, int M, int K, class T>
void read_a(const Warp& warp, const Operand* operands, T (&a)[M][K]) {
  constexpr int P = E::kPacked, kTiles = M / 8;
  for (int q = 0; q < kFragmentRegisters<E, M, K>; ++q) {
    const auto* cells = source_cells<typename PackedCell<E>::type>(warp, operands[q]);
    T values[kLanes * P];  // those of four lanes are neighbours in a row
    for (int l = 0; l < kLanes; ++l)
      for (int i = 0; i < P; ++i) values[l * P + i] = E::unpack(cells[l], i);
    for (int r = 0; r < 8; ++r)
      std::memcpy(&a[q % kTiles * 8 + r][q / kTiles * 4 * P], values + r * 4 * P, 4 * P * sizeof(T));
  }
}

template <class E, int N, int K, class T>
void read_b(const Warp& warp, const Operand* operands, T (&b)[K][N]) {
  constexpr int P = E::kPacked, kTiles = K / (4 * P);
  for (int q = 0; q < kFragmentRegisters<E, N, K>; ++q) {
    const auto* cells = source_cells<typename PackedCell<E>::type>(warp, operands[q]);
    for (int i = 0; i < P; ++i) {
      T values[kLanes];
      for (int l = 0; l < kLanes; ++l) values[l] = E::unpack(cells[l], i);
      for (int l = 0; l < kLanes; ++l)
        b[q % kTiles * 4 * P + l % 4 * P + i][q / kTiles * 8 + l / 4] = values[l];
    }
  }
}

// Accumulators of elements that fill a register.
template <class T>
struct Accumulator {
  static constexpr int kPacked = 1;
  static constexpr char kDestination = sizeof(T) == 8 ? 'D' : 'W', kSource = source_letter<T>();
  template <int M, int N>
  static void read(const Warp& warp, const Operand* operands, T (&c)[M][N]) {
    for (int q = 0; q < M * N / kLanes; ++q) {
      const T* cells = source_cells<T>(warp, operands[q]);
      for (int l = 0; l < kLanes; ++l)
        c[row<M>(q / 2) + l / 4][column<M>(q / 2) + l % 4 * 2 + q % 2] = cells[l];
    }
  }
  template <int M, int N>
  static void write(const Warp& warp, const Operand* operands, const T (&d)[M][N]) {
    for (int q = 0; q < M * N / kLanes; ++q)
      write_lanes<T>(warp, operands[q],
                     [&](int l) { return d[row<M>(q / 2) + l / 4][column<M>(q / 2) + l % 4 * 2 + q % 2]; });
  }
  template <int M>
  static int row(int tile) {
    return tile % (M / 8) * 8;
  }
  template <int M>
  static int column(int tile) {
    return tile / (M / 8) * 8;
  }
};

// The same in pairs of halves; computed with in float, and rounded once at the end.
struct HalfAccumulator {
  static constexpr int kPacked = 2;
  static constexpr char kDestination = 'W', kSource = 'w';
  template <int M, int N>
  static void read(const Warp& warp, const Operand* operands, float (&c)[M][N]) {
    for (int q = 0; q < M * N / (2 * kLanes); ++q) {
      const Source<f16x2> cells(warp, operands[q]);
      float* to = &c[Accumulator<float>::row<M>(q)][Accumulator<float>::column<M>(q)];
      for (int l = 0; l < kLanes; ++l) {
        to[l / 4 * N + l % 4 * 2] = cells[l].low;
        to[l / 4 * N + l % 4 * 2 + 1] = cells[l].high;
      }
    }
  }
  template <int M, int N>
  static void write(const Warp& warp, const Operand* operands, const float (&d)[M][N]) {
    for (int q = 0; q < M * N / (2 * kLanes); ++q) {
      const float* from = &d[Accumulator<float>::row<M>(q)][Accumulator<float>::column<M>(q)];
      write_lanes<f16x2>(warp, operands[q], [&](int l) {
        return f16x2{f16(from[l / 4 * N + l % 4 * 2]), f16(from[l / 4 * N + l % 4 * 2 + 1])};
      });
    }
  }
};

template <class Acc, int M, int N>
constexpr int kAccumulatorRegisters = M * N / (kLanes * Acc::kPacked);

// ---- d += a b, where element k of row r of A belongs to row place(r, k) of B

struct DensePlaces {
  int operator()(int, int k) const { return k; }
};

// float: the products of one instruction are summed first, in float, and then added to the accumulator
template <int M, int N, int K, int Depth, class Place>
void add_product(const float (&a)[M][K], const float (&b)[Depth][N], float (&d)[M][N], int, Place place) {
  typedef float Row __attribute__((vector_size(32)));
  for (int r = 0; r < M; ++r)
    for (int n = 0; n < N; n += 8) {
      Row sum = {}, c;
      for (int k = 0; k < K; ++k) {
        Row row;
        std::memcpy(&row, &b[place(r, k)][n], sizeof row);
        sum += row * a[r][k];
      }
      std::memcpy(&c, &d[r][n], sizeof c);
      c += sum;
      std::memcpy(&d[r][n], &c, sizeof c);
    }
}

// double: a chain of fused multiplications and additions that begins with the accumulator
template <int M, int N, int K>
void add_product(const double (&a)[M][K], const double (&b)[K][N], double (&d)[M][N], int, DensePlaces) {
  for (int r = 0; r < M; ++r)
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < K; ++k) d[r][n] = __builtin_fma(a[r][k], b[k][n], d[r][n]);
}

enum ProductForm { kSaturate = 1, kExclusiveOr = 2, kOrdered = 4 };

// Integers: sums wrap, or with .satfinite the exact sum is clamped. Bits are multiplied with `and` or `xor`.
template <int M, int N, int K, int Depth, class Place>
void add_product(const int32_t (&a)[M][K], const int32_t (&b)[Depth][N], int32_t (&d)[M][N], int form,
                 Place place) {
  for (int r = 0; r < M; ++r) {
    int32_t sum[N] = {};
    for (int k = 0; k < K; ++k) {
      const int32_t* row = b[place(r, k)];
      for (int n = 0; n < N; ++n) sum[n] += form & kExclusiveOr ? a[r][k] ^ row[n] : a[r][k] * row[n];
    }
    for (int n = 0; n < N; ++n) {
      int64_t exact = int64_t{d[r][n]} + sum[n];
      if (form & kSaturate) exact = exact < INT32_MIN ? INT32_MIN : exact > INT32_MAX ? INT32_MAX : exact;
      d[r][n] = static_cast<int32_t>(exact);
    }
  }
}

// The instruction `D, A, B, C`, of a sparse A followed by metadata and selector. Of wmma's halves, PTX gives
// A and B eight registers whatever the shape: `Held`; only the first of them are looked at.
template <class EA, class EB, int M, int N, int K, class D, class C = D, int Held = 0, bool Sparse = false>
struct Multiply {
  static constexpr int kStored = Sparse ? K / 2 : K;  // elements in a row of A
  static constexpr int kD = kAccumulatorRegisters<D, M, N>, kC = kAccumulatorRegisters<C, M, N>,
                       kA = Held ? Held : kFragmentRegisters<EA, M, kStored>,
                       kB = Held ? Held : kFragmentRegisters<EB, N, K>;
  using Value = decltype(EA::unpack(0, 0));

  static void run(Warp& warp, const Instruction& instruction) {
    const Operand* operands = instruction.operands;
    alignas(64) Value a[M][kStored], b[K][N], d[M][N];
    read_a<EA>(warp, operands + kD, a);
    read_b<EB>(warp, operands + kD + kA, b);
    C::read(warp, operands + kD + kA + kB, d);
    if constexpr (Sparse) {
      constexpr SparseShape shape{32 / EA::kPacked, K};
      const Operand& metadata = operands[kD + kA + kB + kC];
      const int selector = selector_of(warp, (&metadata)[1], shape);
      check_metadata(warp, metadata, selector, shape, (instruction.variant & kOrdered) != 0, 0);
      SparsePlaces places;
      find_places(source_cells<uint32_t>(warp, metadata), selector, shape, places);
      add_product(a, b, d, instruction.variant, [&](int r, int k) { return places.k[r][k]; });
    } else {
      add_product(a, b, d, instruction.variant, DensePlaces());
    }
    D::write(warp, operands, d);
  }

  static std::string signature() {
    const std::string letter = std::is_same_v<Value, double> ? "e" : "w";
    return D::kDestination + std::to_string(kD) + letter + std::to_string(kA) + letter + std::to_string(kB) +
           C::kSource + std::to_string(kC) + (Sparse ? "w2" : "");
  }

  static void add(Table& table, const std::string& name, int variant = 0) {
    table.add_aligned(name, signature(), run, variant);
  }
};

}  // namespace workbench::emulator::WORKBENCH_ISA
