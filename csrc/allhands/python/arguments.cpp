#include "allhands/python/arguments.hpp"

#include <algorithm>
#include <string>

#include "allhands/arena/checks.hpp"
#include "allhands/base/error.hpp"
#include "allhands/python/named_operation.hpp"
#include "allhands/python/pieces.hpp"
#include "allhands/python/reduction.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

Access access_in_place(const CollectiveRow& row, bool is_root) {
  const bool is_written =
      row.in_place == InPlace::OnAll || (row.in_place == InPlace::OnRoot) == is_root;
  return is_written ? Access::Write : Access::Read;
}

// Checks that an array which only the root passes is there on the root and nowhere
// else.
void check_only_root_has(const CollectiveRow& row, const Arguments& given,
                         const Operation& operation, bool is_root, int size) {
  const auto is_of_root = [](const Side& side) {
    return side.form == Form::ListOfRoot || side.form == Form::SharesOfRoot;
  };
  const bool is_output = is_of_root(row.output);
  if (!is_output && !is_of_root(row.input)) return;
  check_root(operation, size);
  const Side& side = is_output ? row.output : row.input;
  const nb::handle array = is_output ? given.output : given.input;
  const bool is_empty = PyList_Check(array.ptr()) && PyList_GET_SIZE(array.ptr()) == 0;
  if (is_root != (array.is_none() || is_empty)) return;
  const std::string argument = "Argument ``" + std::string(side.name) + "`` must ";
  const std::string role = is_output ? "destination" : "source";
  if (is_root)
    throw Error(ErrorKind::Value, argument + "be specified on " + role + " rank.");
  throw Error(ErrorKind::Value, argument + "NOT be specified on non-" + role +
                                    " ranks; the " + role + " is group rank " +
                                    std::to_string(operation.root) + ".");
}

// If complex numbers are moved into real ones, or the other way round, they count as
// pairs of real numbers, as in torch.
void view_mixed_as_real(const Collective& collective, Taken& output, Taken& input) {
  if (collective.is_reduction) return;
  const auto has_both = [&](DType complex, DType real) {
    return (output.has(complex) || input.has(complex)) &&
           (output.has(real) || input.has(real));
  };
  if (!has_both(DType::Complex64, DType::Float32) &&
      !has_both(DType::Complex128, DType::Float64))
    return;
  output.view_as_real();
  input.view_as_real();
}

// Turns arrays that lie one behind the other into lists of shares for each rank: those
// of rank 0, of rank 1, ...
std::vector<Buffer> shares_of_each(const CollectiveRow& row, const Side& side,
                                   const std::vector<Buffer>& wholes,
                                   const std::vector<Buffer>& parts, int size) {
  if (wholes.size() != parts.size())
    throw Error(ErrorKind::Unsupported, std::string(row.name) + ": " + side.name +
                                            " has " + std::to_string(wholes.size()) +
                                            " arrays, expected " +
                                            std::to_string(parts.size()));
  std::vector<Buffer> result(wholes.size() * static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    const auto cut = shares(row.name, side.name, wholes[i], parts[i], size);
    for (std::size_t rank = 0; rank < cut.size(); ++rank)
      result[rank * wholes.size() + i] = cut[rank];
  }
  return result;
}

void check_lists(const CollectiveRow& row, const Side& side,
                 const std::vector<std::size_t>& lengths, std::size_t length,
                 int size) {
  const auto check = [&](const std::string& what, std::size_t got, std::size_t expected,
                         const char* each) {
    if (got != expected)
      throw Error(ErrorKind::Unsupported,
                  std::string(row.name) + ": invalid " + what + " (expected length " +
                      std::to_string(expected) + ", got " + std::to_string(got) +
                      "): it needs one per " + each);
  };
  check(side.name, lengths.size(), static_cast<std::size_t>(size), "rank");
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    check(std::string(side.name) + "[" + std::to_string(rank) + "]", lengths[rank],
          length, "input");
}

}  // namespace

void Taken::take(const Side& side, nb::handle given, Access access) {
  given_ = given;
  switch (side.form) {
    case Form::None:
      return;
    case Form::SharesOfRoot:
      if (given.is_none()) return;
      [[fallthrough]];
    case Form::Array:
    case Form::Shares:
    case Form::Rows:
      array_.emplace(given, access, side.name);
      return;
    case Form::ListOfRoot:
      if (given.is_none()) return;
      [[fallthrough]];
    case Form::List:
    case Form::SharesOfEach:
      lists_.emplace_back(given, access, side.name);
      return;
    case Form::Lists:
      for (const nb::handle list : items_of(given, side.name))
        lists_.emplace_back(list, access, side.name);
      return;
  }
}

bool Taken::has(DType dtype) const {
  const auto is_so = [dtype](const Buffer& buffer) { return buffer.dtype == dtype; };
  if (array_) return is_so(array_->buffer());
  return std::ranges::any_of(lists_, [&](const Arrays& list) {
    return std::ranges::any_of(list.buffers(), is_so);
  });
}

