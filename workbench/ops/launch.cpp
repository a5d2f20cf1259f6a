// A call of an operation whose class is known, in one function: it reads the arrays, finds what is ready for
// them, allocates the results and calls the driver. workbench/ops/launched.py says what it is given.
//
// `call` returns None for everything that it does not know, before it has launched anything; workbench.ops
// then takes the way through Python, which defines what a call does.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000  // Python 3.11
#include <Python.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kMostArrays = 32;  // inputs, results and scratch of a call
constexpr int kMostParameters = 64;
constexpr int kMostMaps = 8;
constexpr int kMapBytes = 128;
constexpr uint64_t kMostAligned = 256;
constexpr int kCudaDevice = 2;       // kDLCUDA
constexpr uintptr_t kPerThread = 2;  // cudaStreamPerThread, which stands for a stream of every thread
// CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE: the thread has no context, or another one
constexpr int kNoContext[] = {201, 400};

// The driver.

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct LaunchAttribute {  // CUlaunchAttribute
  int id, pad;
  unsigned value[16];
};

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
LaunchAttribute kProgrammatic{6, 0, {1}};

using Launch = int (*)(const LaunchConfig*, void* function, void** parameters, void** extra);
using Replace = int (*)(void* map, void* address);
using Device = int (*)(int* device);
using Capturing = int (*)(void* stream, int* status);

// DLPack 1.3, of which only what is read is named.

struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct DlExchange {
  uint32_t major, minor;
  DlExchange* previous;
  void *allocate, *from_object, *to_object;
  int (*view)(void* object, DlTensor* out);
  int (*stream)(int device_type, int32_t device_id, void** out);
};

// Python.

