// Carries out the schedules of any number of participants in one thread, in simulated
// time.
//
// The time is that of the LogGP model: a message takes the sender's processor for the
// overhead, its host's link for its bytes, the latency, the receiver's link for its
// bytes, and the receiver's processor for the overhead and what is reduced. Messages
// that come to a host together share its link, one after the other. What the
// participants have in their arrays is a matter of `Contents`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "allhands/algorithms/costs.hpp"
#include "allhands/algorithms/schedule.hpp"
#include "check.hpp"

namespace allhands::testing {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Between whom messages go, and what goes wrong on the way.
struct Network {
  Costs between_hosts;
  Costs within_host = {};
  int per_host = 1;  // participants, whose numbers follow each other
  std::function<double(int host)> slowness =
      nullptr;                  // its link takes so many times as long
  bool is_synchronous = false;  // a Send ends when it has been received
  // Drawn for each message from `seed`.
  std::uint64_t seed = 0;
  double most_delay = 0;      // beside the latency, at most
  double loss = 0;            // how likely it is to be lost
  double retransmission = 0;  // after which it is sent again
  int dead = -1;              // this participant begins nothing more
  double death = kNever;      // from now on

  int host_of(int participant) const { return participant / per_host; }
};

// What the steps do to arrays, in the order in which they happen.
class Contents {
 public:
  virtual ~Contents() = default;
  virtual void begin(int /*participant*/, const Round&) {}
  virtual void send(std::size_t /*message*/, int /*participant*/, const Range&) {}
  virtual void receive(std::size_t /*message*/, int /*participant*/, const Step&) {}
  virtual void work(int /*participant*/, const Step&) {}
};

// How a simulation ended.
struct Outcome {
  std::vector<double> ends;              // of each participant; kNever: it did not
  std::vector<std::set<int>> waits_for;  // of each that did not end
  std::size_t num_messages = 0;
  std::size_t elements_sent = 0;
  std::size_t most_peers = 0;  // that one participant sends to

  double end() const { return *std::ranges::max_element(ends); }
};

class Simulation {
 public:
  Simulation(const std::vector<Schedule>& schedules, const Network& network,
             std::size_t element, Contents& contents)
      : schedules_(schedules),
        network_(network),
        element_(static_cast<double>(element)),
        contents_(contents),
        random_(network.seed),
        states_(schedules.size()),
        sending_(static_cast<std::size_t>(hosts())),
        receiving_(static_cast<std::size_t>(hosts())) {}

  Outcome run() {
    for (int i = 0; i < size(); ++i) at(0, [this, i](double now) { begin(i, now); });
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      event.happen(event.time);
    }
    return outcome();
  }

 private:
  struct Event {
    double time;
    std::uint64_t order;
    std::function<void(double)> happen;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct State {
    std::size_t round = 0;
    std::size_t pending = 0;
    double free = 0;  // the processor
    double end = 0;   // of the steps that have ended
    std::set<int> peers;
    bool has_ended = false;
  };
  struct Message {
    std::size_t number;
    int from, to;
    std::size_t count;
    double complete = 0;  // not before its last byte has been sent
    bool has_come = false;
  };
  struct Channel {  // from one participant to another
    std::vector<std::size_t> messages;
    std::vector<const Step*> receives;
    std::size_t num_met = 0;
    double last_arrival = 0;
  };

  int size() const { return static_cast<int>(schedules_.size()); }
  int hosts() const { return network_.host_of(size() - 1) + 1; }
  State& state(int i) { return states_[static_cast<std::size_t>(i)]; }
  Channel& channel(int from, int to) {
    return channels_[static_cast<std::uint64_t>(from) << 32 |
                     static_cast<std::uint32_t>(to)];
  }
  double bytes(std::size_t count) const {
    return static_cast<double>(count) * element_;
  }
  bool is_local(int a, int b) const {
    return network_.host_of(a) == network_.host_of(b);
  }
  const Costs& costs(int a, int b) const {
    return is_local(a, b) ? network_.within_host : network_.between_hosts;
  }
  bool is_dead(int participant, double now) const {
    return participant == network_.dead && now >= network_.death;
  }
  double uniform() { return std::uniform_real_distribution<>(0, 1)(random_); }

  template <class Happen>
  void at(double time, Happen happen) {
    events_.push({time, order_++, std::move(happen)});
  }

  void begin(int i, double now) {
    State& own = state(i);
    if (is_dead(i, now)) return;
    const Schedule& schedule = schedules_[static_cast<std::size_t>(i)];
    if (own.round == schedule.rounds.size()) {
      own.has_ended = true;
      own.end = now;
      return;
    }
    const Round& round = schedule.rounds[own.round++];
    contents_.begin(i, round);
    own.free = std::max(own.free, now);
    own.pending = round.size();
    for (const Step& step : round) begin(i, step);
  }

