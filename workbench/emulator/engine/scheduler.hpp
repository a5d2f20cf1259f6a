// What the scheduler, the barriers and the launch need from each other.
#pragma once

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// launch.cpp: storage of a block, and its state at the start of a run
void allocate(Block& block);
void reset(Block& block, const uint32_t* cluster_position, const uint32_t* within_cluster);
int64_t linear(const Launch& launch, const uint32_t* block);                  // number of a block in its grid
void place_cluster(const Launch& launch, int64_t index, uint32_t* position);  // among the clusters

// scheduler.cpp: parks lanes in front of a collective, and lets them run once they are all that it needs
void park_for_collective(Warp& warp, uint32_t lanes, Wait wait, uint64_t key, uint32_t needed,
                         uint64_t expected = 0);
// after an atomic or ordered access or a fence: by the draw another warp runs first, or another cluster where
// that can tell; for certain after many reads of one value at one address
void may_give_way(Warp& warp, bool clusters_can_tell, const uint8_t* place = nullptr, uint32_t bytes = 0);
// whether all lanes of the warp are at this instruction; if not, these wait for the others
bool gather(Warp& warp, uint32_t lanes);
// Lanes have met: from here on they take one way, which matters while others are apart.
inline void lanes_met(Warp& warp, uint32_t lanes) {
  if (lanes == warp.alive) warp.apart = false;
  warp.apart ? warp.take_one_way(lanes) : void(++warp.ways);
}

// barrier.cpp
int barrier_expected(const Block& block, int number);
int barrier_arrived(const Block& block, int number);
bool barrier_lacks_lanes(const Block& block, const Warp& warp,
                         const Group& group);      // of a warp that must wait together
bool barriers_lack_lanes(const Cluster& cluster);  // any of them
void forget_suspected(Cluster& cluster);           // what a barrier explains that part of a warp passes by
void check_barriers(Block& block);                 // after threads arrived or exited
void check_cluster_barrier(Cluster& cluster);

// Finds, of branches, the sides from where no barrier of all of the block's threads can be reached.
void find_ways_beyond_barriers(Code& code);

}  // namespace workbench::emulator::WORKBENCH_ISA
