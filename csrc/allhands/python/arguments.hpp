// How the arguments of a collective become an Operation: as the collective's row says,
// in the same way for every collective.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/python/array.hpp"

namespace allhands::python {

// How the arrays of one side, output or input, are passed.
enum class Form {
  None,
  Array,  // one array
  // One, cut into a share per rank, each as large as the other side's array.
  Shares,
  SharesOfRoot,  // the same on the root only, None elsewhere
  Rows,          // one, cut along its first dimension by split sizes
  List,          // a list
  ListOfRoot,    // the same on the root only, None or empty elsewhere
  Lists,         // a list for each rank, each as long as that of the other side
  SharesOfEach,  // a list as long as the other side's, each array cut as for Shares
};

// How the row of a collective describes its output or its input.
struct Side {
  const char* name = nullptr;  // of the parameter
  Form form = Form::None;
};

// Where the one array of an operation in place is written.
enum class InPlace { No, OnAll, OnRoot, OffRoot };

// A collective as Python calls it.
struct CollectiveRow {
  const char* name;  // of the function
  const Collective& collective;
  Side output = {}, input = {};  // in place: input
  InPlace in_place = InPlace::No;
  bool has_root = false;
};

// What a caller passed, each in the form that the row needs.
struct Arguments {
  nanobind::handle output = {}, input = {};
  int root = -1;
  nanobind::handle reduce_op = {};
  nanobind::handle output_splits = {}, input_splits = {};
};

// The arrays that were passed for one side.
class Taken {
 public:
  void take(const Side& side, nanobind::handle given, Access access);

  // For Form::Array and the forms with one array that is cut.
  const Buffer& buffer() const { return array_->buffer(); }
  bool is_there() const { return array_.has_value(); }
  // Whether there is an array of that dtype.
  bool has(DType dtype) const;
  void view_as_real();
  // For all lists; call once.
  std::vector<Buffer> take_buffers();
  // The length of each list.
  std::vector<std::size_t> lengths() const;

  // The object that keeps the memory alive.
  nanobind::object owner() const;
  // The arrays as a list, as they were passed.
  nanobind::list listed() const;
  // The type of the one array that was passed; null otherwise.
  nanobind::object type() const;

 private:
  nanobind::handle given_;
  std::optional<Array> array_;
  std::vector<Arrays> lists_;
};

// An Operation, with the arrays that it needs as long as it may run.
class Prepared {
 public:
  // Checks the arguments. Throws Value, Type and Unsupported for wrong ones.
  Prepared(const CollectiveRow& row, const Arguments& arguments, int rank, int size,
           ReduceOrder order = ReduceOrder::Any);

  Operation operation;

  // The object that keeps the memory alive.
  nanobind::object owners() const;
  // The arrays that are written, as they were passed.
  nanobind::list outputs() const;
  // The type of the array that is read, if it is one; null: it is none, or several.
  nanobind::object read() const;

 private:
  void take_one_side(const CollectiveRow& row, const Arguments& given, bool is_root);
  void take_both_sides(const CollectiveRow& row, const Arguments& given, bool is_root,
                       int size);
  void take_reduction(const CollectiveRow& row, nanobind::handle given,
                      ReduceOrder order);
  void take_buffers(const CollectiveRow& row, const Arguments& given, int size);
  void cut_shares(const CollectiveRow& row, int size);

  const bool is_in_place_;
  Taken output_, input_;
};

}  // namespace allhands::python
