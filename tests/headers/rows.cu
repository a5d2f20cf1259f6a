// OUT is given. what of `chunks` chunks of each of 4 rows is stored: WHOLE ones where boxes could be, and any, in
// two arrays of `rows` rows and `columns` columns, `leading` elements apart
#include "epilogue/rows.cuh"
#include "tile/convert.cuh"

template <bool WHOLE>
__device__ void stored(const OUT* x, const Rows<OUT>& to, int chunks) {
  constexpr int CHUNK = Rows<OUT>::CHUNK;
  for (int i = threadIdx.x; i < 4 * chunks; i += blockDim.x) {
    const int row = i / chunks, column = i % chunks * CHUNK;
    if (to.template has<WHOLE>(row, column))
      to.template store<WHOLE>(row, column, load_vector<CHUNK>(x + i * CHUNK));
  }
}

extern "C" __global__ void chunks(const OUT* x, const __grid_constant__ TensorMap boxes, OUT* whole, OUT* part,
                                  int rows, int columns, int leading, int chunks) {
  const Rows<OUT> to = {boxes, part, rows, columns, leading};
  if (to.mapped()) stored<true>(x, {boxes, whole, rows, columns, leading}, chunks);
  stored<false>(x, to, chunks);
}
