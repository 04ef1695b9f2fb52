// How the messages of a relay's clients, its guests, travel over its one connection.
//
//   request  code Relayed, number = which guest, then as fields: the guest's own code
//            (u32) and number (i64), and its fields
//   reply    code = the status, number = which guest, then as fields: the reply's own
//            number (i64), and its fields
//
// The number of a guest is the relay's choice. It is never used twice.
#pragma once

#include <cstdint>
#include <vector>

#include "allhands/store/message.hpp"
#include "allhands/store/table.hpp"

namespace allhands::store {

// The fields of a Relayed request with `request` of a guest.
std::vector<Value> as_fields(Message request);
// The request that is in the fields of a Relayed one. Throws Error(Network) if there is
// none.
Message request_of_guest(Message relayed);

// The fields of a reply to a guest, with the reply's own number and fields.
std::vector<Value> as_fields(std::int64_t number, std::vector<Value> fields);
// The reply's own number, which it takes out of the fields. Throws Error(Network) if
// there is none.
std::int64_t take_number(std::vector<std::string>& fields);

}  // namespace allhands::store
