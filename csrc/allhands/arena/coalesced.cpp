// Collectives on lists of arrays: one operation, as if the arrays of a list were one,
// in a row.
#include <algorithm>
#include <memory>
#include <string>

#include "allhands/arena/all_reduce.hpp"
#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/parts.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/extent.hpp"

namespace allhands {
namespace {

// What ranks must agree on for a list: the number of arrays, and a digest of what each
// is. Never 0, since a list of one array differs from that array by itself.
std::uint64_t digest_of(Buffers list) {
  std::uint64_t digest = 14695981039346656037u;  // FNV-1a, a word at a time
  for (const Buffer& buffer : list)
    for (const std::uint64_t word :
         {std::uint64_t{buffer.count}, static_cast<std::uint64_t>(buffer.dtype)})
      digest = (digest ^ word) * 1099511628211u;
  return Descriptor::list_of(list.size(), digest);
}

Descriptor descriptor(const Operation& operation, DType dtype, Buffers list,
                      std::size_t count) {
  return {.op = operation.collective->op,
          .dtype = dtype,
          .reduce_op = operation.reduce_op,
          .reduce_order = operation.reduce_order,
          .count = count,
          .shares = digest_of(list)};
}

void check_dtypes(Buffers list, DType dtype) {
  for (const Buffer& buffer : list) check_dtype(buffer, dtype);
}

void check_lengths(const Operation& operation, std::size_t length, std::size_t parts,
                   int size) {
  if (length != parts * static_cast<std::size_t>(size))
    throw Error(ErrorKind::Unsupported, std::string(operation.collective->name) + ": " +
                                            std::to_string(length) + " arrays for " +
                                            std::to_string(size) + " ranks, expected " +
                                            std::to_string(parts) + " for each");
}

// --- all_reduce ---

bool is_mixed(const std::vector<Buffer>& list) {
  return std::any_of(list.begin(), list.end(), [&](const Buffer& buffer) {
    return is_complex(buffer.dtype) != is_complex(list.front().dtype);
  });
}

bool is_by_component(ReduceOp op) {
  return op == ReduceOp::Sum || op == ReduceOp::Avg || op == ReduceOp::PremulSum;
}

void check_all_reduce(const Operation& operation, int, int) {
  const std::vector<Buffer>& list = operation.inputs;
  if (list.empty()) return;
  if (is_mixed(list) && !is_by_component(operation.reduce_op))
    throw Error(
        ErrorKind::Value,
        std::string(operation.collective->name) + ": " + name_of(operation.reduce_op) +
            " of complex and real arrays together; SUM, AVG and PREMUL_SUM can");
  const DType dtype = common_dtype(list);
  check_reduction(operation, dtype);
  for (const Buffer& buffer : list) {
    const bool is_mixable = is_complex(buffer.dtype) && !is_complex(dtype) &&
                            view_as_real(buffer).dtype == dtype;
    if (!is_mixable) check_dtype(buffer, dtype);
  }
}

std::size_t all_reduce_bytes(const Operation& operation) {
  return num_bytes(operation.inputs);
}

// Arrays that share elements must all be read before any is written.
void all_reduce(Arena& arena, const Ways& ways, const Operation& operation) {
  const std::vector<Buffer> list = in_common_dtype(operation.inputs);
  if (!ways.may(Way::Slots) || are_apart(list))
    return all_reduce_row(arena, ways, list, operation.reduce_op);
  const Row row(list);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(row.num_bytes());
  const Buffer copy = {memory.get(), row.dtype(), row.count(), {}, 0};
  row.pack(0, row.count(), memory.get());
  all_reduce_row(arena, ways, {&copy, 1}, operation.reduce_op);
  row.unpack(memory.get(), 0, row.count());
}

// --- all_gather ---

void check_all_gather(const Operation& operation, int, int size) {
  const std::vector<Buffer>&inputs = operation.inputs, &outputs = operation.outputs;
  const std::size_t m = inputs.size();
  check_lengths(operation, outputs.size(), m, size);
  check_dtypes(inputs, dtype_of(inputs));
  check_dtypes(outputs, dtype_of(inputs));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    check_count(operation, "output", outputs[i], inputs[i % m].count,
                static_cast<int>(i));
  check_apart("all_gather_coalesced: output", outputs);
}

void all_gather(Arena& arena, const Ways& ways, const Operation& operation) {
  const std::vector<Buffer>& inputs = operation.inputs;
  const Row own(inputs);
  const std::vector<Row> rows = rows_of(operation.outputs, arena.size());
  const std::size_t element = size_of(own.dtype());
  const Cut cut = {own.count(), arena.chunk_bytes() / element};
  const std::size_t bytes = cut.count * element;
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        own.pack(cut.begin(i), cut.length(i), arena.staging(arena.rank(), i, bytes));
      },
      [&](std::size_t i) {
        for (int step = 0; step < arena.size(); ++step) {
          const int rank = (arena.rank() + step) % arena.size();  // spread the readers
          rows[static_cast<std::size_t>(rank)].unpack(
              arena.staging(rank, i, bytes), cut.begin(i), cut.length(i), ways.stores);
        }
      });
}