void Taken::view_as_real() {
  if (array_) array_->view_as_real();
  for (Arrays& list : lists_) list.view_as_real();
}

std::vector<Buffer> Taken::take_buffers() {
  if (lists_.empty()) return {};
  std::vector<Buffer> all = lists_.front().take_buffers();
  for (std::size_t i = 1; i < lists_.size(); ++i)
    for (Buffer& buffer : lists_[i].take_buffers()) all.push_back(std::move(buffer));
  return all;
}

std::vector<std::size_t> Taken::lengths() const {
  std::vector<std::size_t> lengths;
  for (const Arrays& list : lists_) lengths.push_back(list.size());
  return lengths;
}

nb::object Taken::owner() const {
  if (array_) return array_->owner();
  nb::list owners;
  for (const Arrays& list : lists_) owners.append(list.owner());
  return owners;
}

nb::list Taken::listed() const {
  if (array_) return array_->listed();
  return lists_.empty() ? nb::list() : nb::borrow<nb::list>(given_);
}

nb::object Taken::type() const {
  return array_ ? nb::borrow(given_.type()) : nb::object();
}

Prepared::Prepared(const CollectiveRow& row, const Arguments& given, int rank, int size,
                   ReduceOrder order)
    : is_in_place_(row.in_place != InPlace::No) {
  operation.collective = &row.collective;
  operation.root = given.root;
  const bool is_root = rank == given.root;
  naming(row.name, [&] {
    if (row.output.form == Form::None)
      take_one_side(row, given, is_root);
    else
      take_both_sides(row, given, is_root, size);
    if (row.collective.is_reduction) take_reduction(row, given.reduce_op, order);
    row.collective.check(operation, rank, size);
  });
}

// For an operation in place, or one without arrays: the smallest calls take this path.
void Prepared::take_one_side(const CollectiveRow& row, const Arguments& given,
                             bool is_root) {
  if (row.input.form == Form::None) return;
  input_.take(row.input, given.input, access_in_place(row, is_root));
  if (row.input.form == Form::List) {
    operation.inputs = input_.take_buffers();
    return;
  }
  operation.input = input_.buffer();
  if (row.in_place != InPlace::OnRoot) operation.output = operation.input;
}

void Prepared::take_both_sides(const CollectiveRow& row, const Arguments& given,
                               bool is_root, int size) {
  check_only_root_has(row, given, operation, is_root, size);
  output_.take(row.output, given.output, Access::Write);
  input_.take(row.input, given.input, Access::Read);
  view_mixed_as_real(row.collective, output_, input_);
  take_buffers(row, given, size);
  cut_shares(row, size);
}

void Prepared::take_reduction(const CollectiveRow& row, nb::handle given,
                              ReduceOrder order) {
  const Reduction reduction(row.name, given);
  operation.reduce_op = reduction.op;
  operation.reduce_order = order;
  operation.factor = reduction.factor;
}

// Takes what one side determines without the other.
void Prepared::take_buffers(const CollectiveRow& row, const Arguments& given,
                            int size) {
  if (row.input.form == Form::Array)
    operation.input = input_.buffer();
  else if (row.input.form == Form::Rows)
    operation.inputs = rows(row.name, row.input.name, given.input, input_.buffer(),
                            given.input_splits, size);
  else
    operation.inputs = input_.take_buffers();
  if (row.output.form == Form::Array)
    operation.output = output_.buffer();
  else if (row.output.form == Form::Rows)
    operation.outputs = rows(row.name, row.output.name, given.output, output_.buffer(),
                             given.output_splits, size);
  else if (row.output.form == Form::Lists)
    check_lists(row, row.output, output_.lengths(), operation.inputs.size(), size);
  if (row.output.form != Form::Rows) operation.outputs = output_.take_buffers();
}

void Prepared::cut_shares(const CollectiveRow& row, int size) {
  if (row.input.form == Form::Shares)
    operation.inputs =
        shares(row.name, row.input.name, input_.buffer(), operation.output, size);
  else if (row.input.form == Form::SharesOfEach)
    operation.inputs =
        shares_of_each(row, row.input, operation.inputs, operation.outputs, size);
  if (output_.is_there() &&
      (row.output.form == Form::Shares || row.output.form == Form::SharesOfRoot))
    operation.outputs =
        shares(row.name, row.output.name, output_.buffer(), operation.input, size);
  else if (row.output.form == Form::SharesOfEach)
    operation.outputs =
        shares_of_each(row, row.output, operation.outputs, operation.inputs, size);
}

nb::object Prepared::owners() const {
  if (is_in_place_) return input_.owner();
  return nb::make_tuple(output_.owner(), input_.owner());
}

nb::list Prepared::outputs() const {
  return is_in_place_ ? input_.listed() : output_.listed();
}

nb::object Prepared::read() const { return input_.type(); }

}  // namespace allhands::python
