// The runtime's functions of graphs, and of streams that are captured into one.
#include <algorithm>
#include <map>
#include <memory>

#include "copies.hpp"
#include "runtime.hpp"
#include "textures.hpp"

using namespace workbench::capture;

namespace {

// What `cudaGraphInstantiate` gives: the graph as it was then, and its nodes by those of the graph.
struct Executable {
  std::unique_ptr<Graph> graph;
  std::map<const Node*, Node*> copies;
};

Graph* graph_of(void* handle) { return static_cast<Graph*>(handle); }

std::vector<Edge> edges_of(void* const* handles, size_t count) {
  std::vector<Edge> found;
  for (size_t i = 0; i < count; i++) found.push_back({static_cast<Node*>(handles[i])});
  return found;
}

// What a node does, when the graph is launched into some stream: as it would be done in that stream.
template <class Function>
Work in_stream(Function function) {
  return [function](const Moment& moment) {
    Stream stream{moment.stream, false, 0, 0, moment.known};
    stream.count = moment.number - 1;
    stream.early = moment.early;
    function(stream);
  };
}

Error kernel_work(const KernelNodeParameters& wanted, Work* work) {
  Error error = 0;
  Kernel* kernel = kernel_of_function(wanted.function, &error);
  if (kernel == nullptr) return error ? error : kInvalidDeviceFunction;
  auto arguments =
      wanted.arguments != nullptr ? packed(*kernel, wanted.arguments) : packed_extra(wanted.extra);
  const Launch launched{kernel, three(wanted.grid),  three(wanted.block), {1, 1, 1}, wanted.shared,
                        false,  std::move(arguments)};
  *work = in_stream([launched](Stream& stream) { launch(stream, launched); });
  return kSuccess;
}

Work copy_work(const Memcpy3D& given) {
  Memcpy3D wanted;
  if (!without_arrays(given, &wanted)) wanted.extent = {};
  return in_stream([wanted](Stream& stream) {
    for (size_t z = 0; z < wanted.extent.depth; z++)
      copy(stream, {wanted.slice(wanted.to, wanted.to_position, z),
                    wanted.slice(wanted.from, wanted.from_position, z), static_cast<Direction>(wanted.kind),
                    "a copy of a graph", false});
  });
}

Work fill_work(const FillParameters& wanted) {
  return in_stream([wanted](Stream& stream) {
    fill(stream, {address_of(wanted.to), wanted.pitch, wanted.width * wanted.element_bytes, wanted.height},
         wanted.value, wanted.element_bytes, "a fill of a graph");
  });
}

Work host_work(const HostNodeParameters& wanted) {
  return [wanted](const Moment& moment) {
    waited({{moment.stream, moment.number}}), wanted.function(wanted.data);
  };
}

Error add_node(void** node, void* graph, void* const* after, size_t count, NodeType type, Work work) {
  return *node = graph_of(graph)->add(type, std::move(work), edges_of(after, count)), kSuccess;
}

bool is_kernel(const void* node) { return static_cast<const Node*>(node)->type == NodeType::kernel; }

Node* node_in(void* executable, const void* node) {
  const auto& copies = static_cast<Executable*>(executable)->copies;
  const auto found = copies.find(static_cast<const Node*>(node));
  return found == copies.end() ? nullptr : found->second;
}

Error list(const std::vector<Node*>& found, void** nodes, size_t* count) {
  if (nodes != nullptr) std::copy_n(found.begin(), std::min(*count, found.size()), nodes);
  return *count = found.size(), kSuccess;
}

}  // namespace

CUDA_API Error cudaStreamBeginCapture(void* handle, int) {
  Stream* stream = stream_of(handle);
  return done(stream != nullptr && begin_capture(*stream) ? kSuccess : kCaptureUnsupported);
}
CUDA_API Error cudaStreamEndCapture(void* handle, void** graph) {
  Stream* stream = stream_of(handle);
  *graph = stream == nullptr ? nullptr : end_capture(*stream).release();
  return done(*graph == nullptr ? kCaptureUnmatched : kSuccess);
}
CUDA_API Error cudaStreamIsCapturing(void* handle, int* status) {
  const Stream* stream = stream_of(handle);
  return *status = stream != nullptr && stream->capturing != nullptr, kSuccess;
}
CUDA_API Error cudaStreamGetCaptureInfo(void* handle, int* status, uint64_t* id, void** graph,
                                        const void* const** before, const void**, size_t* count) {
  const Stream* stream = stream_of(handle);
  if (stream == nullptr) return done(kInvalidHandle);
  *status = stream->capturing != nullptr;
  if (stream->capturing == nullptr) return kSuccess;
  if (before != nullptr || count != nullptr) return refuse("cudaStreamGetCaptureInfo of the nodes before");
  if (id != nullptr) *id = address_of(stream->capturing);
  if (graph != nullptr) *graph = stream->capturing;
  return kSuccess;
}
CUDA_API Error cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }

CUDA_API Error cudaGraphCreate(void** graph, unsigned) { return *graph = new Graph, kSuccess; }
CUDA_API Error cudaGraphDestroy(void* graph) { return delete graph_of(graph), kSuccess; }
CUDA_API Error cudaGraphClone(void** copy, void* graph) {
  return *copy = graph_of(graph)->clone().release(), kSuccess;
}

