// The engine as a Python module. See _engine.pyi for the interface.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "engine.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace workbench::emulator;

namespace {

template <class T, class... Shape>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu, Shape...>;
using Bytes = Array<uint8_t, nb::ndim<1>>;
using ReadOnlyBytes = Array<const uint8_t, nb::ndim<1>>;
using Numbers = std::optional<Array<const int32_t, nb::ndim<1>>>;
using Pairs = std::optional<Array<const int32_t, nb::shape<-1, 2>>>;

const std::vector<std::string> kSpaceNames = {"none", "global", "shared", "local", "param", "tensor"};
const std::vector<std::string> kWaitNames = {
    "none",      "barrier",   "mbarrier", "collective", "cluster_barrier", "exited",
    "registers", "warpgroup", "unit",     "grid",       "passed_again"};
const std::vector<std::string> kTraceKinds = {"run",    "wait",   "load",  "copies", "products",
                                              "stores", "tensor", "moves", "phase"};
const std::vector<std::string> kTraceGates = {"none", "named", "mbarrier", "cluster", "grid"};
const std::vector<std::string> kIsaNames = {"baseline", "v3"};

// Keeps the arrays alive that the allocation points into.
struct PythonAllocation {
  Allocation allocation;
  nb::object data, initialised;
};

Program make_program(const Array<const int32_t, nb::shape<-1, 7>>& rows,
                     const Array<const int64_t, nb::shape<-1, 3>>& operands, int64_t register_bytes,
                     int64_t special_offset, const std::vector<std::pair<int32_t, int32_t>>& unset) {
  Program program;
  program.register_bytes = register_bytes;
  program.special_offset = special_offset;
  for (size_t k = 0; k < rows.shape(0); ++k) {
    const int32_t* r = rows.data() + 7 * k;
    program.rows.push_back({r[0], r[1], r[2], r[3], r[4], r[5], r[6]});
  }
  for (size_t k = 0; k < operands.shape(0); ++k) {
    const int64_t* o = operands.data() + 3 * k;
    program.operands.push_back({static_cast<int32_t>(o[0]), static_cast<int32_t>(o[1]), o[2]});
  }
  for (const auto& [slot, bytes] : unset) program.unset.push_back({slot, bytes, 0});
  validate(program);
  return program;
}

TensorMap make_tensor_map(uint64_t descriptor, uint64_t address, int element_type,
                          const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& strides,
                          const std::vector<uint32_t>& box, const std::vector<uint32_t>& element_strides,
                          int swizzle, bool nan_fill, uint32_t pixels, const std::vector<int32_t>& lower,
                          const std::vector<int32_t>& upper, bool wide) {
  const size_t rank = sizes.size();
  if (rank < 1 || rank > 5 || strides.size() != rank || box.size() != rank || element_strides.size() != rank)
    throw nb::value_error(
        "a tensor map has 1 to 5 dimensions, and as many strides, box sizes and element strides");
  if (swizzle % 32 || swizzle < 0 || swizzle > kAtom64 || swizzle == 96)
    throw nb::value_error("a swizzle is 0, 32, 64 or 128 bytes, 160, 192 or 224");
  TensorMap map{};
  map.descriptor = descriptor;
  map.address = address;
  map.element_type = element_type;
  map.rank = static_cast<int>(rank);
  std::copy(sizes.begin(), sizes.end(), map.sizes);
  std::copy(strides.begin(), strides.end(), map.strides);
  std::copy(box.begin(), box.end(), map.box);
  std::copy(element_strides.begin(), element_strides.end(), map.element_strides);
  map.swizzle = swizzle;
  map.nan_fill = nan_fill;
  count_units(map);
  if (pixels) {
    const size_t corners = wide ? 1 : rank - 2;
    if (rank < 3 || lower.size() != corners || upper.size() != corners)
      throw nb::value_error(
          "an im2col map has 3 to 5 dimensions, and a lower and an upper corner in all but two; a wide one "
          "in "
          "the second");
    map.im2col = true;
    map.wide = wide;
    map.pixels = pixels;
    std::copy(lower.begin(), lower.end(), map.lower);
    std::copy(upper.begin(), upper.end(), map.upper);
  }
  return map;
}

void set_shape(uint32_t (&shape)[3], const std::vector<uint32_t>& values, const char* what) {
  if (values.empty() || values.size() > 3) throw nb::value_error(what);
  std::copy(values.begin(), values.end(), shape);
}

// A launch as it is handed over, with what must not go away before it has been executed.
struct PythonLaunch {
  const Program* program;
  Launch launch;
  std::vector<nb::object> kept;
};

PythonLaunch make_launch(const nb::handle& of, const std::vector<uint32_t>& grid,
                         const std::vector<uint32_t>& block, const std::vector<uint32_t>& cluster,
                         const ReadOnlyBytes& constants, const ReadOnlyBytes& parameters,
                         const nb::sequence& allocations, const std::vector<TensorMap>& tensor_maps,
                         uint32_t shared_bytes, uint32_t local_bytes, uint32_t registers,
                         uint32_t resident_blocks, uint32_t threads, uint32_t time_slice, uint64_t seed,
                         uint64_t budget, uint32_t checks, bool count, uint64_t trace_events,
                         const std::vector<int64_t>& trace_blocks, const std::vector<int32_t>& trace_lines,
                         double seconds, uint32_t reserved_bytes, uint32_t most_findings,
                         const std::vector<bool>& failing, const Pairs& suppressed,
                         const Numbers& finding_lines, bool replicas,
                         const std::vector<std::pair<uint32_t, uint8_t>>& after,
                         const std::vector<std::tuple<uint64_t, uint64_t, uint64_t, int32_t>>& copies) {
  const Program& program = nb::cast<const Program&>(of);
  Launch launch;
  set_shape(launch.grid, grid, "grid has 1 to 3 dimensions");
  set_shape(launch.block, block, "block has 1 to 3 dimensions");
  set_shape(launch.cluster, cluster, "cluster has 1 to 3 dimensions");
  launch.constants = constants.data();
  launch.constant_bytes = constants.size();
  launch.parameters = parameters.data();
  launch.parameter_bytes = parameters.size();
  std::vector<nb::object> kept{nb::borrow(of), nb::cast(constants), nb::cast(parameters)};
  for (nb::handle item : allocations) {
    launch.allocations.push_back(nb::cast<const PythonAllocation&>(item).allocation);
    kept.push_back(nb::borrow(item));
  }
  for (const auto& [number, port] : after) launch.after.push_back({number, static_cast<Port>(port)});
  for (const auto& [to, from, bytes, value] : copies) launch.copies.push_back({to, from, bytes, value});
  std::sort(launch.allocations.begin(), launch.allocations.end(),
            [](const Allocation& a, const Allocation& b) { return a.address < b.address; });
  launch.tensor_maps = tensor_maps;
  launch.shared_bytes = shared_bytes;
  launch.local_bytes = local_bytes;
  launch.registers = registers;
  launch.resident_blocks = resident_blocks;
  launch.threads = threads;
  launch.time_slice = std::max(1u, time_slice);
  launch.seed = seed;
  launch.budget = budget;
  launch.seconds = seconds;
  launch.reserved_bytes = reserved_bytes;
  launch.most_findings = most_findings;
  launch.failing.assign(failing.begin(), failing.end());
  for (size_t k = 0; suppressed && k < suppressed->shape(0); ++k)
    launch.suppressed.push_back({suppressed->data()[2 * k], suppressed->data()[2 * k + 1]});
  if (finding_lines)
    launch.finding_lines.assign(finding_lines->data(), finding_lines->data() + finding_lines->size());
  launch.replicas = replicas;
  if (!failing.empty() && failing.size() != fault_names().size())
    throw nb::value_error("failing has one value for each of fault_names()");
  if (!launch.finding_lines.empty() && launch.finding_lines.size() != program.rows.size())
    throw nb::value_error("finding_lines has one number for each row");
  launch.interrupted = [] {  // such as by Ctrl-C
    nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
  };
  launch.checks = checks;
  launch.count = count;
  launch.trace_events = trace_events;
  launch.trace_blocks = trace_blocks;
  launch.trace_lines = trace_lines;
  if (trace_events && trace_lines.size() != program.rows.size())
    throw nb::value_error("trace_lines has one number for each row");
  return {&program, std::move(launch), std::move(kept)};
}

struct PythonSeries {
  std::shared_ptr<Series> series;
};

std::vector<Result> run_together(const std::vector<PythonLaunch*>& launches, PythonSeries* series,
                                 const std::optional<std::string>& isa) {
  if (launches.empty()) throw nb::value_error("there is no launch to run");
  Isa chosen = best_isa();
  if (isa) {
    const auto found = std::find(kIsaNames.begin(), kIsaNames.end(), *isa);
    if (found == kIsaNames.end()) throw nb::value_error("isa is 'baseline' or 'v3'");
    const Isa wanted = static_cast<Isa>(found - kIsaNames.begin());
    if (static_cast<int>(wanted) > static_cast<int>(chosen))
      throw nb::value_error("this processor does not have that isa");
    chosen = wanted;
  }
  std::vector<Result> results(launches.size());
  std::vector<Work> works;
  for (size_t k = 0; k < launches.size(); ++k)
    works.push_back({launches[k]->program, &launches[k]->launch, &results[k]});
  std::shared_ptr<Series> alone;
  {
    nb::gil_scoped_release release;
    run(works, chosen, series ? series->series : alone);
  }
  if (results[0].interrupted) throw nb::python_error();
  return results;
}

template <class E>
const std::string& name_of(const std::vector<std::string>& names, E value) {
  return names[static_cast<size_t>(value)];
}

}  // namespace

