// The tables of docs/algorithms.md: what algorithms take in the simulation.
//
// Without an argument it holds that the document has them; with one it prints them.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "check.hpp"
#include "networks.hpp"

namespace allhands::testing {
namespace {

constexpr std::size_t kSizes[] = {8, 1 << 10, 32 << 10, 1 << 20, 32 << 20};

// Three digits.
std::string text_of(double seconds) {
  const char* unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
  const double number = seconds * (seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1);
  const int digits = number < 10 ? 2 : number < 100 ? 1 : 0;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", digits, number, unit);
  return text;
}

std::string text_of(std::size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < 1 << 20) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

std::string text_of(const Choice& choice) {
  std::string text = choice.algorithm->name;
  const Parameter parameter = choice.algorithm->parameter;
  if (parameter == Parameter::Radix || parameter == Parameter::AtOnce)
    text.append(" ").append(std::to_string(choice.value));
  return text;
}

std::string column(const std::string& text, int width) {
  char padded[64];
  std::snprintf(padded, sizeof padded, "%*s", width, text.c_str());
  return padded;
}

std::string header(const std::string& title) {
  std::string line = column(title, -14);
  for (const std::size_t bytes : kSizes) line += column(text_of(bytes), 13);
  return line + "\n";
}

// What is chosen for each number of participants and size, and what it takes.
std::string chosen(const char* title, TaskKind collective, const Costs& costs, int most,
                   bool as_on_one_host = false) {
  std::string text = header(title);
  for (int size = 2; size <= most; size *= size == 2 ? 2 : 4) {
    std::string times = column(std::to_string(size), -14), names = column("", 14);
    for (const std::size_t bytes : kSizes) {
      const Task task = task_of(collective, size, bytes);
      const Choice choice = choose(task, kElement, costs, as_on_one_host);
      times += column(text_of(simulated(choice, task, costs)), 13);
      names += column(text_of(choice), 13);
    }
    text += times + "\n" + names + "\n";
  }
  return text;
}

// What every algorithm takes, with the best value of its parameter.
std::string compared(const char* title, TaskKind collective, int size,
                     const Costs& costs) {
  std::string text = header(title);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != collective) continue;
    text += column(algorithm.name, -14);
    for (const std::size_t bytes : kSizes) {
      const Task task = task_of(collective, size, bytes);
      double least = kNever;
      for (const Choice& choice : choices(task, kElement, costs))
        if (choice.algorithm == &algorithm)
          least = std::min(least, simulated(choice, task, costs));
      text += column(text_of(least), 13);
    }
    text += "\n";
  }
  return text;
}

std::string barriers(const Costs& costs) {
  std::string sizes = column("barrier", -14), times = column("", 14);
  for (const int size : {2, 4, 16, 64, 256}) {
    const Task task = task_of(TaskKind::Barrier, size, 0);
    sizes += column(std::to_string(size), 13);
    times += column(text_of(simulated(choose(task, kElement, costs), task, costs)), 13);
  }
  return sizes + "\n" + times + "\n";
}

std::vector<std::string> tables() {
  const Costs& fast = kNetworks[1].costs;
  return {
      compared("all_reduce, 16", TaskKind::AllReduce, 16, fast),
      chosen("all_reduce", TaskKind::AllReduce, fast, 1024),
      chosen("in rank order", TaskKind::AllReduce, fast, 64, true),
      chosen("1 ms away", TaskKind::AllReduce, kNetworks[3].costs, 64),
      chosen("reduce_scatter", TaskKind::ReduceScatter, fast, 1024),
      chosen("all_gather", TaskKind::AllGather, fast, 1024),
      chosen("broadcast", TaskKind::Broadcast, fast, 256),
      chosen("reduce", TaskKind::Reduce, fast, 256),
      chosen("all_to_all", TaskKind::AllToAll, fast, 256),
      barriers(fast),
  };
}

}  // namespace
}  // namespace allhands::testing

int main(int argc, char**) {
  using namespace allhands::testing;
  if (argc > 1) {
    for (const std::string& table : tables())
      std::printf("```text\n%s```\n\n", table.c_str());
    return 0;
  }
  std::ifstream file(DOCUMENTS "/algorithms.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& table : tables()) {
    if (page.find("```text\n" + table + "```\n") != std::string::npos) continue;
    std::fprintf(stderr, "docs/algorithms.md does not have this table:\n%s",
                 table.c_str());
    CHECK(!"the document is true");
  }
}