struct Release {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Release>;

Owned shared(PyObject* object) {
  Py_XINCREF(object);
  return Owned(object);
}

Owned attribute(PyObject* object, PyObject* name) { return Owned(PyObject_GetAttr(object, name)); }

struct Names {
  PyObject *data, *ptr, *shape, *strides, *dtype, *device_id, *requires_grad, *ready, *hot, *fill, *zeroed;
};
Names names;

// What is ready.

struct Block {
  alignas(64) unsigned char bytes[kMapBytes];
};

struct Map {  // of an argument of a launch
  int launch, place, index;
  uint64_t offset;
  Block first;
  std::unordered_map<uint64_t, Block> known;
};

struct Step {
  std::string kernel;
  void* function;
  LaunchConfig config;
  std::vector<int> pointers;                      // by parameter: the index of an address, or -1
  std::vector<std::vector<unsigned char>> bytes;  // by parameter: a scalar
};

struct Maker {
  Owned function, arguments;
};

struct Kind {                      // a kind of arrays
  DlExchange* exchange = nullptr;  // PyTorch's; CuPy's arrays are read by their attributes
  Owned types;                     // of tensors that it may be asked about
  Owned grad_enabled;              // whether gradients are recorded
  Owned recorded;                  // what makes a call with tensors that need one, or None
  intptr_t (*stream_of)(int) = nullptr;
  Owned stream;  // a function that returns it, where there is none in C
};

struct Zeroed {  // scratch that is zero before and after every call on a stream
  Owned kept;
  std::vector<uint64_t> addresses;
};

struct Ready {
  Kind* kind;
  Owned keeps;  // the capsule of the kind
  int device;
  Launch launch;
  Replace replace;
  Device current;
  Capturing capturing;
  size_t most_maps;
  std::vector<Maker> makers;
  std::vector<uint64_t> inputs, results;     // spans in bytes
  Owned collect;                             // what puts several results together, or None
  bool fill;                                 // the class has arrays between
  std::vector<uint64_t> scratch;             // where they are memory alone: bytes of each, else empty
  std::vector<uint64_t> is_zero;             // of each, whether it has to be zero
  Maker scratch_maker;                       // of all that need not
  std::unordered_map<void*, Zeroed> zeroed;  // by stream
  Owned enter;                               // makes the context of the device current
  Owned failed;                              // the error of a status
  std::vector<Step> steps;
  std::vector<Map> maps;
};

const char* const kKind = "workbench.ops.kind";
const char* const kReady = "workbench.ops.ready";

uint64_t number(PyObject* object) {
  return object ? static_cast<uint64_t>(PyLong_AsUnsignedLongLong(object)) : ~uint64_t{0};
}

bool numbers(PyObject* list, std::vector<uint64_t>& out) {
  for (Py_ssize_t i = 0, count = PyTuple_Size(list); i < count; ++i)
    out.push_back(number(PyTuple_GetItem(list, i)));
  return !PyErr_Occurred();
}

PyObject* tuple_of(const int64_t* values, int count, int64_t scale) {
  PyObject* made = PyTuple_New(count);
  for (int i = 0; made && i < count; ++i) PyTuple_SetItem(made, i, PyLong_FromLongLong(values[i] * scale));
  return made;
}

// The address of an array.
bool address_of(const Kind& kind, PyObject* array, uint64_t& address) {
  if (kind.exchange) {
    DlTensor view;
    if (kind.exchange->view(array, &view)) return false;
    address = reinterpret_cast<uint64_t>(view.data) + view.byte_offset;
    return true;
  }
  const Owned data = attribute(array, names.data);
  if (!data) return false;
  address = number(attribute(data.get(), names.ptr).get());
  return !PyErr_Occurred();
}

// What an array has in a key, at `place`, and its address.
bool read(const Kind& kind, PyObject* array, PyObject* key, Py_ssize_t place, uint64_t& address) {
  Owned shape, strides, device;
  if (kind.exchange) {
    DlTensor view;
    if (kind.exchange->view(array, &view) || view.device_type != kCudaDevice) return false;
    if (view.ndim && !view.strides) return false;
    address = reinterpret_cast<uint64_t>(view.data) + view.byte_offset;
    shape.reset(tuple_of(view.shape, view.ndim, 1));
    strides.reset(tuple_of(view.strides, view.ndim, 1));
    device.reset(PyLong_FromLong(view.device_id));
  } else {
    const Owned data = attribute(array, names.data);
    if (!data) return false;
    address = number(attribute(data.get(), names.ptr).get());
    shape = attribute(array, names.shape);
    strides = attribute(array, names.strides);
    device = attribute(data.get(), names.device_id);
  }
  Owned dtype = attribute(array, names.dtype);
  if (!shape || !strides || !dtype || !device || PyErr_Occurred()) return false;
  PyTuple_SetItem(key, place, shape.release());
  PyTuple_SetItem(key, place + 1, strides.release());
  PyTuple_SetItem(key, place + 2, dtype.release());
  PyTuple_SetItem(key, place + 3, device.release());
  return true;
}

// Whether all are tensors that may be asked, and whether one needs a gradient that is to be recorded.
bool tensors(const Kind& kind, PyObject* const* objects, Py_ssize_t count, bool& needed) {
  const Owned enabled(PyObject_CallNoArgs(kind.grad_enabled.get()));
  if (!enabled) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(objects[i]));
    if (PySequence_Contains(kind.types.get(), type) != 1) return false;
    if (enabled.get() == Py_False || needed) continue;
    const Owned needs = attribute(objects[i], names.requires_grad);
    if (!needs) return false;
    needed = needs.get() != Py_False;
  }
  return true;
}

// The key with options behind it, as workbench.model.calls has it.
Owned with_options(Owned key, PyObject* options) {
  const Py_ssize_t count = PyDict_Size(options);
  if (count <= 0) return key;
  Owned made(PyTuple_New(count + 1));
  if (!made) return made;
  PyTuple_SetItem(made.get(), 0, key.release());
  PyObject *name, *value;
  Py_ssize_t at = 0;
  for (Py_ssize_t place = 1; PyDict_Next(options, &at, &name, &value); ++place) {
    PyObject* pair = PyTuple_Pack(2, name, value);
    if (!pair) return {};
    PyTuple_SetItem(made.get(), place, pair);
  }
  return made;
}

bool stream_of(const Ready& ready, void*& stream) {
  const Kind& kind = *ready.kind;
  if (kind.exchange) return !kind.exchange->stream(kCudaDevice, ready.device, &stream);
  if (kind.stream_of) {
    stream = reinterpret_cast<void*>(kind.stream_of(ready.device));
  } else {
    const Owned found(PyObject_CallNoArgs(kind.stream.get()));
    stream = reinterpret_cast<void*>(number(found.get()));
  }
  return !PyErr_Occurred();
}

bool apart(const Ready& ready, const uint64_t* addresses) {
  for (size_t r = 0; r < ready.results.size(); ++r) {
    const uint64_t first = addresses[ready.inputs.size() + r], end = first + ready.results[r];
    for (size_t i = 0; i < ready.inputs.size(); ++i)
      if (addresses[i] < end && first < addresses[i] + ready.inputs[i]) return false;
  }
  return true;
}

