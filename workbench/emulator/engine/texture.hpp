// What a texture or surface object names. The value of the object is the address of this header, which the
// host writes into memory of the device: capture/client/textures.cpp and textures.py.
#pragma once

#include <cstdint>

namespace workbench::emulator {

constexpr uint64_t kTextureMagic = 0x7463656a626f7874;

enum class TexelKind : uint8_t {
  whole_unsigned,
  whole_signed,
  floating
};  // cudaChannelFormatKind has others
enum class AddressMode : uint8_t { wrap, clamp, mirror, border };  // as cudaTextureAddressMode

struct TextureHeader {
  uint64_t magic;
  uint64_t address;       // of the first texel
  uint64_t pitch, slice;  // bytes from one row to the next, and from one slice or layer
  uint32_t extent[3];     // texels, at least 1 in each dimension
  uint32_t layers;        // of a layered one; six for each cube; else 0
  TexelKind kind;
  uint8_t channels, bits;  // 1, 2 or 4 channels of 8, 16 or 32 bits
  uint8_t is_surface;
  AddressMode mode[3];
  uint8_t is_filtered;       // linearly
  uint8_t is_normalized;     // coordinates from 0 to 1
  uint8_t reads_normalized;  // whole numbers as fractions of their range
  uint8_t padding[2];
  float border[4];
  uint8_t reserved[52];
};
static_assert(sizeof(TextureHeader) == 128);

}  // namespace workbench::emulator
