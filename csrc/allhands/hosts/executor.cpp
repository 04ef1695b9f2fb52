#include "allhands/hosts/executor.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "allhands/hosts/messages.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

class Executor {
 public:
  Executor(const Crossing& crossing, const Schedule& schedule,
           const std::vector<int>& participants, const Buffer& input,
           const Buffer& output, ReduceOp op)
      : crossing_(crossing),
        participants_(participants),
        input_(input),
        output_(output),
        op_(op),
        element_(size_of(input.dtype)),
        memory_(
            std::make_unique_for_overwrite<std::byte[]>(schedule.scratch * element_)),
        scratch_{memory_.get(), input.dtype, schedule.scratch, {}, 0} {}

  void run(const Round& round) const {
    std::size_t num_received = 0;  // elements that are reduced once they are here
    for (const Step& step : round)
      if (step.kind == StepKind::ReceiveReduce) num_received += step.to.count;
    const auto memory =
        std::make_unique_for_overwrite<std::byte[]>(num_received * element_);
    Messages messages(crossing_);
    std::byte* received = memory.get();
    for (const Step& step : round) {
      if (step.kind == StepKind::Send)
        messages.send(at(step.from), rank_of(step));
      else if (step.kind == StepKind::Receive)
        messages.receive(at(step.to), rank_of(step));
      if (step.kind != StepKind::ReceiveReduce) continue;
      messages.receive({received, input_.dtype, step.to.count, {}, 0}, rank_of(step));
      received += step.to.count * element_;
    }
    for (const Step& step : round) {
      if (step.kind == StepKind::Copy)
        std::memmove(at(step.to).data, at(step.from).data, step.to.count * element_);
      else if (step.kind == StepKind::Reduce)
        reduce_parts(step);
    }
    messages.wait();
    received = memory.get();
    for (const Step& step : round) {
      if (step.kind != StepKind::ReceiveReduce) continue;
      reduce_received(step, received);
      received += step.to.count * element_;
    }
  }

 private:
  int rank_of(const Step& step) const {
    return participants_[static_cast<std::size_t>(step.peer)];
  }

  Buffer at(const Range& range) const {
    const Buffer& memory = range.memory == Memory::Input    ? input_
                           : range.memory == Memory::Output ? output_
                                                            : scratch_;
    return memory.slice(range.at, range.count);
  }

  void reduce_received(const Step& step, const void* received) const {
    const void* const own = at(step.from).data;
    const void* sources[] = {own, received};
    if (step.is_received_first) std::swap(sources[0], sources[1]);
    reduce(input_.dtype, op_, at(step.to).data, sources, 2, step.to.count, nullptr);
  }

  void reduce_parts(const Step& step) const {
    std::vector<const void*> sources;
    for (int i = 0; i < step.num_parts; ++i) {
      const int part = (step.first_part + i) % step.num_parts;
      sources.push_back(at(step.from).at_byte(static_cast<std::size_t>(part) *
                                              step.to.count * element_));
    }
    reduce(input_.dtype, op_, at(step.to).data, sources.data(), step.num_parts,
           step.to.count, nullptr);
  }

  const Crossing& crossing_;
  const std::vector<int>& participants_;
  const Buffer& input_;
  const Buffer& output_;
  const ReduceOp op_;
  const std::size_t element_;
  const std::unique_ptr<std::byte[]> memory_;
  const Buffer scratch_;
};

}  // namespace

void execute(const Crossing& crossing, const Schedule& schedule,
             const std::vector<int>& participants, const Buffer& input,
             const Buffer& output, ReduceOp op) {
  const Executor executor(crossing, schedule, participants, input, output, op);
  for (const Round& round : schedule.rounds) executor.run(round);
}

}  // namespace allhands
