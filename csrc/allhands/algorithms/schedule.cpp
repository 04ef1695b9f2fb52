#include "allhands/algorithms/schedule.hpp"

#include <algorithm>
#include <utility>

namespace allhands {
namespace {

bool has_elements(const Step& step) {
  return (step.kind == StepKind::Send ? step.from : step.to).count != 0;
}

bool is_onto_itself(const Step& step) {
  return step.kind == StepKind::Copy && step.from == step.to;
}

std::size_t end_in_scratch(const Range& range) {
  return range.memory == Memory::Scratch ? range.at + range.count : 0;
}

}  // namespace

void Schedule::add(Round round) {
  std::erase_if(round, [](const Step& step) { return !has_elements(step); });
  add_whole(std::move(round));
}

void Schedule::add_whole(Round round) {
  std::erase_if(round, is_onto_itself);
  for (const Step& step : round)
    scratch = std::max({scratch, end_in_scratch(step.from), end_in_scratch(step.to)});
  if (!round.empty()) rounds.push_back(std::move(round));
}

void Schedule::append(const Schedule& next) {
  for (const Round& round : next.rounds) add_whole(round);
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
    moved.add_whole(std::move(round));
  }
  return moved;
}

}  // namespace allhands
