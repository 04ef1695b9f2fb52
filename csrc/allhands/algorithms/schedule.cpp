#include "allhands/algorithms/schedule.hpp"

#include <algorithm>

namespace allhands {
namespace {

bool does_something(const Step& step) {
  switch (step.kind) {
    case StepKind::Send:
      return step.from.count != 0;
    case StepKind::Copy:
      return step.from.count != 0 && step.from != step.to;
    default:
      return step.to.count != 0;
  }
}

std::size_t end_in_scratch(const Range& range) {
  return range.memory == Memory::Scratch ? range.at + range.count : 0;
}

}  // namespace

void Schedule::add(const Round& round) {
  Round kept;
  for (const Step& step : round) {
    if (!does_something(step)) continue;
    kept.push_back(step);
    scratch = std::max({scratch, end_in_scratch(step.from), end_in_scratch(step.to)});
  }
  if (!kept.empty()) rounds.push_back(std::move(kept));
}

void Schedule::append(const Schedule& next) {
  for (const Round& round : next.rounds) add(round);
}

Schedule Schedule::moved(Memory memory, Memory elsewhere, std::size_t at) const {
  const auto move = [&](Range& range) {
    if (range.count != 0 && range.memory == memory)
      range = {elsewhere, range.at + at, range.count};
  };
  Schedule moved;
  for (Round round : rounds) {
    for (Step& step : round) {
      move(step.from);
      move(step.to);
    }
    moved.add(round);
  }
  return moved;
}

}  // namespace allhands
