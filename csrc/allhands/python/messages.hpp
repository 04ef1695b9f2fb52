#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace allhands::python {

// `peer` is None for any rank. Returns a Work with `async_op`, else None.
nanobind::object carry_out_send(nanobind::handle communicator, nanobind::handle tensor,
                                nanobind::handle peer, std::int64_t tag,
                                nanobind::handle timeout, bool async_op);
nanobind::object carry_out_recv(nanobind::handle communicator, nanobind::handle tensor,
                                nanobind::handle peer, std::int64_t tag,
                                nanobind::handle timeout, bool async_op);

// All return a Work; without `async_op` it has ended. The first receives a message that
// may be shorter than the array, and tells what came. The second is a probe, which
// leaves the message. The last is a probe that does not wait, and may return None.
nanobind::object carry_out_recv_status(nanobind::handle communicator,
                                       nanobind::handle tensor, nanobind::handle peer,
                                       std::int64_t tag, nanobind::handle timeout,
                                       bool async_op);
nanobind::object carry_out_probe(nanobind::handle communicator,
                                 nanobind::handle nothing, nanobind::handle peer,
                                 std::int64_t tag, nanobind::handle timeout,
                                 bool async_op);
nanobind::object carry_out_iprobe(nanobind::handle communicator,
                                  nanobind::handle nothing, nanobind::handle peer,
                                  std::int64_t tag, nanobind::handle timeout,
                                  bool async_op);

}  // namespace allhands::python