CUDA_API Error cudaGraphAddKernelNode(void** node, void* graph, void* const* after, size_t count,
                                      const KernelNodeParameters* wanted) {
  Work work;
  const Error error = kernel_work(*wanted, &work);
  return error ? done(error) : add_node(node, graph, after, count, NodeType::kernel, std::move(work));
}
CUDA_API Error cudaGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count,
                                      const Memcpy3D* wanted) {
  return add_node(node, graph, after, count, NodeType::copy, copy_work(*wanted));
}
CUDA_API Error cudaGraphAddMemcpyNode1D(void** node, void* graph, void* const* after, size_t count, void* to,
                                        const void* from, size_t bytes, int kind) {
  const Box target{address_of(to), bytes, bytes, 1}, source{address_of(from), bytes, bytes, 1};
  return add_node(node, graph, after, count, NodeType::copy, in_stream([=](Stream& stream) {
                    copy(stream, {target, source, static_cast<Direction>(kind), "a copy of a graph", false});
                  }));
}
CUDA_API Error cudaGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count,
                                      const FillParameters* wanted) {
  return add_node(node, graph, after, count, NodeType::fill, fill_work(*wanted));
}
CUDA_API Error cudaGraphAddHostNode(void** node, void* graph, void* const* after, size_t count,
                                    const HostNodeParameters* wanted) {
  return add_node(node, graph, after, count, NodeType::host, host_work(*wanted));
}
CUDA_API Error cudaGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return add_node(node, graph, after, count, NodeType::empty, {});
}
CUDA_API Error cudaGraphAddChildGraphNode(void** node, void* graph, void* const* after, size_t count,
                                          void* child) {
  return add_node(node, graph, after, count, NodeType::child, graph_of(child)->work());
}
CUDA_API Error cudaGraphAddDependencies_v2(void*, void* const* from, void* const* to, const EdgeData* how,
                                           size_t count) {
  for (size_t i = 0; i < count; i++) {
    const EdgeData edge = how != nullptr ? how[i] : EdgeData{};
    const bool early = edge.port != 0, kernels = is_kernel(from[i]) && is_kernel(to[i]);
    if (edge.port > 2 || (early && edge.type == 1 && !kernels)) return done(kInvalidValue);
    const Port started = edge.type == 1 ? Port::begun : Port::begun_only;
    static_cast<Node*>(to[i])->after.push_back({static_cast<Node*>(from[i]), !early ? Port::ended
                                                                             : edge.port == 1
                                                                                 ? Port::triggered
                                                                                 : started});
  }
  return kSuccess;
}
// Of CUDA 12 the fourth argument is the count; no address is that small.
CUDA_API Error cudaGraphAddDependencies(void* graph, void* const* from, void* const* to, const EdgeData* how,
                                        size_t count) {
  const auto number = reinterpret_cast<size_t>(how);
  const bool is_count = number > 0 && number < kLeastAddress;
  return cudaGraphAddDependencies_v2(graph, from, to, is_count ? nullptr : how, is_count ? number : count);
}
CUDA_API Error cudaGraphGetNodes(void* graph, void** nodes, size_t* count) {
  return list(graph_of(graph)->in_order(), nodes, count);
}
CUDA_API Error cudaGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  std::vector<Node*> found;
  for (Node* node : graph_of(graph)->in_order())
    if (node->after.empty()) found.push_back(node);
  return list(found, nodes, count);
}
CUDA_API Error cudaGraphNodeGetType(void* node, int* type) {
  return *type = static_cast<int>(static_cast<Node*>(node)->type), kSuccess;
}

CUDA_API Error cudaGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  if (!graph_of(graph)->nodes.empty() && graph_of(graph)->in_order().empty()) return done(kInvalidValue);
  auto* created = new Executable;
  created->graph = graph_of(graph)->clone(&created->copies);
  return *executable = created, kSuccess;
}
CUDA_API Error cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
CUDA_API Error cudaGraphExecDestroy(void* executable) {
  return delete static_cast<Executable*>(executable), kSuccess;
}
CUDA_API Error cudaGraphUpload(void*, void*) { return kSuccess; }
CUDA_API Error cudaGraphLaunch(void* executable, void* handle) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return done(kInvalidHandle);
  return launch(*stream, *static_cast<Executable*>(executable)->graph), kSuccess;
}
CUDA_API Error cudaGraphExecUpdate(void* executable, void* graph, void*) {
  auto* changed = static_cast<Executable*>(executable);
  const auto before = changed->graph->in_order(), after = graph_of(graph)->in_order();
  if (before.size() != after.size()) return done(kInvalidValue);
  return changed->graph = graph_of(graph)->clone(&changed->copies), kSuccess;
}
CUDA_API Error cudaGraphKernelNodeSetParams(void* node, const KernelNodeParameters* wanted) {
  return done(kernel_work(*wanted, &static_cast<Node*>(node)->work));
}
CUDA_API Error cudaGraphExecKernelNodeSetParams(void* executable, void* node,
                                                const KernelNodeParameters* wanted) {
  Node* found = node_in(executable, node);
  return done(found == nullptr ? kInvalidHandle : kernel_work(*wanted, &found->work));
}
CUDA_API Error cudaGraphExecMemcpyNodeSetParams(void* executable, void* node, const Memcpy3D* wanted) {
  Node* found = node_in(executable, node);
  return found == nullptr ? done(kInvalidHandle) : (found->work = copy_work(*wanted), kSuccess);
}
CUDA_API Error cudaGraphExecMemsetNodeSetParams(void* executable, void* node, const FillParameters* wanted) {
  Node* found = node_in(executable, node);
  return found == nullptr ? done(kInvalidHandle) : (found->work = fill_work(*wanted), kSuccess);
}
CUDA_API Error cudaGraphExecHostNodeSetParams(void* executable, void* node,
                                              const HostNodeParameters* wanted) {
  Node* found = node_in(executable, node);
  return found == nullptr ? done(kInvalidHandle) : (found->work = host_work(*wanted), kSuccess);
}