NB_MODULE(_engine, m) {
  nb::set_leak_warnings(false);  // programs that a cache holds when Python exits are not lost
  m.attr("LANES") = kLanes;
  m.attr("ABSENT") = kAbsent;
  m.attr("SHARED_WINDOW") = kSharedWindow;
  m.attr("LOCAL_WINDOW") = kLocalWindow;
  m.attr("PARAM_WINDOW") = kParamWindow;
  m.attr("FIRST_GLOBAL") = kFirstGlobal;
  m.attr("RANK_SHIFT") = kRankShift;
  m.attr("CHECK_INITIALISED") = static_cast<uint32_t>(kCheckInitialised);
  m.attr("CHECK_IN_FLIGHT") = static_cast<uint32_t>(kCheckInFlight);
  m.attr("CHECK_EXITED_MEMBERS") = static_cast<uint32_t>(kCheckExitedMembers);
  m.attr("CHECK_RACES") = static_cast<uint32_t>(kCheckRaces);
  m.attr("ISAS") = kIsaNames;

  m.def("operations", [] {
    nb::list list;
    for (const OperationInfo& operation : operations())
      list.append(nb::make_tuple(operation.name, operation.signature));
    return list;
  });
  m.def("special_names", &special_names);
  m.def("fault_names", &fault_names);
  m.def("trace_kinds", [] { return kTraceKinds; });
  m.def("trace_gates", [] { return kTraceGates; });
  m.def("counter_names", &counter_names);
  m.def("space_names", [] { return kSpaceNames; });
  m.def("wait_names", [] { return kWaitNames; });
  m.def("best_isa", [] { return name_of(kIsaNames, best_isa()); });

  nb::class_<Program>(m, "Program")
      .def(nb::new_(&make_program), "rows"_a, "operands"_a, "register_bytes"_a, "special_offset"_a,
           "unset"_a = std::vector<std::pair<int32_t, int32_t>>{});

  nb::class_<PythonAllocation>(m, "Allocation")
      .def(nb::new_([](uint64_t address, const Bytes& data, const std::optional<Bytes>& initialised,
                       bool writable, uint64_t identity, bool is_heap, bool is_constant) {
             if (initialised && initialised->size() != data.size())
               throw nb::value_error("initialised has one byte for each byte of data");
             Allocation allocation{
                 address,  data.size(), data.data(), initialised ? initialised->data() : nullptr,
                 writable, is_heap,     is_constant, identity};
             return PythonAllocation{allocation, nb::cast(data),
                                     initialised ? nb::cast(*initialised) : nb::none()};
           }),
           "address"_a, "data"_a, "initialised"_a = nb::none(), "writable"_a = true, "identity"_a = 0,
           "is_heap"_a = false, "is_constant"_a = false);

  nb::class_<TensorMap>(m, "TensorMap")
      .def(nb::new_(&make_tensor_map), "descriptor"_a, "address"_a, "element_type"_a, "sizes"_a, "strides"_a,
           "box"_a, "element_strides"_a, "swizzle"_a, "nan_fill"_a = false, "pixels"_a = 0,
           "lower"_a = std::vector<int32_t>{}, "upper"_a = std::vector<int32_t>{}, "wide"_a = false);

  nb::class_<Fault>(m, "Fault")
      .def_prop_ro("kind", [](const Fault& f) { return name_of(fault_names(), f.kind); })
      .def_ro("pc", &Fault::pc)
      .def_ro("other_pc", &Fault::other_pc)
      .def_ro("block", &Fault::block)
      .def_ro("warp", &Fault::warp)
      .def_ro("lane", &Fault::lane)
      .def_ro("address", &Fault::address)
      .def_prop_ro("space", [](const Fault& f) { return name_of(kSpaceNames, f.space); })
      .def_ro("info", &Fault::info)
      .def_ro("detail", &Fault::detail)
      .def_ro("other_block", &Fault::other_block)
      .def_ro("other_warp", &Fault::other_warp)
      .def_ro("other_lane", &Fault::other_lane)
      .def_ro("launch", &Fault::launch)
      .def_ro("other_launch", &Fault::other_launch);

  nb::class_<Waiting>(m, "Waiting")
      .def_ro("block", &Waiting::block)
      .def_ro("warp", &Waiting::warp)
      .def_ro("pc", &Waiting::pc)
      .def_ro("lanes", &Waiting::lanes)
      .def_prop_ro("reason", [](const Waiting& w) { return name_of(kWaitNames, w.reason); })
      .def_ro("address", &Waiting::address)
      .def_ro("expected", &Waiting::expected)
      .def_ro("phase", &Waiting::phase)
      .def_ro("pending", &Waiting::pending)
      .def_ro("transactions", &Waiting::transactions)
      .def_ro("unseen", &Waiting::unseen);

  nb::class_<Result>(m, "Result")
      .def_prop_ro("fault",
                   [](const Result& r) -> nb::object {
                     return r.fault.kind == FaultKind::none ? nb::none() : nb::cast(r.fault);
                   })
      .def_ro("waiting", &Result::waiting)
      .def_prop_ro("findings",
                   [](const Result& r) {
                     nb::list list;
                     for (const Finding& f : r.findings) list.append(nb::make_tuple(f.fault, f.waiting));
                     return list;
                   })
      .def_ro("instructions", &Result::instructions)
      .def_ro("switches", &Result::switches)
      .def_ro("prints_dropped", &Result::prints_dropped)
      .def_prop_ro(
          "printed",
          [](const Result& r) {
            nb::list list;
            for (const Printed& p : r.printed)
              list.append(nb::make_tuple(p.format, nb::bytes(p.arguments.data(), p.arguments.size())));
            return list;
          })
      .def_prop_ro("counts",
                   [](Result& r) {
                     return nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>(r.counts.data(), {r.counts.size()},
                                                                          nb::find(r));
                   })
      .def_prop_ro("outcomes",
                   [](Result& r) {
                     return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(r.outcomes.data(),
                                                                         {r.outcomes.size()}, nb::find(r));
                   })
      .def_ro("trace_cut", &Result::trace_cut)
      .def_prop_ro(
          "trace",
          [](const Result& r) {
            nb::list events;
            for (const TraceEvent& e : r.trace)
              events.append(nb::make_tuple(static_cast<int>(e.kind), e.block, e.warp, e.begin, e.end, e.pc,
                                           e.until_pc, static_cast<int>(e.gate), e.key, e.count, e.cause));
            return events;
          })
      .def_prop_ro("counters", [](Result& r) {
        return nb::ndarray<nb::numpy, uint64_t, nb::ndim<2>>(
            r.counters.data(), {r.counters.size() / kCounters, kCounters}, nb::find(r));
      });

  nb::class_<PythonLaunch>(m, "Launch")
      .def(nb::new_(&make_launch), "program"_a, nb::kw_only(), "grid"_a, "block"_a,
           "cluster"_a = std::vector<uint32_t>{1, 1, 1}, "constants"_a, "parameters"_a,
           "allocations"_a = nb::list(), "tensor_maps"_a = std::vector<TensorMap>{}, "shared_bytes"_a = 0,
           "local_bytes"_a = 0, "registers"_a = ~uint32_t{0}, "resident_blocks"_a = 1, "threads"_a = 1,
           "time_slice"_a = 2000, "seed"_a = 0, "budget"_a = uint64_t{1} << 63, "checks"_a = 15,
           "count"_a = false, "trace_events"_a = 0, "trace_blocks"_a = std::vector<int64_t>{},
           "trace_lines"_a = std::vector<int32_t>{}, "seconds"_a = 0.0, "reserved_bytes"_a = 0,
           "most_findings"_a = 1, "failing"_a = std::vector<bool>{}, "suppressed"_a = nb::none(),
           "finding_lines"_a = nb::none(), "replicas"_a = false,
           "after"_a = std::vector<std::pair<uint32_t, uint8_t>>{},
           "copies"_a = std::vector<std::tuple<uint64_t, uint64_t, uint64_t, int32_t>>{});
  nb::class_<PythonSeries>(m, "Series").def(nb::init<>());
  m.def("run", &run_together, "launches"_a, "series"_a = nb::none(), "isa"_a = nb::none());
}
