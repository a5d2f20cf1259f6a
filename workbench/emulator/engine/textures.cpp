// Textures and surfaces: tex, tld4, suld and sust through objects (texture.hpp).
//
// Filtering is that of the CUDA programming guide ("Texture Fetching"): the coordinate less a half, its floor
// and a fraction with 8 bits behind the point, weighted sums of 2, 4 or 8 texels. The guide does not say how
// the fraction is rounded: here to nearest. A cube is filtered within its faces.
#include <algorithm>
#include <array>
#include <cmath>

#include "texture.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum Geometry { kLine = 1, kPlane = 2, kVolume = 3, kCube = 4 };
enum Boundary { kTrap, kClamp, kZero };

struct Form {  // what an instruction's name says, packed into its variant
  int geometry;
  bool layered;
  bool whole;        // coordinates are integers
  int gathered = 0;  // tld4: the channel, from 1 on
  int boundary = kTrap;
  int bytes = 0, elements = 1;  // of a surface's access
  int packed() const {
    return geometry | layered << 3 | whole << 4 | gathered << 5 | boundary << 8 | bytes << 10 |
           elements << 14;
  }
  explicit Form(int variant)
      : geometry(variant & 7),
        layered(variant >> 3 & 1),
        whole(variant >> 4 & 1),
        gathered(variant >> 5 & 7),
        boundary(variant >> 8 & 3),
        bytes(variant >> 10 & 15),
        elements(variant >> 14) {}
  Form(int geometry_, bool layered_, bool whole_) : geometry(geometry_), layered(layered_), whole(whole_) {}
  std::string name() const {
    return (layered ? "a" : "") + (geometry == kCube ? "cube" : std::to_string(geometry) + "d");
  }
  int axes() const { return geometry == kCube ? 3 : geometry; }
  int coordinates() const {  // three are written as four
    const int count = axes() + layered;
    return count == 3 ? 4 : count;
  }
};

const TextureHeader& header_at(const Warp& warp, uint64_t object, int lane, bool is_surface) {
  const Allocation* found = find_allocation(*warp.machine->launch, object);
  if (found && object % alignof(TextureHeader) == 0 &&
      found->bytes - (object - found->address) >= sizeof(TextureHeader)) {
    const auto* header = reinterpret_cast<const TextureHeader*>(found->data + (object - found->address));
    if (header->magic == kTextureMagic && (header->is_surface != 0) == is_surface) return *header;
  }
  warp.fault(FaultKind::descriptor, lane, object, Space::none, kUnknownObject, is_surface);
}

// The texel that an index means; -1 outside, where the border is read.
int64_t addressed(int64_t index, int64_t extent, AddressMode mode, bool is_normalized) {
  if (index >= 0 && index < extent) return index;
  if (mode == AddressMode::border) return -1;
  if (mode == AddressMode::wrap && is_normalized) return (index % extent + extent) % extent;
  if (mode == AddressMode::mirror && is_normalized) {
    const int64_t place = (index % (2 * extent) + 2 * extent) % (2 * extent);
    return place < extent ? place : 2 * extent - 1 - place;
  }
  return index < 0 ? 0 : extent - 1;
}

struct Axis {  // the two texels of a dimension, and what each weighs
  int64_t texel[2] = {0, 0};
  double weight[2] = {1, 0};
};

Axis axis_of(double coordinate, int64_t extent, AddressMode mode, bool is_normalized, bool is_filtered) {
  constexpr double kFar = 1e15, kFraction = 256;
  double place = is_normalized ? coordinate * static_cast<double>(extent) : coordinate;
  place = std::isnan(place) ? 0 : std::clamp(place, -kFar, kFar);
  if (is_filtered) place -= 0.5;
  const auto first = static_cast<int64_t>(std::floor(place));
  Axis axis;
  for (int k : {0, 1}) axis.texel[k] = addressed(first + k, extent, mode, is_normalized);
  if (!is_filtered) return axis;
  axis.weight[1] = std::floor((place - std::floor(place)) * kFraction + 0.5) / kFraction;
  axis.weight[0] = 1 - axis.weight[1];
  return axis;
}

// Of a direction the face of a cube (+x -x +y -y +z -z), and where it meets that, from 0 to 1.
int face_of(const double (&direction)[3], double& across, double& down) {
  int major = 0;
  for (int k : {1, 2})
    if (std::fabs(direction[k]) > std::fabs(direction[major])) major = k;
  const bool negative = direction[major] < 0;
  const double sign = negative ? -1 : 1, size = std::fabs(direction[major]);
  const double s = major == 0 ? -sign * direction[2] : major == 1 ? direction[0] : sign * direction[0];
  const double t = major == 1 ? sign * direction[2] : -direction[1];
  across = (s / size + 1) / 2;
  down = (t / size + 1) / 2;
  return 2 * major + negative;
}

