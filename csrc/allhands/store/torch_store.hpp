// Recognises PyTorch's store (torch.distributed.TCPStore), which torchrun hosts at the
// MASTER_ADDR and MASTER_PORT that it gives to programs. Our store does not speak its
// protocol, and neither answers the other's first bytes.
#pragma once

#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands::store {

// Whether PyTorch's store answers at `address`, within a second and the limits. Throws
// Interrupted.
bool is_torch_store(const Address& address, const Limits& limits);

}  // namespace allhands::store
