#include "allhands/store/message.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/net/little_endian.hpp"
#include "allhands/store/protocol.hpp"

namespace allhands::store {
namespace {

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kLengthBytes = 4;
// A field of fewer bytes gets its memory at once; that of a longer one doubles as the
// bytes arrive.
constexpr std::size_t kFirstReserve = 4096;
// Memory of a message that is kept for the next one: returning it to the system and
// getting it again costs more than copying it.
constexpr std::size_t kMaxKeptFields = 16;
constexpr std::size_t kMaxKeptBytes = std::size_t{1} << 20;

// Moves bytes to `out` until it has `size` of them or there are no more.
bool fill(std::string& out, std::size_t size, std::string_view& bytes) {
  const std::size_t count = std::min(size - out.size(), bytes.size());
  const std::size_t needed = out.size() + count;
  if (out.capacity() < needed)
    out.reserve(std::min(size, std::max({needed, 2 * out.size(), kFirstReserve})));
  out.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  return out.size() == size;
}

void check_bounds(const std::vector<std::uint32_t>& lengths) {
  std::uint64_t total = 0;
  for (const std::uint32_t length : lengths) {
    if (length > kMaxValueBytes)
      throw Error(ErrorKind::Network,
                  "a field of " + std::to_string(length) + " bytes: at most " +
                      std::to_string(kMaxValueBytes) + " are allowed");
    total += length;
  }
  if (total > kMaxMessageBytes)
    throw Error(ErrorKind::Network,
                "a message of " + std::to_string(total) + " bytes: at most " +
                    std::to_string(kMaxMessageBytes) + " are allowed");
}

}  // namespace

bool MessageReader::feed_head(std::string_view& bytes) {
  if (head_.size() < kHeaderBytes && !fill(head_, kHeaderBytes, bytes)) return false;
  const auto count = read_little_endian<std::uint32_t>(head_.data() + 4);
  if (count > kMaxFields)
    throw Error(ErrorKind::Network, "a message of " + std::to_string(count) +
                                        " fields: at most " +
                                        std::to_string(kMaxFields) + " are allowed");
  if (!fill(head_, kHeaderBytes + count * kLengthBytes, bytes)) return false;
  for (std::size_t i = 0; i < count; ++i)
    lengths_.push_back(read_little_endian<std::uint32_t>(head_.data() + kHeaderBytes +
                                                         i * kLengthBytes));
  check_bounds(lengths_);
  message_.code = read_little_endian<std::uint32_t>(head_.data());
  message_.number = read_little_endian<std::int64_t>(head_.data() + 8);
  message_.fields.resize(count);
  for (std::string& field : message_.fields) field.clear();
  has_head_ = true;
  return true;
}

bool MessageReader::feed_field(std::string_view& bytes) {
  std::string& field = message_.fields[num_read_];
  if (is_trusted_) field.reserve(lengths_[num_read_]);
  if (!fill(field, lengths_[num_read_], bytes)) return false;
  ++num_read_;
  return true;
}

bool MessageReader::feed(std::string_view& bytes) {
  if (!has_head_ && !feed_head(bytes)) return false;
  while (num_read_ < lengths_.size())
    if (!feed_field(bytes)) return false;
  return true;
}

void MessageReader::restart() {
  has_head_ = false;
  head_.clear();
  lengths_.clear();
  num_read_ = 0;
  if (message_.fields.size() > kMaxKeptFields) message_.fields.clear();
  for (std::string& field : message_.fields)
    if (field.capacity() > kMaxKeptBytes) field = std::string();
}

std::string encode_head(std::uint32_t code, std::int64_t number,
                        const std::vector<std::size_t>& lengths) {
  const std::uint64_t total =
      std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  if (lengths.size() > kMaxFields || total > kMaxMessageBytes)
    throw Error(ErrorKind::Value, "store: " + std::to_string(lengths.size()) +
                                      " keys and values of " + std::to_string(total) +
                                      " bytes in one call: at most " +
                                      std::to_string(kMaxFields) + " of " +
                                      std::to_string(kMaxMessageBytes) + " bytes");
  std::string head;
  head.reserve(kHeaderBytes + lengths.size() * kLengthBytes);
  append_little_endian(head, code);
  append_little_endian(head, static_cast<std::uint32_t>(lengths.size()));
  append_little_endian(head, number);
  for (const std::size_t length : lengths)
    append_little_endian(head, static_cast<std::uint32_t>(length));
  return head;
}

std::optional<std::size_t> send_now(int socket, std::span<iovec> pieces) {
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) throw system_error(ErrorKind::Network, "send", errno);
  }
}

void MessageWriter::start(std::uint32_t code, std::int64_t number,
                          const std::vector<std::string_view>& fields) {
  std::vector<std::size_t> lengths;
  lengths.reserve(fields.size());
  for (const std::string_view field : fields) lengths.push_back(field.size());
  head_ = encode_head(code, number, lengths);
  pieces_.assign(1, head_);
  pieces_.insert(pieces_.end(), fields.begin(), fields.end());
  next_ = 0;
}

bool MessageWriter::send(int socket) {
  std::array<iovec, kMaxPieces> vectors;
  while (!is_done()) {
    const std::size_t num = std::min(kMaxPieces, pieces_.size() - next_);
    for (std::size_t i = 0; i < num; ++i) {
      const std::string_view piece = pieces_[next_ + i];
      vectors[i] = {const_cast<char*>(piece.data()), piece.size()};
    }
    const auto sent = send_now(socket, std::span(vectors).first(num));
    if (!sent) return false;
    drop_sent(*sent);
  }
  return true;
}

void MessageWriter::drop_sent(std::size_t num_bytes) {
  while (!is_done() && num_bytes >= pieces_[next_].size()) {
    num_bytes -= pieces_[next_].size();
    ++next_;
  }
  if (num_bytes > 0) pieces_[next_].remove_prefix(num_bytes);
}

}  // namespace allhands::store
