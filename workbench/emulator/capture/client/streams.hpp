// Streams, events and graphs: in which order the host's requests are carried out, and what the host may rely
// on.
//
// Work is carried out when it is submitted, which is one of the orders that CUDA allows. What is known of
// other orders is in clocks: each stream counts its operations, and knows how far those of others had come
// that it has waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "connection.hpp"
#include "memory.hpp"

namespace workbench::capture {

struct Graph;

// How far a kernel has come when what waits for it may begin: engine.hpp has the same.
enum class Port : uint8_t { ended, triggered, begun, begun_only };

// A kernel that was launched, and need not have ended.
struct Early {
  uint64_t stream, number;
  Port port;
};

// An operation of a stream, by its number there, what has ended before it, and what has only begun.
struct Moment {
  uint64_t stream, number;
  Clock known;
  std::vector<Early> early = {};
};
Request& add_moment(Request& request, const Moment& moment);
// Carries an operation out. What `known` has then has ended when the operation has.
using Work = std::function<void(Moment&)>;

enum class NodeType : int {
  kernel = 0,
  copy = 1,
  fill = 2,
  host = 3,
  child = 4,
  empty = 5,
  wait = 6,
  record = 7,
  allocate = 10,
  release = 11
};

struct Node;
struct Edge {
  Node* from;
  Port port = Port::ended;
};
inline bool operator==(const Edge& a, const Edge& b) { return a.from == b.from && a.port == b.port; }

struct Node {
  NodeType type;
  Work work;
  std::vector<Edge> after;
  std::shared_ptr<void> parameters;  // what cudaGraph*NodeGetParams gives back
};

// Nodes of a graph that follow one another have a stream of their own, which no handle names.
struct Lane {
  uint64_t id, count;
};
constexpr uint64_t kFirstLane = uint64_t{1} << 32;  // explain/launches.py knows it, too

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Lane> lanes;
  Clock ended;  // of its last launch, which the next one waits for
  Node* add(NodeType type, Work work, std::vector<Edge> after);
  // Each node behind those it comes after; empty where they form a circle.
  std::vector<Node*> in_order() const;
  // The same nodes again; `copies` has them by the nodes that they are copies of.
  std::unique_ptr<Graph> clone(std::map<const Node*, Node*>* copies = nullptr) const;
  // Carries its nodes out; what no edges order may overlap.
  void run(Moment& moment);
  // The same for a copy of the graph as it is now.
  Work work() const;
};

struct Event {
  bool recorded = false, timed = true;
  Clock known;
  double milliseconds = 0;
  Graph* captured = nullptr;
  std::vector<Edge> frontier;
  std::vector<Early> early;
};
// An event that a launch records before its end.
struct EarlyEvent {
  Event* event;
  Port port;
};

struct Stream {
  uint64_t id;
  bool blocking;  // waits for the legacy stream, and it for this one
  int priority;
  unsigned flags;
  Clock known = {};  // has ended before what comes next
  Graph* capturing = nullptr;
  bool origin = false;  // that began to be captured
  std::vector<Edge> frontier = {};
  uint64_t count = 0;             // of its operations
  std::vector<Early> early = {};  // what the next one waits for, but for its end
  Clock begun = {};               // had ended when the last one began
  uint64_t kernel = 0;            // the last one, if it was one
};

// A handle of the program's as a stream; null where it is none. 0 and 1 are the legacy stream, 2 the thread's
// own.
Stream* stream_of(const void* handle);
Stream* create_stream(unsigned flags, int priority);
bool destroy_stream(Stream* stream);

// Carries work out, or adds it to the graph that the stream is being captured into.
void submit(Stream& stream, NodeType type, Work work, std::shared_ptr<void> parameters = nullptr);
// The same of a launch, which may be `programmatic`: it may begin before the one in front of it has ended.
void submit_kernel(Stream& stream, Work work, bool programmatic, const std::vector<EarlyEvent>& events);
void record(Stream& stream, Event& event);
void wait(Stream& stream, const Event& event);
void launch(Stream& stream, Graph& graph);

// The host waits.
void synchronize(const Stream& stream);
void synchronize(const Event& event);
void synchronize_device();

bool begin_capture(Stream& stream, std::unique_ptr<Graph> into = nullptr);
std::unique_ptr<Graph> end_capture(Stream& stream);
double now_milliseconds();

}  // namespace workbench::capture
