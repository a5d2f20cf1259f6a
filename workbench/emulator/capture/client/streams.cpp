#include "streams.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>

namespace workbench::capture {
namespace {

constexpr unsigned kNonBlocking = 1;

std::recursive_mutex mutex;
uint64_t next_stream = 1, next_lane = kFirstLane;

std::vector<std::unique_ptr<Stream>>& streams() {
  static auto* all = new std::vector<std::unique_ptr<Stream>>;  // destructors of the program destroy streams
  return *all;
}

// What the host has waited for: all that it submits later comes behind.
Clock& host() {
  static auto* clock = new Clock;
  return *clock;
}

Stream& legacy() {
  static auto* stream = new Stream{0, true, 0, 0};
  return *stream;
}

void merge(Clock& into, const Clock& other) {
  for (const auto& [stream, number] : other) into[stream] = std::max(into[stream], number);
}

// What comes next in a stream waits for these, too.
void wait(Stream& stream, const Clock& known) {
  merge(stream.known, known);
  merge(stream.begun, known);
}

// What comes next in a stream; the legacy stream and the blocking ones wait for one another.
Moment advance(Stream& stream) {
  if (&stream == &legacy()) {
    for (const auto& other : streams())
      if (other->blocking) wait(stream, other->known);
  } else if (stream.blocking) {
    wait(stream, legacy().known);
  }
  wait(stream, host());
  Moment moment{stream.id, ++stream.count, stream.known};
  stream.known[stream.id] = stream.count;
  return moment;
}

void host_waits(const Clock& known) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  merge(host(), known);
  waited(known);
}

}  // namespace

Request& add_moment(Request& request, const Moment& moment) {
  request.number(moment.stream).number(moment.number).number(moment.known.size());
  for (const auto& [stream, number] : moment.known) request.number(stream).number(number);
  request.number(moment.early.size());
  for (const Early& one : moment.early)
    request.number(one.stream).number(one.number).number(static_cast<uint64_t>(one.port));
  return request;
}

Node* Graph::add(NodeType type, Work work, std::vector<Edge> after) {
  nodes.push_back(std::make_unique<Node>(Node{type, std::move(work), std::move(after), nullptr}));
  return nodes.back().get();
}

std::vector<Node*> Graph::in_order() const {
  std::vector<Node*> done;
  const auto is_done = [&](const Node* node) {
    return std::find(done.begin(), done.end(), node) != done.end();
  };
  const auto may_begin = [&](const Edge& edge) { return is_done(edge.from); };
  for (bool moved = true; moved && done.size() < nodes.size();) {
    moved = false;
    for (const auto& node : nodes) {
      if (is_done(node.get()) || !std::all_of(node->after.begin(), node->after.end(), may_begin)) continue;
      done.push_back(node.get());
      moved = true;
    }
  }
  if (done.size() < nodes.size()) done.clear();
  return done;
}

std::unique_ptr<Graph> Graph::clone(std::map<const Node*, Node*>* copies) const {
  std::map<const Node*, Node*> found;
  auto copy = std::make_unique<Graph>();
  for (const auto& node : nodes) {
    found[node.get()] = copy->add(node->type, node->work, {});
    found[node.get()]->parameters = node->parameters;
  }
  for (const auto& node : nodes)
    for (const Edge& edge : node->after) found[node.get()]->after.push_back({found[edge.from], edge.port});
  if (copies != nullptr) *copies = found;
  return copy;
}

void Graph::run(Moment& moment) {
  merge(moment.known, ended);
  const Moment first = moment;
  std::map<const Node*, Moment> begun;
  std::map<const Node*, Clock> ends;
  std::vector<const Node*> last;  // of each lane
  for (const Node* node : in_order()) {
    const auto& after = node->after;
    const auto lane = std::find_if(last.begin(), last.end(), [&](const Node* one) {
      return std::any_of(after.begin(), after.end(), [&](const Edge& edge) { return edge.from == one; });
    });
    const auto number = static_cast<size_t>(lane - last.begin());
    if (lane == last.end())
      last.push_back(node);
    else
      *lane = node;
    if (number == lanes.size()) lanes.push_back({next_lane++, 0});
    Moment own{lanes[number].id, ++lanes[number].count, first.known};
    for (const auto& [from, port] : after) {
      merge(own.known, port == Port::ended ? ends[from] : begun[from].known);
      if (port != Port::ended) own.early.push_back({begun[from].stream, begun[from].number, port});
    }
    begun[node] = own;
    if (node->work) node->work(own);
    own.known[own.stream] = own.number;
    merge(moment.known, own.known);
    ends[node] = std::move(own.known);
  }
  ended = moment.known;
}

Work Graph::work() const {
  const std::shared_ptr<Graph> copy = clone();
  return [copy](Moment& moment) { copy->run(moment); };
}

