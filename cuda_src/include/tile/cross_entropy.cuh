// loss and log-sum-exp of a row.
#pragma once
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

// the logit of a label, 0 where that is below 0
template <class Element>
__device__ __forceinline__ float logit_of(const Element* row, int label) {
  return label < 0 ? 0.f : to_float(row[label]);
}

// by one thread. a label that is masked has an infinite loss, also in a row that is wholly masked
__device__ __forceinline__ void store_loss(float* loss, float* lse, int label, float logit,
                                           ExpSum::Value state) {
  const float log = log_sum(state);
  *lse = log;
  *loss = label < 0 ? 0.f : logit == -infinity() ? infinity() : log - logit;
}

template <class Element>
__device__ __forceinline__ void store_loss(float* loss, float* lse, const Element* row, int label,
                                           ExpSum::Value state) {
  store_loss(loss, lse, label, logit_of(row, label), state);
}
