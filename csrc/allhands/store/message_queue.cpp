#include "allhands/store/message_queue.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>

#include "allhands/store/message.hpp"

namespace allhands::store {

void MessageQueue::push(std::uint32_t code, std::int64_t number,
                        const std::vector<Value>& fields) {
  std::vector<std::size_t> lengths;
  lengths.reserve(fields.size());
  for (const Value& field : fields) lengths.push_back(field->size());
  pieces_.push_back(
      std::make_shared<const std::string>(encode_head(code, number, lengths)));
  for (const Value& field : fields)
    if (!field->empty()) pieces_.push_back(field);
}

bool MessageQueue::send(int socket) {
  std::array<iovec, kMaxPieces> vectors;
  while (!pieces_.empty()) {
    const std::size_t num = std::min(kMaxPieces, pieces_.size());
    for (std::size_t i = 0; i < num; ++i) {
      const std::string& piece = *pieces_[i];
      const std::size_t begin = i == 0 ? num_skipped_ : 0;
      vectors[i] = {const_cast<char*>(piece.data()) + begin, piece.size() - begin};
    }
    const auto sent = send_now(socket, std::span(vectors).first(num));
    if (!sent) return false;
    drop_sent(*sent);
  }
  return true;
}

void MessageQueue::drop_sent(std::size_t num_bytes) {
  sent_ += num_bytes;
  num_skipped_ += num_bytes;
  while (!pieces_.empty() && num_skipped_ >= pieces_.front()->size()) {
    num_skipped_ -= pieces_.front()->size();
    pieces_.pop_front();
  }
}

}  // namespace allhands::store