// The map of memory at an address; false where the driver does not make it.
bool map_at(const Ready& ready, Map& map, uint64_t address, Block& out) {
  const auto found = map.known.find(address);
  if (found != map.known.end()) {
    out = found->second;
    return true;
  }
  out = map.first;
  if (ready.replace(out.bytes, reinterpret_cast<void*>(address + map.offset))) return false;
  if (map.known.size() >= ready.most_maps) map.known.clear();
  try {
    map.known.emplace(address, out);
  } catch (const std::bad_alloc&) {  // it is made again next time
  }
  return true;
}

// Enqueues a launch. What the driver reads lies on this thread's stack, and other threads of Python run
// meanwhile: a launch may wait for the device.
int enqueue(const Ready& ready, const Step& step, size_t launch, uint64_t* addresses, Block* maps,
            void* stream) {
  LaunchConfig config = step.config;
  config.stream = stream;
  void* parameters[kMostParameters];
  for (size_t p = 0; p < step.pointers.size(); ++p) {
    const int index = step.pointers[p];
    parameters[p] =
        index >= 0 ? static_cast<void*>(addresses + index) : const_cast<unsigned char*>(step.bytes[p].data());
  }
  for (size_t m = 0; m < ready.maps.size(); ++m)
    if (ready.maps[m].launch == static_cast<int>(launch)) parameters[ready.maps[m].place] = maps[m].bytes;
  PyThreadState* state = PyEval_SaveThread();
  const int status = ready.launch(&config, step.function, parameters, nullptr);
  PyEval_RestoreThread(state);
  return status;
}

PyObject* none() {  // the way through Python
  PyErr_Clear();
  Py_RETURN_NONE;
}

// A call that is under way.
struct Call {
  Ready& ready;
  PyObject *prepared, *arrays;
  uint64_t addresses[kMostArrays];
  int count;
  void* stream;
  Owned results, kept;

  bool make() {  // the results; false with an error
    results.reset(PyTuple_New(static_cast<Py_ssize_t>(ready.makers.size())));
    if (!results) return false;
    for (size_t i = 0; i < ready.makers.size(); ++i) {
      PyObject* made =
          PyObject_Call(ready.makers[i].function.get(), ready.makers[i].arguments.get(), nullptr);
      if (!made) return false;
      PyTuple_SetItem(results.get(), static_cast<Py_ssize_t>(i), made);
      if (!address_of(*ready.kind, made, addresses[count++])) return false;
    }
    return true;
  }

  // Where the scratch memory is; false with an error.
  bool memory_at(uint64_t& address) const {
    if (ready.kind->exchange) return address_of(*ready.kind, kept.get(), address);
    address = number(attribute(kept.get(), names.ptr).get());
    return !PyErr_Occurred();
  }

  // Scratch that is zero, of this stream; null with an error.
  const Zeroed* zeroed() const {
    const auto found = ready.zeroed.find(stream);
    if (found != ready.zeroed.end()) return &found->second;
    const Owned handle(PyLong_FromVoidPtr(stream)), method = attribute(prepared, names.zeroed);
    if (!handle || !method) return nullptr;
    Zeroed made{Owned(PyObject_CallFunctionObjArgs(method.get(), handle.get(), nullptr)), {}};
    if (!made.kept || !numbers(PyTuple_GetItem(made.kept.get(), 0), made.addresses)) return nullptr;
    return &ready.zeroed.emplace(stream, std::move(made)).first->second;
  }

  // Scratch; false with an error.
  bool scratch() {
    uint64_t fresh = 0, zero = 0, at = 0;
    for (const uint64_t is_zero : ready.is_zero) ++(is_zero ? zero : fresh);
    const Zeroed* of_stream = zero ? zeroed() : nullptr;
    if (zero && !of_stream) return false;
    if (fresh) {
      kept.reset(
          PyObject_Call(ready.scratch_maker.function.get(), ready.scratch_maker.arguments.get(), nullptr));
      if (!kept || !memory_at(at)) return false;
    }
    zero = 0;
    for (size_t i = 0; i < ready.scratch.size(); ++i) {
      if (ready.is_zero[i]) {
        addresses[count++] = of_stream->addresses[zero++];
      } else {
        addresses[count++] = at;
        at += (ready.scratch[i] + kMostAligned - 1) / kMostAligned * kMostAligned;
      }
    }
    return true;
  }

