#include "allhands/python/arguments.hpp"

#include <algorithm>
#include <string>

#include "allhands/arena/checks.hpp"
#include "allhands/base/error.hpp"
#include "allhands/python/pieces.hpp"
#include "allhands/python/reduction.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

Access access_in_place(const Row& row, bool is_root) {
  const bool is_written =
      row.in_place == InPlace::OnAll || (row.in_place == InPlace::OnRoot) == is_root;
  return is_written ? Access::Write : Access::Read;
}

// What only the root passes is there on the root and nowhere else.
void check_only_root_has(const Row& row, const Arguments& given,
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

// Complex numbers that are moved into real ones, or the other way, count as pairs of
// these, as in torch.
void view_mixed_as_real(const Collective& collective, Taken& output, Taken& input) {
  if (collective.is_reduction) return;
  if (!output.has(true) && !input.has(true)) return;  // nearly always
  if (!output.has(false) && !input.has(false)) return;
  output.view_as_real();
  input.view_as_real();
}

// The buffers of one side. `other`: the side that says how large a share is.
std::vector<Buffer> buffers_of(const Row& row, const Side& side, Taken& taken,
                               nb::handle given, nb::handle splits, const Taken& other,
                               int size) {
  switch (side.form) {
    case Form::List:
    case Form::ListOfRoot:
      return taken.take_buffers();
    case Form::Shares:
    case Form::SharesOfRoot:
      if (!taken.is_there()) return {};
      return shares(row.name, side.name, taken.buffer(), other.buffer(), size);
    case Form::Rows:
      return rows(side.name, given, taken.buffer(), splits, size);
    case Form::None:
    case Form::Array:
      break;
  }
  return {};
}

}  // namespace

void Taken::take(const Side& side, nb::handle given, Access access) {
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
      if (given.is_none()) {
        list_.emplace(nb::list(), access, side.name);
        return;
      }
      [[fallthrough]];
    case Form::List:
      list_.emplace(given, access, side.name);
      return;
  }
}

bool Taken::has(bool complex) const {
  const auto is_so = [complex](const Buffer& buffer) {
    return is_complex(buffer.dtype) == complex;
  };
  if (array_) return is_so(array_->buffer());
  return list_ && std::ranges::any_of(list_->buffers(), is_so);
}

void Taken::view_as_real() {
  if (array_) array_->view_as_real();
  if (list_) list_->view_as_real();
}

nb::object Taken::owner() const {
  if (array_) return array_->owner();
  return list_ ? list_->owner() : nb::none();
}

nb::list Taken::listed() const {
  if (array_) return array_->listed();
  return list_ ? list_->listed() : nb::list();
}

Prepared::Prepared(const Row& row, const Arguments& given, int rank, int size)
    : is_in_place_(row.in_place != InPlace::No) {
  operation.collective = &row.collective;
  operation.root = given.root;
  const bool is_root = rank == given.root;
  check_only_root_has(row, given, operation, is_root, size);
  output_.take(row.output, given.output, Access::Write);
  input_.take(row.input, given.input,
              is_in_place_ ? access_in_place(row, is_root) : Access::Read);
  view_mixed_as_real(row.collective, output_, input_);
  if (row.collective.is_reduction) {
    const Reduction reduction(row.name, given.reduce_op);
    operation.reduce_op = reduction.op;
    operation.factor = reduction.factor;
  }
  if (row.input.form == Form::Array) operation.input = input_.buffer();
  if (row.output.form == Form::Array)
    operation.output = output_.buffer();
  else if (row.in_place == InPlace::OnAll || row.in_place == InPlace::OffRoot)
    operation.output = operation.input;
  operation.outputs = buffers_of(row, row.output, output_, given.output,
                                 given.output_splits, input_, size);
  operation.inputs = buffers_of(row, row.input, input_, given.input, given.input_splits,
                                output_, size);
  row.collective.check(operation, rank, size);
}

nb::object Prepared::owners() const {
  return nb::make_tuple(output_.owner(), input_.owner());
}

nb::list Prepared::outputs() const {
  return is_in_place_ ? input_.listed() : output_.listed();
}

}  // namespace allhands::python
