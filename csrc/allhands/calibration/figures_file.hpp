// Where the figures of this host are kept until it is booted again: in a file that only
// this user can write.
//
// A file that another user may have written, that is from another boot or CPU, or that
// is incomplete counts as missing. If nothing can be written, the next job finds
// nothing.
#pragma once

#include <optional>
#include <string>

#include "allhands/calibration/figures.hpp"

namespace allhands {

// What the figures are valid for: this boot of this host, its CPU, and how they were
// measured.
const std::string& figures_key();

class FiguresFile {
 public:
  // In `folder`, which is made if it does not exist.
  explicit FiguresFile(std::string folder, std::string key = figures_key())
      : folder_(std::move(folder)), key_(std::move(key)) {}

  std::optional<Figures> read() const;
  // Returns false if the figures were not kept. Others that read or write at the same
  // time find one complete file or the other.
  bool write(const Figures& figures) const;

 private:
  const std::string folder_;
  const std::string key_;
};

}  // namespace allhands
