// What a guard asks: `(::mutation::is(7) ? mutated : original)`. Only guarded copies of
// the core include it; the product has no such thing.
#pragma once

namespace mutation {
// Whether this process runs mutant `number`. It also notes that this was asked.
bool is(int number);
}  // namespace mutation
