#include "allhands/comm/shared_array.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "allhands/arena/collectives.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/joined.hpp"
#include "allhands/comm/available_memory.hpp"

namespace allhands {
namespace {

constexpr std::size_t kPage = 4096;

// A rank tells the others in its slot what it could not do; an empty text means
// success.
constexpr std::size_t kMaxText = 256;

void tell(const Arena& arena, std::uint64_t step, const std::string& text) {
  char* const told = reinterpret_cast<char*>(arena.slot(arena.rank(), step));
  told[text.copy(told, kMaxText - 1)] = 0;
}

std::string told(const Arena& arena, int rank, std::uint64_t step) {
  const auto* text = reinterpret_cast<const char*>(arena.slot(rank, step));
  return {text, strnlen(text, kMaxText)};
}

std::string failure_of(const Arena& arena, int rank, const std::string& text) {
  return "rank " + std::to_string(arena.group_rank(rank)) + ": " + text;
}

// Calls `step`; returns what it could not do.
template <class Step>
std::string attempt(Step step) {
  try {
    step();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Backend) throw;  // Timeout, Interrupted
    return error.what();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
  return {};
}

std::string text_of(const std::vector<std::size_t>& shape) {
  return "(" + joined(shape) + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

SharedArray::SharedArray(std::shared_ptr<SharedMemory> memory,
                         std::shared_ptr<SharedArrays> arrays,
                         const SharedRegion& region)
    : memory_(std::move(memory)), arrays_(std::move(arrays)), region_(region) {
  arrays_->add(region_, memory_);
}

SharedArray::~SharedArray() { arrays_->remove(region_.number); }

SharedArrayMaker::SharedArrayMaker(const Membership& membership, const Token& token,
                                   DType dtype, const std::vector<std::size_t>& shape)
    : membership_(membership), token_(token), bytes_(size_of(dtype)) {
  std::size_t total;
  bool is_too_large = false;
  for (const std::size_t size : shape)
    is_too_large |= __builtin_mul_overflow(bytes_, size, &bytes_);
  const std::size_t page =
      bytes_ < SharedMemory::kHugePage ? kPage : SharedMemory::kHugePage;
  is_too_large |= __builtin_add_overflow(bytes_, page - 1, &stride_);
  stride_ = std::max(page, stride_ / page * page);
  is_too_large |= __builtin_mul_overflow(
      stride_, static_cast<std::size_t>(membership.size()), &total);
  if (is_too_large || total > PTRDIFF_MAX)
    throw Error(ErrorKind::Value, "empty_shared: arrays of shape " + text_of(shape) +
                                      " and dtype " + name_of(dtype) + " on " +
                                      std::to_string(membership.size()) +
                                      " ranks have more bytes than memory can have");
  descriptor_.op = Op::EmptyShared;
  descriptor_.dtype = dtype;
  descriptor_.count = bytes_ / size_of(dtype);
}

std::size_t SharedArrayMaker::total_bytes() const {
  return stride_ * static_cast<std::size_t>(membership_.size());
}

// Rank 0 makes the memory, then the others fetch it, then each rank allocates the pages
// of its own array: on its own memory node, and now, since later a lack of pages would
// get it killed. After each step all ranks know which ones failed.
void SharedArrayMaker::run(Arena& arena, std::uint64_t sequence, const Limits& limits) {
  arena.begin(sequence, descriptor_, limits);
  arena.enter();
  arena.use_chunks(2);
  arena.shared_arrays()->mark_used();

  if (arena.rank() == 0) {
    const std::string text = attempt([&] {
      check_available_memory(total_bytes());
      open(arena, limits);
    });
    tell(arena, 0, text);
  }
  arena.wait(0, arena.publish());
  failure_ = told(arena, 0, 0);
  if (failure_.empty())
    tell(arena, 1, attempt([&] {
           if (arena.rank() != 0) open(arena, limits);
           reserve(arena);
         }));
  arena.meet();
  failure_ = failure_.empty() ? failures(arena) : failure_of(arena, 0, failure_);
  if (!failure_.empty()) {
    failure_ = arena.describe_call() + ": " + failure_;
    return;
  }
  segment_.memory->close_fd();
  result_ = std::make_shared<SharedArray>(
      segment_.memory, arena.shared_arrays(),
      SharedRegion{arena.sequence(), segment_.memory->data(), stride_, bytes_,
                   arena.rank()});
}

void SharedArrayMaker::open(Arena& arena, const Limits& limits) {
  const auto nothing = [](SharedMemory&) {};
  segment_ = open_segment(
      total_bytes(), nothing, membership_,
      derived_token(token_, "shared array " + std::to_string(arena.sequence())),
      limits);
}

void SharedArrayMaker::reserve(const Arena& arena) const {
  segment_.memory->reserve(stride_ * static_cast<std::size_t>(arena.rank()), bytes_);
}

std::string SharedArrayMaker::failures(const Arena& arena) const {
  std::vector<int> failed;
  for (int rank = 0; rank < arena.size(); ++rank)
    if (!told(arena, rank, 1).empty()) failed.push_back(rank);
  return arena.tell_of(
      failed,
      [&](int rank) { return "rank " + std::to_string(arena.group_rank(rank)); },
      [&](int rank, bool) { return ": " + told(arena, rank, 1); }, "; ");
}

std::shared_ptr<SharedArray> SharedArrayMaker::result() const {
  if (!failure_.empty()) throw Error(ErrorKind::Backend, failure_);
  return result_;
}

}  // namespace allhands
