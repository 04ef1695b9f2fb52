"""What the text of an error says of who gave up."""

import pytest

from allhands.debug.explanation import is_of_a_collective, teller_of
from allhands.errors import CollectiveTimeoutError

CALL = "barrier() #2 on group 'a'"
WAITED = "timed out: waited 2 s (limit 2 s); missing [3]"


@pytest.mark.parametrize(
    ("text", "teller"),
    [
        (f"{CALL}: rank 1 (this process): {WAITED}", 1),
        (f"{CALL} (ranks 1, 3 of the world): rank 0 (this process): {WAITED}", 0),
        (f"{CALL}: rank 2 reports: {WAITED}", 2),
        (f"{CALL}: rank 0 (this process): group 'a': rank 2 reports: {WAITED}", 2),
        (f"recv() on group 'a': rank 1 (this process) {WAITED}", 1),
    ],
)
def test_the_teller_is_who_gave_up_first(text, teller):
    error = CollectiveTimeoutError(text)
    assert teller_of(error) == ("a", teller)
    assert is_of_a_collective(error) == text.startswith("barrier")


def test_a_text_without_one_has_none():
    assert teller_of(CollectiveTimeoutError("too late")) == ("", -1)