  // The arrays between; false with an error.
  bool fill() {
    int captured = 1;
    const bool of_thread = stream == reinterpret_cast<void*>(kPerThread);
    if (!ready.scratch.empty() && !of_thread && !ready.capturing(stream, &captured) && !captured)
      return scratch();
    const Owned list(PyList_New(0));
    for (int i = 0; list && i < count; ++i) {
      const Owned address(PyLong_FromUnsignedLongLong(addresses[i]));
      if (!address || PyList_Append(list.get(), address.get())) return false;
    }
    const Owned handle(PyLong_FromVoidPtr(stream));
    const Owned method = attribute(prepared, names.fill);
    if (!list || !handle || !method) return false;
    kept.reset(
        PyObject_CallFunctionObjArgs(method.get(), arrays, list.get(), results.get(), handle.get(), nullptr));
    if (!kept) return false;
    const Py_ssize_t all = PyList_Size(list.get());
    for (; count < all && count < kMostArrays; ++count)
      addresses[count] = number(PyList_GetItem(list.get(), count));
    return !PyErr_Occurred();
  }

  // Makes the context of the device current; false where it was not missing, or could not be.
  bool enter(int status) const {
    if (status != kNoContext[0] && status != kNoContext[1]) return false;
    const Owned entered(PyObject_CallNoArgs(ready.enter.get()));
    return entered && !number(entered.get());
  }

  bool launch(Block* maps) {  // false with an error
    for (size_t s = 0; s < ready.steps.size(); ++s) {
      int status = enqueue(ready, ready.steps[s], s, addresses, maps, stream);
      if (enter(status)) status = enqueue(ready, ready.steps[s], s, addresses, maps, stream);
      if (PyErr_Occurred()) return false;
      if (status) {
        const Owned error(
            PyObject_CallFunction(ready.failed.get(), "is", status, ready.steps[s].kernel.c_str()));
        if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
        return false;
      }
    }
    return true;
  }
};

// call(kind, function, arrays, out, options): what a call returns, or None.
PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t many) {
  if (many != 5) {
    PyErr_SetString(PyExc_TypeError, "call takes a kind, a function, arrays, out and options");
    return nullptr;
  }
  auto* kind = static_cast<Kind*>(PyCapsule_GetPointer(given[0], kKind));
  if (!kind) return nullptr;
  PyObject *function = given[1], *arrays = given[2], *out = given[3], *options = given[4];
  Py_ssize_t inputs = PyTuple_Size(arrays);
  while (inputs > 1 && PyTuple_GetItem(arrays, inputs - 1) == Py_None) --inputs;  // left out
  const bool several = out != Py_None && PyTuple_Check(out);
  const Py_ssize_t outs = out == Py_None ? 0 : several ? PyTuple_Size(out) : 1, all = inputs + outs;
  if (inputs < 1 || all > kMostArrays / 2) return none();

  PyObject* objects[kMostArrays];
  for (Py_ssize_t i = 0; i < all; ++i)
    objects[i] = i < inputs ? PyTuple_GetItem(arrays, i) : several ? PyTuple_GetItem(out, i - inputs) : out;
  if (kind->exchange) {
    bool needed = false;
    if (!tensors(*kind, objects, all, needed)) return none();
    if (needed)
      return kind->recorded.get() == Py_None ? none()
                                             : PyObject_CallFunctionObjArgs(kind->recorded.get(), function,
                                                                            arrays, out, options, nullptr);
  }
  uint64_t addresses[kMostArrays];
  uint64_t low = kMostAligned;
  Owned key(PyTuple_New(4 * all + 1));
  for (Py_ssize_t i = 0; key && i < all; ++i) {
    if (!read(*kind, objects[i], key.get(), 4 * i, addresses[i])) return none();
    low |= addresses[i];
  }
  if (!key) return none();
  PyTuple_SetItem(key.get(), 4 * all, PyLong_FromUnsignedLongLong(low & (~low + 1)));
  key = with_options(std::move(key), options);
  if (!key) return none();
  const Owned known = attribute(function, names.ready);
  const Owned prepared = shared(known ? PyDict_GetItemWithError(known.get(), key.get()) : nullptr);
  if (!prepared) return none();
  const Owned hot = attribute(prepared.get(), names.hot);
  if (!hot || hot.get() == Py_None) return none();
  auto* ready = static_cast<Ready*>(PyCapsule_GetPointer(hot.get(), kReady));
  int device = -1;
  void* stream = nullptr;
  if (!ready || ready->inputs.size() != static_cast<size_t>(inputs) || ready->current(&device) ||
      device != ready->device || !stream_of(*ready, stream))
    return none();
  if (outs && (ready->makers.size() != static_cast<size_t>(outs) || !apart(*ready, addresses))) return none();

  Call now{*ready, prepared.get(), arrays, {}, static_cast<int>(all), stream, {}, {}};
  std::memcpy(now.addresses, addresses, sizeof(uint64_t) * static_cast<size_t>(all));
  if (!outs) {
    if (!now.make()) return nullptr;
  } else {
    now.results = several ? shared(out) : Owned(PyTuple_Pack(1, out));
  }
  if (!now.results || (ready->fill && !now.fill())) return nullptr;
  Block maps[kMostMaps];
  for (size_t m = 0; m < ready->maps.size(); ++m)
    if (!map_at(*ready, ready->maps[m], now.addresses[ready->maps[m].index], maps[m])) return none();
  if (!now.launch(maps)) return nullptr;
  if (outs) return shared(out).release();
  if (ready->collect.get() == Py_None) return shared(PyTuple_GetItem(now.results.get(), 0)).release();
  return PyObject_CallFunctionObjArgs(ready->collect.get(), now.results.get(), nullptr);
}

