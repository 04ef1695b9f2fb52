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

}  // namespace allhands::python
