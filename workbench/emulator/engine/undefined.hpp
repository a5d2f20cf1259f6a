// Values that are undefined, because they come from memory or from registers that nothing has written.
//
// Reading such memory is no fault by itself: a tail may be loaded with its tile and never be used. The value
// read is undefined, and so is what is computed from it. It becomes a fault where it matters: in an address,
// a condition, an atomic, an operand of a barrier or a copy, or a store to global memory. Shared and local
// memory keep it: a copy of an undefined value is undefined.
//
// A warp has a shadow register file, of the shape of its registers, with a bit set where the register's bit
// is undefined. Nearly no warp ever holds an undefined value: the shadow is made when the first one is
// loaded, and instructions are only followed while some register has undefined bits (`Warp::tracking`).
#pragma once

#include <unordered_map>

#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// What made an undefined value matter; `Fault::info`.
enum class Use : int64_t { read, address, condition, stored, updated, collective, operand };

struct Origin {  // of an undefined value
  int32_t pc;    // of the instruction that read it
  Space space;   // what it read; none: a register
  uint64_t address;
  uint32_t rank;          // of the block, in shared memory
  bool overflow = false;  // not undefined, but the result of index arithmetic that did not fit
};

struct ClusterUndefined {
  std::vector<Origin> origins{Origin{}};           // an undefined value knows its index; 0 is none
  std::unordered_map<uint64_t, uint32_t> known;    // of these, those of memory, by address and instruction
  std::unordered_map<uint64_t, uint32_t> holding;  // origins of the bytes that are kHoldsUndefined, by place
};

struct WarpUndefined {
  std::vector<uint8_t> storage;
  uint8_t* bits = nullptr;       // as the register file
  std::vector<uint32_t> origin;  // [slot / 128][lane]
  std::vector<uint8_t> live;     // [slot / 128]: whether any lane has undefined bits there
  int32_t cells = 0;             // that are live
  uint32_t carry = 0;            // lanes whose carry flag is undefined
  uint32_t carry_origin = 0;
};

// How an instruction hands undefined values on; known by its name.
enum class Follow : uint8_t {
  lanewise,     // all bits of the result, when any bit of a source is undefined in that lane
  halves,       // the same for each half
  pack_halves,  // the first source to the upper half, the second one to the lower
  pack_bytes,   // the same of the lower half: floats to a pair of 8 bits each
  to_bytes,     // each half to a byte of the lower half
  from_bytes,   // each byte of the lower half to a half
  moves,        // bits go where the operation puts them
  logic,        // and, or, xor, not, lop3: bits that are known whatever the undefined ones are stay known
  shuffle,
  transpose,   // movmatrix
  collective,  // all results in all lanes
  matrix,      // mma and wmma: what depends on it
  load,
  store,
  load_tiles,
  store_tiles,
  store_fragment,  // wmma, which knows where its elements lie
  group_product,   // wgmma
  store_tensor,    // to tensor memory
  uses,            // every source matters
  ignored,
};

struct Following {
  Follow how = Follow::lanewise;
  uint8_t bytes = 4;      // of the type named last
  uint32_t controls = 0;  // moves: the operands that say where bits go, a bit each
  Use use = Use::operand;
  bool reads_carry = false, writes_carry = false;
  bool indexes = false;  // arithmetic after which an index that did not fit is still one
};
Following following(const Operation& operation, int operands);

// ---- for the scheduler, while a warp is tracked

void start_undefined(Warp& warp);  // its registers that nothing may have written yet
// Faults when the guard is undefined in one of the lanes that reach it.
void check_guard(Warp& warp, const Instruction& instruction, uint32_t lanes);
// What the instruction does to the shadow without executing it; the active lanes execute it.
void follow_control(Warp& warp, const Instruction& instruction);
void follow_move(Warp& warp, const Instruction& instruction);
void execute_tracked(Warp& warp, const Instruction& instruction);

// ---- for operations that read memory

// After a load that found bytes unwritten (`Warp::read_unwritten`): its registers become undefined.
void loaded_undefined(Warp& warp, const Instruction& instruction, Space space, const uint64_t* address,
                      uint32_t element_bytes, bool is_signed);
void loaded_undefined_tiles(Warp& warp, const Instruction& instruction, Space space, const uint64_t* rows,
                            int tiles, bool transposed);
// The origin of the first undefined byte of a run, or 0.
uint32_t origin_in_memory(const Warp& warp, Space space, uint64_t address, uint64_t bytes, int lane);
uint32_t origin_in_shared(const Warp& warp, const Block& block, uint32_t offset, uint64_t bytes);
uint32_t origin_in_register(const Warp& warp, const Operand& operand, int lane, bool wide = false);
// What a lane has read of tensor memory that nothing has written.
uint32_t origin_in_tensor_memory(const Warp& warp, uint64_t address);
// Some bits of a register: undefined, or without an origin defined.
void set_undefined(Warp& warp, const Operand& operand, int lane, uint64_t bits, uint32_t origin,
                   bool wide = false);
uint64_t undefined_bits(const Warp& warp, const Operand& operand, int lane, bool wide);
// A byte of an undefined value was stored: shared and local memory take it over, in global memory it matters.
void stored_undefined(const Warp& warp, Space space, uint64_t address, int lane, uint32_t origin);
// Bytes that a copy brought from where they were undefined: from global memory, or from that of a block.
void copied_undefined(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint64_t from,
                      const Block* from_block = nullptr);

// A value that is stored to global memory. That of shared memory which nothing has written yet may be a race
// with a write that is still to come, which says more: the launch then goes on, and ends with this fault
// unless the race or copy in flight turns up.
void undefined_stored(const Warp& warp, int lane, uint32_t origin);
void undefined_matters(const Warp& warp, int lane, uint32_t origin, Use use);

// ---- indices that overflow

// The operation that also looks for results that do not fit; null where it is none that is watched.
Function watched(const Operation& operation, int32_t flags);

}  // namespace workbench::emulator::WORKBENCH_ISA
