#include "allhands/hosts/executor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include "allhands/hosts/messages.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

// Receives and reduces the data of one step, piece by piece.
class Stream {
 public:
  // `own` is `to` or another array of the same length.
  Stream(Messages& messages, KeptMemory& memory, int from, const Buffer& own,
         const Buffer& to, bool is_received_first, ReduceOp op)
      : messages_(messages),
        from_(from),
        own_(own),
        to_(to),
        is_received_first_(is_received_first),
        op_(op),
        piece_(std::min(Messages::piece_of(to.dtype), to.count)),
        memory_(memory.lend(std::min(Messages::kPiecesAhead * piece_, to.count) *
                            size_of(to.dtype))) {
    if (to.count == 0) messages.receive(to, from);  // an empty message is sent too
    while (next_ < to_.count && transfers_.size() < Messages::kPiecesAhead) post();
  }

  // Waits for the next piece. Returns false if there is none.
  bool take() {
    if (transfers_.empty()) return false;
    const TransferPtr transfer = std::move(transfers_.front());
    transfers_.pop_front();
    messages_.wait_for(transfer);
    const Buffer& received = transfer->buffer;
    const void* sources[] = {own_.slice(taken_, received.count).data, received.data};
    if (is_received_first_) std::swap(sources[0], sources[1]);
    reduce(to_.dtype, op_, to_.slice(taken_, received.count).data, sources, 2,
           received.count, nullptr);
    taken_ += received.count;
    if (next_ < to_.count) post();
    return true;
  }

 private:
  void post() {
    const std::size_t slot = next_ / piece_ % Messages::kPiecesAhead;
    const std::size_t count = std::min(piece_, to_.count - next_);
    const Buffer place = {
        memory_.data() + slot * piece_ * size_of(to_.dtype), to_.dtype, count, {}, 0};
    transfers_.push_back(messages_.receive_piece(place, from_));
    next_ += count;
  }

  Messages& messages_;
  const int from_;
  const Buffer own_;
  const Buffer to_;
  const bool is_received_first_;
  const ReduceOp op_;
  const std::size_t piece_;  // elements
  const KeptMemory::Loan memory_;
  std::size_t next_ = 0;   // the next one to post
  std::size_t taken_ = 0;  // those that were reduced
  std::deque<TransferPtr> transfers_;
};

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
        memory_(crossing.memory.lend(schedule.scratch * element_)),
        scratch_{memory_.data(), input.dtype, schedule.scratch, {}, 0} {}

  void run(const Round& round) const {
    // Their memory must stay as long as messages may go there.
    std::deque<Stream> streams;
    Messages messages(crossing_);
    for (const Step& step : round) {
      if (step.kind == StepKind::Receive)
        messages.receive(at(step.to), rank_of(step));
      else if (step.kind == StepKind::ReceiveReduce)
        streams.emplace_back(messages, crossing_.memory, rank_of(step), at(step.from),
                             at(step.to), step.is_received_first, op_);
    }
    for (const Step& step : round)
      if (step.kind == StepKind::Send) messages.send(at(step.from), rank_of(step));
    for (const Step& step : round) {
      if (step.kind == StepKind::Copy)
        std::memmove(at(step.to).data, at(step.from).data, step.to.count * element_);
      else if (step.kind == StepKind::Reduce)
        reduce_parts(step);
    }
    for (bool is_any = true; is_any;) {
      is_any = false;
      for (Stream& stream : streams) is_any |= stream.take();
    }
    messages.wait();
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
  const KeptMemory::Loan memory_;
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