template <typename T>
void destroy(PyObject* capsule) {
  delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

template <typename T>
PyObject* capsule_of(std::unique_ptr<T> made, const char* name) {
  PyObject* capsule = PyCapsule_New(made.get(), name, destroy<T>);
  if (capsule) made.release();
  return capsule;
}

// kind(exchange, types, grad_enabled, stream, recorded)
PyObject* make_kind(PyObject*, PyObject* arguments) {
  PyObject *exchange, *types, *grad_enabled, *stream, *recorded;
  if (!PyArg_ParseTuple(arguments, "OO!OOO", &exchange, &PyTuple_Type, &types, &grad_enabled, &stream,
                        &recorded))
    return nullptr;
  auto made = std::make_unique<Kind>();
  made->types = shared(types);
  made->grad_enabled = shared(grad_enabled);
  made->recorded = shared(recorded);
  if (exchange != Py_None) {
    auto* table = static_cast<DlExchange*>(PyCapsule_GetPointer(exchange, "dlpack_exchange_api"));
    if (!table) return nullptr;
    while (table && table->major != 1) table = table->previous;
    if (!table || !table->view || !table->stream) {
      PyErr_SetString(PyExc_ValueError,
                      "the exchange of tensors is not of DLPack 1 or has no views and streams");
      return nullptr;
    }
    made->exchange = table;
  } else if (PyCapsule_IsValid(stream, "intptr_t (int)")) {
    made->stream_of = reinterpret_cast<intptr_t (*)(int)>(PyCapsule_GetPointer(stream, "intptr_t (int)"));
  } else {
    made->stream = shared(stream);
  }
  return capsule_of(std::move(made), kKind);
}

bool maker(PyObject* pair, Maker& out) {
  PyObject *function, *arguments;
  if (!PyArg_ParseTuple(pair, "OO!", &function, &PyTuple_Type, &arguments)) return false;
  out.function = shared(function);
  out.arguments = shared(arguments);
  return true;
}

// An argument of a launch: the index of an address, the bytes of a scalar, or of a map (index, offset, bytes,
// address).
bool parameter(PyObject* argument, Ready& ready, Step& step) {
  const int place = static_cast<int>(step.pointers.size());
  step.pointers.push_back(-1);
  step.bytes.emplace_back();
  const char* content;
  Py_ssize_t size = 0;
  if (PyTuple_Check(argument)) {
    Map map{};
    unsigned long long offset, begun;
    if (!PyArg_ParseTuple(argument, "iKy#K", &map.index, &offset, &content, &size, &begun)) return false;
    if (size != kMapBytes || map.index < 0 || map.index >= kMostArrays) return false;
    map.launch = static_cast<int>(ready.steps.size());
    map.place = place;
    map.offset = offset;
    std::memcpy(map.first.bytes, content, kMapBytes);
    map.known.emplace(begun, map.first);
    ready.maps.push_back(std::move(map));
    return true;
  }
  if (PyBytes_Check(argument)) {
    char* bytes;
    if (PyBytes_AsStringAndSize(argument, &bytes, &size)) return false;
    step.bytes.back().assign(bytes, bytes + size);
    return true;
  }
  step.pointers.back() = static_cast<int>(PyLong_AsLong(argument));
  return !PyErr_Occurred() && step.pointers.back() >= 0 && step.pointers.back() < kMostArrays;
}

bool add_step(PyObject* given, Ready& ready) {
  Step step{};
  const char* kernel;
  unsigned long long function;
  PyObject* parameters;
  unsigned *grid = step.config.grid, *block = step.config.block;
  int programmatic;
  if (!PyArg_ParseTuple(given, "sK(III)(III)IpO!", &kernel, &function, grid, grid + 1, grid + 2, block,
                        block + 1, block + 2, &step.config.shared_bytes, &programmatic, &PyTuple_Type,
                        &parameters))
    return false;
  if (programmatic) {
    step.config.attributes = &kProgrammatic;
    step.config.attribute_count = 1;
  }
  step.kernel = kernel;
  step.function = reinterpret_cast<void*>(function);
  for (Py_ssize_t i = 0, count = PyTuple_Size(parameters); i < count; ++i)
    if (!parameter(PyTuple_GetItem(parameters, i), ready, step)) return false;
  ready.steps.push_back(std::move(step));
  return true;
}

// ready(kind, device, entries, most_maps, makers, inputs, results, collect, fill, scratch, is_zero,
// scratch_maker, enter, failed, steps)
PyObject* make_ready(PyObject*, PyObject* arguments) {
  PyObject *kind, *makers, *inputs, *results, *collect, *scratch, *is_zero, *scratch_maker, *enter, *failed,
      *steps;
  unsigned long long launch, replace, current, capturing, most_maps;
  int device, fill;
  if (!PyArg_ParseTuple(arguments, "Oi(KKKK)KO!O!O!OpO!O!O!OOO!", &kind, &device, &launch, &replace, &current,
                        &capturing, &most_maps, &PyTuple_Type, &makers, &PyTuple_Type, &inputs, &PyTuple_Type,
                        &results, &collect, &fill, &PyTuple_Type, &scratch, &PyTuple_Type, &is_zero,
                        &PyTuple_Type, &scratch_maker, &enter, &failed, &PyTuple_Type, &steps))
    return nullptr;
  auto made = std::make_unique<Ready>();
  made->kind = static_cast<Kind*>(PyCapsule_GetPointer(kind, kKind));
  if (!made->kind) return nullptr;
  made->keeps = shared(kind);
  made->device = device;
  made->launch = reinterpret_cast<Launch>(launch);
  made->replace = reinterpret_cast<Replace>(replace);
  made->current = reinterpret_cast<Device>(current);
  made->capturing = reinterpret_cast<Capturing>(capturing);
  made->most_maps = most_maps;
  made->collect = shared(collect);
  made->fill = fill;
  made->enter = shared(enter);
  made->failed = shared(failed);
  made->makers.resize(static_cast<size_t>(PyTuple_Size(makers)));
  for (size_t i = 0; i < made->makers.size(); ++i)
    if (!maker(PyTuple_GetItem(makers, static_cast<Py_ssize_t>(i)), made->makers[i])) return nullptr;
  if (!numbers(inputs, made->inputs) || !numbers(results, made->results) ||
      !numbers(scratch, made->scratch) || !numbers(is_zero, made->is_zero) ||
      !maker(scratch_maker, made->scratch_maker))
    return nullptr;
  bool fits = true;
  for (Py_ssize_t i = 0, count = PyTuple_Size(steps); fits && i < count; ++i)
    fits = add_step(PyTuple_GetItem(steps, i), *made);
  for (const Step& step : made->steps) fits = fits && step.pointers.size() <= kMostParameters;
  if (PyErr_Occurred()) return nullptr;
  if (!fits || made->maps.size() > kMostMaps ||
      made->inputs.size() + made->results.size() + made->scratch.size() > kMostArrays / 2)
    Py_RETURN_NONE;  // more than there is room for here
  return capsule_of(std::move(made), kReady);
}

PyMethodDef methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, nullptr},
    {"kind", make_kind, METH_VARARGS, nullptr},
    {"ready", make_ready, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_launch", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__launch() {
  const auto named = PyUnicode_InternFromString;
  names = {named("data"),  named("ptr"),       named("shape"),         named("strides"),
           named("dtype"), named("device_id"), named("requires_grad"), named("ready"),
           named("hot"),   named("_fill"),     named("_zeroed")};
  return PyModule_Create(&module);
}
