// The arrays of simulated participants, of any type of elements. Every step is checked:
// it stays within its arrays, writes no Input, and nothing that another step of its
// round reads or writes.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "allhands/algorithms/algorithm.hpp"
#include "check.hpp"
#include "simulation.hpp"

namespace allhands::testing {

// The numbers of elements in Input and Output of a participant; 0 if it has none.
inline std::size_t input_count(const Task& task, int rank) {
  using enum TaskKind;
  const Partition& parts = task.parts;
  switch (task.collective) {
    case AllGather:
    case Gather:
      return parts.count(rank);
    case Broadcast:
    case Scatter:
      return rank == task.root ? parts.total() : 0;
    case Barrier:
      return 0;
    default:
      return parts.total();
  }
}

inline std::size_t output_count(const Task& task, int rank) {
  using enum TaskKind;
  const Partition& parts = task.parts;
  switch (task.collective) {
    case ReduceScatter:
    case Scatter:
      return parts.count(rank);
    case Broadcast:
      return rank == task.root ? 0 : parts.total();
    case Reduce:
    case Gather:
      return rank == task.root ? parts.total() : 0;
    case Barrier:
      return 0;
    default:
      return parts.total();
  }
}

template <class T>
class SimulatedArrays : public Contents {
 public:
  using Reduce = std::function<T(const std::vector<T>&)>;

  // In place: Input and Output are the same memory as far as a schedule must expect it.
  SimulatedArrays(const Task& task, const std::vector<Schedule>& schedules,
                  const std::function<T(int, std::size_t)>& input, Reduce reduce,
                  bool is_in_place)
      : task_(task), reduce_(std::move(reduce)), is_in_place_(is_in_place) {
    for (int i = 0; i < task.size(); ++i) {
      std::vector<T> in(input_count(task, i)), out(output_count(task, i));
      for (std::size_t at = 0; at < in.size(); ++at) in[at] = input(i, at);
      if (aliases(i) && in.size() <= out.size())
        std::copy(in.begin(), in.end(), out.begin() + offset(i, in, out));
      const std::size_t scratch = schedules[static_cast<std::size_t>(i)].scratch;
      arrays_.push_back({std::move(in), std::move(out), std::vector<T>(scratch)});
    }
  }

  const T& output(int i, std::size_t at) { return *find(i, {Memory::Output, at, 1}); }

  void begin(int i, const Round& round) override {
    std::vector<std::pair<const T*, const T*>> writes, reads;
    for (const Step& step : round) {
      const bool is_reading = step.kind != StepKind::Receive;
      const bool is_writing = step.kind != StepKind::Send;
      if (is_writing) CHECK(step.to.memory != Memory::Input);
      const bool is_onto_itself =
          is_reading && is_writing && find(i, step.from) == find(i, step.to);
      if (is_onto_itself && step.kind == StepKind::Copy) continue;  // nothing to do
      if (is_writing) writes.push_back(span(i, step.to));
      if (is_reading && !is_onto_itself) reads.push_back(span(i, step.from));
    }
    for (std::size_t a = 0; a < writes.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) CHECK(!overlap(writes[a], writes[b]));
      for (const auto& read : reads) CHECK(!overlap(writes[a], read));
    }
  }
  void send(std::size_t message, int i, const Range& from) override {
    messages_[message].assign(find(i, from), find(i, from) + from.count);
  }
  void receive(std::size_t message, int i, const Step& step) override {
    const auto sent = messages_.extract(message);
    const std::vector<T>& data = sent.mapped();
    T* to = find(i, step.to);
    if (step.kind == StepKind::Receive) {
      std::copy(data.begin(), data.end(), to);
      return;
    }
    CHECK(step.from.count == step.to.count);
    const T* from = find(i, step.from);
    for (std::size_t at = 0; at < data.size(); ++at)
      to[at] = step.is_received_first ? reduce_({data[at], from[at]})
                                      : reduce_({from[at], data[at]});
  }
  void work(int i, const Step& step) override {
    const T* from = find(i, step.from);
    T* to = find(i, step.to);
    if (step.kind == StepKind::Copy) {
      CHECK(step.from.count == step.to.count);
      std::copy(from, from + step.from.count, to);
      return;
    }
    CHECK(step.from.count == step.to.count * static_cast<std::size_t>(step.num_parts));
    for (std::size_t at = 0; at < step.to.count; ++at) {
      std::vector<T> operands;
      for (int part = 0; part < step.num_parts; ++part)
        operands.push_back(
            from[static_cast<std::size_t>((step.first_part + part) % step.num_parts) *
                     step.to.count +
                 at]);
      to[at] = reduce_(operands);
    }
  }

 private:
  struct Own {
    std::vector<T> input, output, scratch;
  };

  static bool overlap(const std::pair<const T*, const T*>& a,
                      const std::pair<const T*, const T*>& b) {
    return a.first < b.second && b.first < a.second;
  }
  bool aliases(int i) const {
    return is_in_place_ && task_.collective != TaskKind::AllToAll &&
           input_count(task_, i) != 0 && output_count(task_, i) != 0;
  }
  // Where the shorter one of Input and Output is within the other.
  std::ptrdiff_t offset(int i, const std::vector<T>& in,
                        const std::vector<T>& out) const {
    return in.size() == out.size() ? 0 : static_cast<std::ptrdiff_t>(task_.parts.at(i));
  }
  T* find(int i, const Range& range) {
    Own& own = arrays_[static_cast<std::size_t>(i)];
    const bool is_shared = aliases(i);
    const bool is_input_longer = own.input.size() > own.output.size();
    std::vector<T>* memory = &own.scratch;
    std::ptrdiff_t start = 0;
    if (range.memory != Memory::Scratch) {
      const bool is_input = range.memory == Memory::Input;
      CHECK(range.at + range.count <=
            (is_input ? own.input.size() : own.output.size()));
      const bool goes_to_input = is_shared ? is_input_longer : is_input;
      memory = goes_to_input ? &own.input : &own.output;
      if (goes_to_input != is_input) start = offset(i, own.input, own.output);
    }
    CHECK(static_cast<std::size_t>(start) + range.at + range.count <= memory->size());
    return memory->data() + start + range.at;
  }
  std::pair<const T*, const T*> span(int i, const Range& range) {
    return {find(i, range), find(i, range) + range.count};
  }

  const Task& task_;
  const Reduce reduce_;
  const bool is_in_place_;
  std::vector<Own> arrays_;
  std::map<std::size_t, std::vector<T>> messages_;
};

}  // namespace allhands::testing
