// Random bytes from the kernel that nobody can guess: for nonces, identities, tokens.
#pragma once

#include <cstddef>
#include <string>

namespace allhands {

std::string random_bytes(std::size_t count);

}  // namespace allhands
