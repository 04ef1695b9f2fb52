// Random bytes that nobody can guess, from the kernel: nonces, identities, tokens.
#pragma once

#include <cstddef>
#include <string>

namespace allhands {

std::string random_bytes(std::size_t count);

}  // namespace allhands
