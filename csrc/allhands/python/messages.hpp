#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace allhands::python {

// `peer`: None for any. With `async_op` a Work, else None.
nanobind::object carry_out_send(nanobind::handle communicator, nanobind::handle tensor,
                                nanobind::handle peer, std::int64_t tag,
                                nanobind::handle timeout, bool async_op);
nanobind::object carry_out_recv(nanobind::handle communicator, nanobind::handle tensor,
                                nanobind::handle peer, std::int64_t tag,
                                nanobind::handle timeout, bool async_op);

// Their Work in any case, without `async_op` one that has ended: of a receive of a
// message that may be shorter than the array, and tells what came; of a probe, which
// leaves the message; of a probe that does not wait, or None.
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
