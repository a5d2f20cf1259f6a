// what the stages of conv2d have in common: the sizes of a convolution, where the window of an output lies,
// which tile of the outputs a block computes, and what follows a sum.
#pragma once
#include "tile/activation.cuh"
#include "tile/convert.cuh"

// sizes, in elements. `filters` and `channels` are those of all groups, `group_...` of each
struct Convolution {
  int pixels;  // of all images of the output
  int height, width, channels, rows, columns, filters;
  int taps_y, taps_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  int group_channels, group_filters;

  __device__ __forceinline__ int groups() const { return channels / group_channels; }

  // of the input, where the windows of an output pixel begin: an element outside belongs to the padding
  struct Window {
    int image, top, left;
  };
  __device__ __forceinline__ Window window(int pixel) const {
    const int row = pixel / columns;
    return {row / rows, row % rows * stride_y - pad_y, pixel % columns * stride_x - pad_x};
  }

  // of a pixel behind the last: nothing of it is inside
  static constexpr int NOWHERE = -(1 << 30);
  __device__ __forceinline__ Window window_or_nowhere(int pixel) const {
    return pixel < pixels ? window(pixel) : Window{0, NOWHERE, NOWHERE};
  }

  // without a branch, which what is loaded only inside would have to wait for
  __device__ __forceinline__ bool inside(int y, int x) const {
    const bool down = static_cast<unsigned>(y) < static_cast<unsigned>(height);
    return down & static_cast<unsigned>(x) < static_cast<unsigned>(width);
  }
};

// a tile of outputs, so many pixels of so many filters of one group. tiles of the same pixels follow each
// other, so that blocks which work at the same time find what they read in the L2
struct OutputTile {
  int pixel, group, filter;  // the first; the filter counts within its group

  static __device__ __forceinline__ OutputTile numbered(const Convolution& c, int number, int height,
                                                        int width) {
    const int across = (c.group_filters + width - 1) / width, columns = across * c.groups();
    const int column = number % columns;
    return {number / columns * height, column / across, column % across * width};
  }
};

// bias, where there is one, and activation
template <class Element>
__device__ __forceinline__ float completed(float sum, const Element* bias, int filter) {
  return activate<ACTIVATION>(bias ? sum + to_float(bias[filter]) : sum);
}