class Fetch {  // of one lane
 public:
  Fetch(const Warp& warp, const TextureHeader& texture, int lane)
      : warp_(warp), texture_(texture), lane_(lane) {}

  uint32_t origin = 0;  // of a texel that nothing has written

  // The channels of a texel, as the instruction returns them; of a place outside (-1) those of the border.
  std::array<uint32_t, 4> texel(int64_t x, int64_t y, int64_t z) {
    std::array<uint32_t, 4> result{};
    if (x < 0 || y < 0 || z < 0) {
      for (size_t k = 0; k < 4; ++k)
        result[k] = gives_floats() ? bit_cast<uint32_t>(texture_.border[k])
                                   : static_cast<uint32_t>(static_cast<int64_t>(texture_.border[k]));
      return result;
    }
    const uint32_t channel = texture_.bits / 8u, bytes = texture_.channels * channel;
    const uint64_t address = texture_.address + static_cast<uint64_t>(x) * bytes +
                             static_cast<uint64_t>(y) * texture_.pitch +
                             static_cast<uint64_t>(z) * texture_.slice;
    const uint8_t* at = resolve_global_run(warp_, address, bytes, Access::read, lane_);
    if (!origin && warp_.machine->check_initialised)
      origin = origin_in_memory(warp_, Space::global, address, bytes, lane_);
    for (uint32_t k = 0; k < texture_.channels; ++k) {
      uint32_t raw = 0;
      std::memcpy(&raw, at + k * channel, channel);
      result[k] = returned(raw);
    }
    return result;
  }

  std::array<uint32_t, 4> filtered(const Axis (&axes)[3], int64_t layer) {
    if (!texture_.is_filtered) return texel(axes[0].texel[0], axes[1].texel[0], axes[2].texel[0] + layer);
    std::array<double, 4> sums{};
    for (int corner = 0; corner < 8; ++corner) {
      const int i = corner & 1, j = corner >> 1 & 1, k = corner >> 2;
      const double weight = axes[0].weight[i] * axes[1].weight[j] * axes[2].weight[k];
      if (weight == 0) continue;
      const int64_t z = axes[2].texel[k];
      const auto found = texel(axes[0].texel[i], axes[1].texel[j], z < 0 ? z : z + layer);
      for (size_t c = 0; c < 4; ++c) sums[c] += weight * static_cast<double>(bit_cast<float>(found[c]));
    }
    std::array<uint32_t, 4> result;
    for (size_t c = 0; c < 4; ++c) result[c] = bit_cast<uint32_t>(static_cast<float>(sums[c]));
    return result;
  }

  // tld4: a channel of the four texels that would be filtered, counterclockwise from the lower left.
  std::array<uint32_t, 4> gathered(const Axis (&axes)[3], int64_t layer, int channel) {
    constexpr int kCorners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    std::array<uint32_t, 4> result;
    for (size_t k = 0; k < 4; ++k)
      result[k] = texel(axes[0].texel[kCorners[k][0]], axes[1].texel[kCorners[k][1]],
                        layer)[static_cast<size_t>(channel)];
    return result;
  }

 private:
  bool gives_floats() const { return texture_.kind == TexelKind::floating || texture_.reads_normalized; }

  uint32_t returned(uint32_t raw) const {
    constexpr int kWhole = 32;
    if (texture_.kind == TexelKind::floating)
      return texture_.bits == kWhole ? raw : bit_cast<uint32_t>(half_to_float(raw));
    const int unused = kWhole - texture_.bits;
    const bool is_signed = texture_.kind == TexelKind::whole_signed;
    const int32_t value =
        is_signed ? static_cast<int32_t>(raw << unused) >> unused : static_cast<int32_t>(raw);
    if (!texture_.reads_normalized) return static_cast<uint32_t>(value);
    const auto most = static_cast<float>((int64_t{1} << (texture_.bits - is_signed)) - 1);
    return bit_cast<uint32_t>(std::max(static_cast<float>(value) / most, -1.0f));
  }

  const Warp& warp_;
  const TextureHeader& texture_;
  int lane_;
};