  void begin(int i, const Step& step) {
    State& own = state(i);
    const Costs& local = network_.between_hosts;
    switch (step.kind) {
      case StepKind::Send:
        send(i, step);
        break;
      case StepKind::Receive:
      case StepKind::ReceiveReduce:
        channel(step.peer, i).receives.push_back(&step);
        own.peers.insert(step.peer);
        meet(step.peer, i, own.free);
        break;
      case StepKind::Copy:
        own.free += bytes(step.to.count) * local.per_byte_copied;
        contents_.work(i, step);
        ended(i, own.free);
        break;
      case StepKind::Reduce:
        own.free += bytes(step.from.count - step.to.count) * local.per_byte_reduced;
        contents_.work(i, step);
        ended(i, own.free);
        break;
    }
  }

  void send(int i, const Step& step) {
    State& own = state(i);
    CHECK(step.peer >= 0 && step.peer < size() && step.peer != i);
    own.free += costs(i, step.peer).overhead;
    own.peers.insert(step.peer);
    const std::size_t number = messages_.size();
    messages_.push_back({number, i, step.peer, step.from.count});
    elements_sent_ += step.from.count;
    channel(i, step.peer).messages.push_back(number);
    contents_.send(number, i, step.from);
    at(own.free, [this, number](double now) { inject(number, now); });
  }

  // How long a message takes the link of the host of `end`, one of its two ends.
  double on_link(const Message& message, int end) const {
    const Costs& cost = costs(message.from, message.to);
    const double time = std::max(cost.gap, bytes(message.count) * cost.per_byte);
    return network_.slowness && !is_local(message.from, message.to)
               ? time * network_.slowness(network_.host_of(end))
               : time;
  }

  // From when on the message has the link; within a host each has one for itself.
  double begin_on(std::vector<double>& links, const Message& message, int end,
                  double now) {
    if (is_local(message.from, message.to)) return now;
    double& free = links[static_cast<std::size_t>(network_.host_of(end))];
    const double start = std::max(free, now);
    free = start + on_link(message, end);
    return start;
  }

  void inject(std::size_t number, double now) {
    Message& message = messages_[number];
    if (is_dead(message.from, now)) return;
    const double start = begin_on(sending_, message, message.from, now);
    const double gone = start + on_link(message, message.from);
    double delay = costs(message.from, message.to).latency;
    if (network_.most_delay != 0) delay += uniform() * network_.most_delay;
    if (network_.loss != 0)
      while (uniform() < network_.loss) delay += network_.retransmission;
    Channel& way = channel(message.from, message.to);
    way.last_arrival = std::max(start + delay, way.last_arrival);  // in order
    message.complete = gone + delay;
    if (!network_.is_synchronous)
      at(gone, [this, i = message.from](double t) { ended(i, t); });
    at(way.last_arrival, [this, number](double t) { arrive(number, t); });
  }

  void arrive(std::size_t number, double now) {
    const Message& message = messages_[number];
    const double start = begin_on(receiving_, message, message.to, now);
    const double come =
        std::max(start + on_link(message, message.to), message.complete);
    at(come, [this, number](double t) {
      Message& whole = messages_[number];
      whole.has_come = true;
      meet(whole.from, whole.to, t);
    });
  }

  // The k-th message meets the k-th receive.
  void meet(int from, int to, double now) {
    Channel& way = channel(from, to);
    while (way.num_met < std::min(way.messages.size(), way.receives.size())) {
      const Message& message = messages_[way.messages[way.num_met]];
      if (!message.has_come || is_dead(to, now)) return;
      const Step& step = *way.receives[way.num_met++];
      CHECK(step.to.count == message.count);
      State& own = state(to);
      own.free = std::max(own.free, now) + costs(from, to).overhead;
      if (step.kind == StepKind::ReceiveReduce)
        own.free += bytes(message.count) * network_.between_hosts.per_byte_reduced;
      contents_.receive(message.number, to, step);
      if (network_.is_synchronous) ended(from, now);
      ended(to, own.free);
    }
  }

  void ended(int i, double when) {
    State& own = state(i);
    own.end = std::max(own.end, when);
    if (--own.pending == 0) at(own.end, [this, i](double now) { begin(i, now); });
  }

  Outcome outcome() {
    Outcome result;
    result.waits_for.resize(states_.size());
    for (const State& own : states_) {
      result.ends.push_back(own.has_ended ? own.end : kNever);
      result.most_peers = std::max(result.most_peers, own.peers.size());
    }
    for (const auto& [key, way] : channels_) {
      const auto from = static_cast<std::size_t>(key >> 32);
      const auto to = static_cast<std::size_t>(key & UINT32_MAX);
      if (!states_[from].has_ended || !states_[to].has_ended) {
        if (way.receives.size() > way.num_met)
          result.waits_for[to].insert(static_cast<int>(from));
        if (network_.is_synchronous && way.messages.size() > way.num_met)
          result.waits_for[from].insert(static_cast<int>(to));
      } else {
        CHECK(way.messages.size() == way.receives.size());  // nothing is left over
      }
    }
    result.num_messages = messages_.size();
    result.elements_sent = elements_sent_;
    return result;
  }

  const std::vector<Schedule>& schedules_;
  const Network& network_;
  const double element_;
  Contents& contents_;
  std::mt19937_64 random_;
  std::vector<State> states_;
  std::vector<double> sending_, receiving_;  // when each host's link is free
  std::vector<Message> messages_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::size_t elements_sent_ = 0;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
};

}  // namespace allhands::testing
