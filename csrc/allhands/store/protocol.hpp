// The protocol between a store's client and server.
//
// A connection opens with the handshake (handshake.hpp). Then the client sends one
// request at a time and the server answers each with one reply; requests and replies
// are messages (message.hpp). The server parks a request that has to wait (Get of a
// missing key, Wait, MultiGet, QueuePop, Barrier, AwaitWorkers). Time limits are up to
// the client: when its limit ends it sends Cancel. Cancel has no reply of its own; the
// server answers the parked request with Cancelled. A Cancel that crosses the answer is
// ignored, so the client always reads exactly one reply.
//
// A client may leave a last will with its connection, as in MQTT. The key is deleted
// now, and the server sets it if the connection ends before the will is withdrawn. So
// other processes learn that a process has died, however that happened.
//
// A relay (relay.hpp) is a client that asks for others, its guests, over one
// connection. For each guest it sends one request at a time, like a client of its own;
// guest.hpp says how. A reply with Refused means that the relay must drop the guest.
//
// Increase kProtocolVersion with every change of a byte or a number here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allhands::store {

inline constexpr std::uint32_t kProtocolVersion = 4;

// The client's requests: fields of the request -> number and fields of the reply.
enum class Op : std::uint32_t {
  Set = 1,            // key, value
  Get = 2,            // key -> value; waits
  Add = 3,            // key, number = what to add -> number = the sum
  Append = 4,         // key, value
  Check = 5,          // keys -> number = 1 if all are there
  Wait = 6,           // keys; waits
  CompareSet = 7,     // key, expected, desired -> value
  DeleteKey = 8,      // key -> number = 1 if it was there
  NumKeys = 9,        // -> number
  ListKeys = 10,      // -> keys
  MultiGet = 11,      // keys -> values; waits
  MultiSet = 12,      // key, value, key, value, ...
  QueuePush = 13,     // key, value
  QueuePop = 14,      // key, number = 1 to wait -> value
  QueueLen = 15,      // key -> number
  Barrier = 16,       // key, number = how many must come; waits
  Join = 17,          // a worker is there; number = 1: it counts in NumKeys
  AwaitWorkers = 18,  // number = how many -> number = how many came; waits
  Cancel = 19,        // see above
  Will = 20,          // key, value: see above; no fields: withdrawn
  Survey = 21,        // prefix, number = how many keys -> a Found for each, see below
  Relayed = 22,       // a request of a guest; see guest.hpp
  Left = 23,          // number = a guest that has gone; no reply
};

// What a Survey finds at each of the keys prefix0, prefix1, ...: one byte per key.
enum class Found : char { Nothing = 0, EmptyValue = 1, SomeValue = 2 };

// The server's answers.
enum class Status : std::uint32_t {
  Ok = 0,
  Cancelled = 1,     // AwaitWorkers: number = how many came
  QueueEmpty = 2,    // QueuePop that does not wait
  InvalidValue = 3,  // a mistake of the caller; field: the message
  Refused = 4,       // to a relay only
};

// Limits, which are checked before memory is allocated.
inline constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxFields = std::size_t{1} << 20;
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{4} << 30;

}  // namespace allhands::store