// Results r, g, b, a; the object; coordinates, the layer first. What chooses a level of a mipmap follows:
// there is one level.
void sample(Warp& warp, const Instruction& instruction) {
  constexpr int kResults = 4;
  const Form form(instruction.variant);
  uint64_t object[kLanes];
  read_addresses(warp, instruction.operands[kResults], object);
  const Operand* given = instruction.operands + kResults + 1;
  std::array<uint32_t, kResults> result[kLanes] = {};
  uint32_t origin[kLanes] = {};
  for_lanes(warp.active, [&](int l) {
    const TextureHeader& texture = header_at(warp, object[l], l, false);
    double at[3] = {};
    for (int k = 0; k < form.axes(); ++k) {
      const Operand& operand = given[form.layered + k];
      at[k] = form.whole ? Source<int32_t>(warp, operand)[l]
                         : static_cast<double>(Source<float>(warp, operand)[l]);
    }
    int64_t layer = 0;
    const int64_t last = std::max<int64_t>(texture.layers, 1) - 1;
    if (form.geometry == kCube) {
      const int64_t cube = form.layered ? Source<int32_t>(warp, given[0])[l] : 0;
      layer = face_of({at[0], at[1], at[2]}, at[0], at[1]) + std::clamp<int64_t>(cube, 0, last / 6) * 6;
    } else if (form.layered) {
      layer = std::clamp<int64_t>(Source<int32_t>(warp, given[0])[l], 0, last);
    }
    Axis axes[3];
    const int dimensions = form.geometry == kCube ? 2 : form.geometry;
    for (int k = 0; k < dimensions; ++k)
      axes[k] = axis_of(at[k], texture.extent[k], texture.mode[k], texture.is_normalized && !form.whole,
                        (texture.is_filtered || form.gathered) && !form.whole);
    Fetch fetch(warp, texture, l);
    result[l] = form.gathered ? fetch.gathered(axes, layer, form.gathered - 1) : fetch.filtered(axes, layer);
    origin[l] = fetch.origin;
  });
  for (int k = 0; k < kResults; ++k) {
    const Operand& destination = instruction.operands[k];
    if (destination.slot == kAbsent) continue;
    write_lanes<uint32_t>(warp, destination, [&](int l) { return result[l][static_cast<size_t>(k)]; });
    for_lanes(warp.active, [&](int l) {
      if (origin[l]) set_undefined(warp, destination, l, ~uint32_t{0}, origin[l]);
    });
  }
}

// ---- surfaces, whose first coordinate counts bytes

// Where a lane's access lies, or 0 where it reads zeros and stores nothing.
uint64_t place_in_surface(const Warp& warp, const TextureHeader& surface, const Form& form,
                          const Operand* given, int lane) {
  const int64_t bytes = form.bytes * form.elements;
  int64_t at[3] = {};
  for (int k = 0; k < form.axes(); ++k) at[k] = Source<int32_t>(warp, given[form.layered + k])[lane];
  const int64_t width = int64_t{surface.extent[0]} * surface.channels * (surface.bits / 8);
  int64_t most[3] = {width - bytes, surface.extent[1] - int64_t{1}, surface.extent[2] - int64_t{1}};
  if (form.layered) at[2] = Source<int32_t>(warp, given[0])[lane], most[2] = surface.layers - int64_t{1};
  for (int k = 0; k < 3; ++k) {
    if (at[k] >= 0 && at[k] <= most[k]) continue;
    if (form.boundary == kZero) return 0;
    if (form.boundary == kTrap) {
      constexpr int kCoordinateBits = 20;
      constexpr int64_t kMost = (1 << kCoordinateBits) - 1;
      warp.finding(FaultKind::out_of_bounds, lane, surface.address, Space::global, bytes,
                   int64_t{1} << 3 * kCoordinateBits | (at[0] & kMost) << 2 * kCoordinateBits |
                       (at[1] & kMost) << kCoordinateBits | (at[2] & kMost));
      return 0;
    }
    at[k] = std::clamp<int64_t>(at[k], 0, std::max<int64_t>(most[k], 0));
  }
  const uint64_t address = surface.address + static_cast<uint64_t>(at[0]) +
                           static_cast<uint64_t>(at[1]) * surface.pitch +
                           static_cast<uint64_t>(at[2]) * surface.slice;
  if ((address & static_cast<uint64_t>(bytes - 1)) == 0) return address;
  warp.finding(FaultKind::misaligned, lane, address, Space::global, bytes);
  return 0;
}

