// arrays in either layout: elements from one to the next in each dimension.
#pragma once

struct Strides {
  long long x_image, x_row, x_column, x_channel;
  long long f_filter, f_row, f_column, f_channel;
  long long y_image, y_row, y_column, y_channel;
};
