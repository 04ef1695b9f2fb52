// The arguments of a Call; see src/allhands/backends/call.py.
#pragma once

#include <nanobind/nanobind.h>

#include "allhands/python/arguments.hpp"

namespace allhands::python {

// Keeps what a Call holds alive.
class CallFields {
 public:
  CallFields(nanobind::handle call, const CollectiveRow& row)
      : output_(call.attr("output")), input_(call.attr("input")) {
    if (row.has_root) root_ = nanobind::cast<int>(call.attr("root"));
    if (row.collective.is_reduction) reduce_op_ = call.attr("reduce_op");
    if (row.output.form != Form::Rows) return;
    output_splits_ = call.attr("output_splits");
    input_splits_ = call.attr("input_splits");
  }

  Arguments arguments() const {
    return {output_, input_, root_, reduce_op_, output_splits_, input_splits_};
  }

 private:
  nanobind::object output_, input_;
  int root_ = -1;
  nanobind::object reduce_op_, output_splits_, input_splits_;
};

}  // namespace allhands::python
