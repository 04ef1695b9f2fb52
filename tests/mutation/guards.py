"""Guard: a mutant of C++ that is in the code beside what it mutates.

All of a run are built at once, as `(::mutation::is(7) ? mutated : original)` in a copy
of the core under build/mutation. Which one runs is said when a process starts.
"""

import functools
import itertools
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cpp
from workplace import RULES

# The smallest of these around what is changed is guarded.
_EXPRESSIONS = {
    *("assignment_expression", "binary_expression", "call_expression"),
    *("comma_expression", "conditional_expression", "false", "number_literal"),
    *("parenthesized_expression", "true", "unary_expression", "update_expression"),
}
# What is in these does not run, so a guard would have no effect. Where else a constant
# has to be, such as after constexpr, a guard does not compile.
_NOT_RUN = {"array_declarator", "decltype", "noexcept", "sizeof_expression"}
_INCLUDE = f'#include "{RULES / "guard.hpp"}"\n'.encode()


@dataclass(frozen=True)
class Guard:
    """Bytes of a file, and what a mutant has in their place; none: nothing runs."""

    number: int
    start: int
    end: int
    original: bytes
    mutated: bytes

    @property
    def text(self):
        """What the guarded file has."""
        if self.mutated.strip():
            both = b"(%b) : (%b)" % (self.mutated, self.original)
        else:
            both = b"(void)0 : (void)(%b)" % self.original
        return b"(::mutation::is(%d) ? %b)" % (self.number, both)


def guard_of(mutant):
    """The Guard of a mutant; None where what it changes is no expression that runs."""
    before, after = mutant.before.encode(), mutant.after.encode()
    first = _num_same(before, after)
    num_same = _num_same(reversed(before[first:]), reversed(after[first:]))
    tree = _parser().parse(before)
    node = tree.root_node.descendant_for_byte_range(first, len(before) - num_same)
    node = _whole(node)
    if node is None:
        return None
    longer = len(after) - len(before)
    mutated = after[node.start_byte : node.end_byte + longer]
    is_statement = node.parent.type == "expression_statement"
    if not mutated.strip() and not is_statement:
        return None
    return Guard(mutant.number, node.start_byte, node.end_byte, node.text, mutated)


def guarded(text, guards):
    """(a file's text with guards, {number: its lines there})."""
    parts, lines = [_INCLUDE], {}
    at = 0
    for guard in sorted(guards, key=lambda guard: guard.start):
        parts += [text[at : guard.start], guard.text]
        at = guard.end
        last = 1 + sum(part.count(b"\n") for part in parts)
        lines[guard.number] = range(last - guard.text.count(b"\n"), last + 1)
    return b"".join([*parts, text[at:]]), lines


def overlap(guard, other):
    """Whether two guards of a file cannot both be there."""
    return guard.start < other.end and other.start < guard.end


def _num_same(one, other):
    """How many bytes they have in common at first."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _whole(node):
    """The expression that a node is of, whole as to the precedence of operators."""
    while node is not None and node.type not in _EXPRESSIONS:
        node = node.parent
    while node is not None and node.parent.type == "binary_expression":
        node = node.parent
    around = node
    while around is not None:
        if around.type in _NOT_RUN:
            return None
        around = around.parent
    return node


@functools.cache
def _parser():
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
