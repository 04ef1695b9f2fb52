#include "allhands/store/torch_store.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "allhands/net/little_endian.hpp"
#include "allhands/net/socket.hpp"

namespace allhands::store {
namespace {

constexpr Deadline::Duration kAnswerLimit = std::chrono::seconds(1);

// Numbers of torch 2.13: a client introduces itself, and may ask for an echo.
constexpr char kValidate = 0;
constexpr char kPing = 13;
constexpr std::uint32_t kTorchMagic = 0x3C85F7CE;
constexpr std::string_view kEcho = "ahoy";

std::string question() {
  std::string bytes(1, kValidate);
  append_little_endian(bytes, kTorchMagic);
  return bytes.append(1, kPing).append(kEcho);
}

}  // namespace

bool is_torch_store(const Address& address, const Limits& limits) {
  const Limits soon{
      Deadline::after(std::min(kAnswerLimit, limits.deadline.remaining())),
      limits.interrupt};
  std::string problem;
  const Fd socket = connect_to(address, soon, problem);
  const std::string bytes = question();
  if (!socket.is_open() || ::send(socket.get(), bytes.data(), bytes.size(),
                                  MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
    return false;
  std::array<char, kEcho.size()> answer;
  if (!wait_ready(socket.get(), Direction::Read, soon)) return false;
  const ssize_t count = ::recv(socket.get(), answer.data(), answer.size(), 0);
  return count == static_cast<ssize_t>(answer.size()) &&
         std::string_view(answer.data(), answer.size()) == kEcho;
}

}  // namespace allhands::store
