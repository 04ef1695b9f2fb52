// Where the figures of this host are kept until it is booted again: in a file that only
// this user can write.
//
// What another user may have written, what is of another boot or CPU, and what is not
// whole is as good as nothing; where nothing can be written, the next job finds
// nothing.
#pragma once

#include <optional>
#include <string>

#include "allhands/calibration/figures.hpp"

namespace allhands {

// What figures hold for: this boot of this host, its CPU, and how they were taken.
const std::string& figures_key();

class FiguresFile {
 public:
  // In `folder`, which is made if there is none.
  explicit FiguresFile(std::string folder, std::string key = figures_key())
      : folder_(std::move(folder)), key_(std::move(key)) {}

  std::optional<Figures> read() const;
  // False: they are not kept. Who reads at the same time, or writes, finds one file or
  // the other, whole.
  bool write(const Figures& figures) const;

 private:
  const std::string folder_;
  const std::string key_;
};

}  // namespace allhands