// --- reduce_scatter ---

void check_reduce_scatter(const Operation& operation, int, int size) {
  const std::vector<Buffer>&inputs = operation.inputs, &outputs = operation.outputs;
  const std::size_t m = outputs.size();
  check_lengths(operation, inputs.size(), m, size);
  if (m == 0) return;
  check_reduction(operation, dtype_of(outputs));
  check_dtypes(outputs, dtype_of(outputs));
  check_dtypes(inputs, dtype_of(outputs));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_count(operation, "input", inputs[i], outputs[i % m].count,
                static_cast<int>(i));
  check_apart("reduce_scatter_coalesced: output", outputs);
}

void reduce_scatter(Arena& arena, const Ways& ways, const Operation& operation) {
  const std::vector<Buffer>& outputs = operation.outputs;
  const Row output(outputs);
  const std::vector<Row> inputs = rows_of(operation.inputs, arena.size());
  const Parts parts(arena, output.dtype(), output.count());
  const Cut cut = {output.count(), parts.most()};
  Reduction reduction(arena, output.dtype(), operation.reduce_op);
  std::byte* const result = arena.scratch(parts.most() * size_of(output.dtype()));
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        for (int rank = 0; rank < arena.size(); ++rank)
          inputs[static_cast<std::size_t>(rank)].pack(cut.begin(i), cut.length(i),
                                                      parts.at(arena.rank(), i, rank));
      },
      [&](std::size_t i) {
        for (int rank = 0; rank < arena.size(); ++rank)
          reduction.source(rank) = parts.at(rank, i, arena.rank());
        reduction.run(result, cut.length(i));
        output.unpack(result, cut.begin(i), cut.length(i), ways.stores);
      });
}

}  // namespace

const Collective kAllReduceCoalesced = {
    .op = Op::AllReduceCoalesced,
    .name = "all_reduce_coalesced",
    .is_reduction = true,
    .check = check_all_reduce,
    .descriptor =
        [](const Operation& operation) {
          const std::vector<Buffer>& list = operation.inputs;
          return descriptor(operation, common_dtype(list), list,
                            count_of(in_common_dtype(list)));
        },
    .bytes = all_reduce_bytes,
    .run = all_reduce,
};

const Collective kAllGatherCoalesced = {
    .op = Op::AllGatherCoalesced,
    .name = "all_gather_coalesced",
    .is_reduction = false,
    .check = check_all_gather,
    .descriptor =
        [](const Operation& operation) {
          const std::vector<Buffer>& list = operation.inputs;
          return descriptor(operation, dtype_of(list), list, count_of(list));
        },
    .bytes = [](const Operation& operation) { return num_bytes(operation.inputs); },
    .run = all_gather,
};

const Collective kReduceScatterCoalesced = {
    .op = Op::ReduceScatterCoalesced,
    .name = "reduce_scatter_coalesced",
    .is_reduction = true,
    .check = check_reduce_scatter,
    .descriptor =
        [](const Operation& operation) {
          const std::vector<Buffer>& list = operation.outputs;
          return descriptor(operation, dtype_of(list), list, count_of(list));
        },
    .bytes = [](const Operation& operation) { return num_bytes(operation.inputs); },
    .run = reduce_scatter,
};

}  // namespace allhands