template <bool kStores>
void access_surface(Warp& warp, const Instruction& instruction) {
  const Form form(instruction.variant);
  const Operand *given = instruction.operands + (kStores ? 1 : form.elements + 1),
                *values = instruction.operands + (kStores ? 1 + form.coordinates() : 0);
  uint64_t object[kLanes];
  read_addresses(warp, given[-1], object);
  const size_t bytes = static_cast<size_t>(form.bytes);
  uint64_t loaded[4][kLanes] = {};
  uint32_t origin[kLanes] = {};
  for_lanes(warp.active, [&](int l) {
    const TextureHeader& surface = header_at(warp, object[l], l, true);
    const uint64_t address = place_in_surface(warp, surface, form, given, l);
    if (address == 0) return;
    const uint64_t run = bytes * static_cast<size_t>(form.elements);
    uint8_t* at = resolve_global_run(warp, address, run, kStores ? Access::write : Access::read, l);
    for (int k = 0; k < form.elements; ++k) {
      uint8_t* element = at + static_cast<size_t>(k) * bytes;
      if constexpr (!kStores) {
        std::memcpy(&loaded[k][l], element, bytes);
      } else {
        const uint64_t value = bytes == 8 ? Source<uint64_t>(warp, values[k])[l]
                                          : uint64_t{Source<uint32_t>(warp, values[k])[l]};
        std::memcpy(element, &value, bytes);
      }
    }
    if (!kStores && warp.machine->check_initialised)
      origin[l] = origin_in_memory(warp, Space::global, address, run, l);
  });
  if constexpr (kStores) return;
  for (int k = 0; k < form.elements; ++k) {
    if (values[k].slot == kAbsent) continue;
    if (bytes == 8)
      write_lanes<uint64_t>(warp, values[k], [&](int l) { return loaded[k][l]; });
    else
      write_lanes<uint32_t>(warp, values[k], [&](int l) { return static_cast<uint32_t>(loaded[k][l]); });
    for_lanes(warp.active, [&](int l) {
      if (origin[l])
        set_undefined(warp, values[k], l, ~uint64_t{0} >> (bytes == 8 ? 0 : 32), origin[l], bytes == 8);
    });
  }
}

std::string repeated(char letter, int count) { return letter + std::to_string(count); }

void add_textures(Table& table, const Form& form) {
  const std::string place = (form.layered ? "w" : "") +
                            repeated(form.whole ? 'w' : 'f', form.coordinates() - form.layered),
                    name = form.name(), from = form.whole ? ".s32" : ".f32";
  const int slopes = form.axes() == 3 ? 4 : form.axes();
  for (const char* type : {".f32", ".s32", ".u32"}) {
    table.add("tex." + name + ".v4" + type + from, "W4a" + place, sample, form.packed());
    if (form.whole) continue;
    table.add("tex.level." + name + ".v4" + type + from, "W4a" + place + "f", sample, form.packed());
    table.add("tex.grad." + name + ".v4" + type + from, "W4a" + place + repeated('f', 2 * slopes), sample,
              form.packed());
    for (int channel = 0; channel < 4 && form.geometry == kPlane; ++channel) {
      Form gather = form;
      gather.gathered = channel + 1;
      table.add("tld4." + std::string(1, "rgba"[channel]) + "." + name + ".v4" + type + from, "W4a" + place,
                sample, gather.packed());
    }
  }
}

void add_surfaces(Table& table, Form form) {
  for (int bytes : {1, 2, 4, 8})
    for (int elements : {1, 2, 4})
      for (int boundary : {kTrap, kClamp, kZero}) {
        if (bytes * elements > 16) continue;
        form.bytes = bytes, form.elements = elements, form.boundary = boundary;
        const std::string rest = form.name() + (elements > 1 ? ".v" + std::to_string(elements) : "") + ".b" +
                                 std::to_string(8 * bytes) +
                                 (boundary == kTrap    ? ".trap"
                                  : boundary == kClamp ? ".clamp"
                                                       : ".zero"),
                          place = "a" + repeated('w', form.coordinates());
        table.add("suld.b." + rest, repeated(bytes == 8 ? 'D' : 'W', elements) + place, access_surface<false>,
                  form.packed());
        table.add("sust.b." + rest, place + repeated(bytes == 8 ? 'd' : 'w', elements), access_surface<true>,
                  form.packed());
      }
}

}  // namespace

void add_texture_operations(Table& table) {
  for (bool layered : {false, true}) {
    for (int geometry : {kLine, kPlane, kVolume, kCube}) {
      if (geometry == kVolume && layered) continue;
      for (bool whole : {false, true})
        if (geometry != kCube || !whole) add_textures(table, Form(geometry, layered, whole));
      if (geometry != kCube) add_surfaces(table, Form(geometry, layered, true));
    }
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