Stream* stream_of(const void* handle) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto value = reinterpret_cast<uint64_t>(handle);
  if (value <= 1) return &legacy();
  if (value == 2) {
    thread_local Stream* own = create_stream(0, 0);
    return own;
  }
  for (const auto& stream : streams())
    if (stream.get() == handle) return stream.get();
  return nullptr;
}

Stream* create_stream(unsigned flags, int priority) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  streams().push_back(
      std::make_unique<Stream>(Stream{next_stream++, (flags & kNonBlocking) == 0, priority, flags}));
  return streams().back().get();
}

bool destroy_stream(Stream* stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto& all = streams();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.get() == stream; });
  if (found == all.end()) return false;
  merge(legacy().known, stream->known);  // its work is still to be waited for
  all.erase(found);
  return true;
}

namespace {

void capture(Stream& stream, NodeType type, Work work, std::shared_ptr<void> parameters) {
  Node* node = stream.capturing->add(type, std::move(work), stream.frontier);
  node->parameters = std::move(parameters);
  stream.frontier.assign(1, {node});
}

void carry_out(Stream& stream, Moment& moment, const Work& work) {
  std::swap(moment.early, stream.early);
  work(moment);
  merge(stream.known, moment.known);
}

}  // namespace

void submit(Stream& stream, NodeType type, Work work, std::shared_ptr<void> parameters) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  stream.kernel = 0;
  if (stream.capturing != nullptr) return capture(stream, type, std::move(work), std::move(parameters));
  Moment moment = advance(stream);
  carry_out(stream, moment, work);
}

void submit_kernel(Stream& stream, Work work, bool programmatic, const std::vector<EarlyEvent>& events) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (stream.capturing != nullptr) {
    if (programmatic && stream.kernel > 0) stream.frontier[0].port = Port::triggered;
    capture(stream, NodeType::kernel, std::move(work), nullptr);
    stream.kernel = 1;
    for (const auto& [event, port] : events)
      *event = {true, event->timed, {}, 0, stream.capturing, {{stream.frontier[0].from, port}}, {}};
    return;
  }
  Moment moment = advance(stream);
  if (programmatic && stream.kernel > 0) {
    moment.known = stream.begun;
    stream.early.push_back({stream.id, stream.kernel, Port::triggered});
  }
  stream.begun = moment.known;
  stream.kernel = moment.number;
  for (const auto& [event, port] : events)
    *event = {true,
              event->timed,
              moment.known,
              now_milliseconds(),
              nullptr,
              {},
              {{stream.id, moment.number, port}}};
  carry_out(stream, moment, work);
}

void record(Stream& stream, Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  event.captured = stream.capturing;
  event.frontier = stream.frontier;
  event.recorded = true;
  if (stream.capturing != nullptr) return;
  advance(stream);
  event.known = stream.known;
  event.early = stream.early;
  event.milliseconds = now_milliseconds();
}

void wait(Stream& stream, const Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!event.recorded) return;
  if (event.captured != nullptr) {
    if (stream.capturing == nullptr) stream.kernel = 0;
    stream.capturing = event.captured;
    for (const Edge& edge : event.frontier)
      if (std::find(stream.frontier.begin(), stream.frontier.end(), edge) == stream.frontier.end())
        stream.frontier.push_back(edge);
    return;
  }
  wait(stream, event.known);
  stream.early.insert(stream.early.end(), event.early.begin(), event.early.end());
}

void launch(Stream& stream, Graph& graph) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (stream.capturing != nullptr) return submit(stream, NodeType::child, graph.work());
  submit(stream, NodeType::child, [&graph](Moment& moment) { graph.run(moment); });
}

void synchronize(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (&stream == &legacy()) advance(legacy());
  host_waits(stream.known);
}

void synchronize(const Event& event) { host_waits(event.known); }

void synchronize_device() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  Clock all = legacy().known;
  for (const auto& stream : streams()) merge(all, stream->known);
  host_waits(all);
}

bool begin_capture(Stream& stream, std::unique_ptr<Graph> into) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (stream.capturing != nullptr || &stream == &legacy()) return false;
  stream.capturing = into ? into.release() : new Graph;
  stream.origin = true;
  stream.frontier.clear();
  stream.kernel = 0;
  return true;
}

std::unique_ptr<Graph> end_capture(Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!stream.origin) return nullptr;
  std::unique_ptr<Graph> graph(stream.capturing);
  for (const auto& other : streams()) {
    if (other->capturing != graph.get()) continue;
    other->capturing = nullptr;
    other->frontier.clear();
    other->kernel = 0;
  }
  stream.origin = false;
  return graph;
}

double now_milliseconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(clock::now().time_since_epoch()).count();
}

}  // namespace workbench::capture
