// stream-K: where tiles do not come out even, workers share out the k-iterations of those that are left over,
// evenly, wherever a tile ends. a tile may then be computed in parts.
//
// source: Osama et al., Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication
// on the GPU, 2023: the hybrid of two rounds.
#pragma once

// what worker `worker` does as its work tile `number`
struct StreamK {
  int tile;               // which tile
  int first, iterations;  // which of its k-iterations
  int others;             // workers before this one whose parts are to be added; -1: this is such a part
  int whole;              // how many whole tiles the worker has computed before; -1: this is shared out

  // false: nothing. so many tiles of so many k-iterations each, and so many workers. first a worker's share of the tiles that
  // are shared out, its last tile first: others wait for the beginning of that one, and no worker waits before
  // it has left what others wait for. then whole tiles, in rounds
  __device__ __forceinline__ bool work(int number, int worker, int workers, int tiles, int all_iterations,
                                       int least_gain) {
    const int shared_out = to_share(tiles, workers, all_iterations, least_gain);
    const int all = shared_out * all_iterations, each = all / workers, more = all % workers;
    const auto share_of = [&](int worker) { return each * worker + more * worker / workers; };
    const int from = share_of(worker), to = share_of(worker + 1), last = (to - 1) / all_iterations;
    const int parts = to > from ? last - from / all_iterations + 1 : 0;
    others = 0;
    if (number < parts) {
      tile = last - number;
      const int begin = tile * all_iterations, end = begin + all_iterations;
      first = max(from - begin, 0);
      iterations = min(to, end) - max(from, begin);
      whole = -1;
      if (to < end)
        others = -1;
      else
        while (share_of(worker - others) > begin) ++others;
    } else {
      whole = number - parts;
      tile = shared_out + whole * workers + worker;
      if (tile >= tiles) return false;
      first = 0;
      iterations = all_iterations;
    }
    return true;
  }

  // how many tiles. none where workers would not gain `least_gain` iterations, what handing over parts costs.
  // few that are left over together with a whole round: a tile of which many have a part is slow to add up
  static __device__ __forceinline__ int to_share(int tiles, int workers, int iterations, int least_gain) {
    const int left = tiles % workers, gain = (workers - left) * iterations / workers;
    if (left == 0 || gain < least_gain) return 0;
    return left * 2 < workers ? left + workers : left;
  }
};
