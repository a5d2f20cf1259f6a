// loss and log-sum-exp of a row.
#pragma once
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

// by one thread. a label that is masked has an infinite loss, also in a row that is wholly masked
template <class Element>
__device__ __forceinline__ void store_loss(float* loss, float* lse, const Element* row, int label,
                                           ExpSum::Value state) {
  const float log = log_sum(state), logit = label < 0 ? 0.f : to_float(row[label]);
  *lse = log;
  *loss = label < 0 ? 0.f : logit == -infinity() ? infinity() : log - logit;
}
