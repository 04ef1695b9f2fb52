"""The page that says what runs says what really runs."""

from harness.support import PAGE, page


def test_support_page_is_true():
    text = PAGE.read_text()
    assert text == page(), "write it anew: cd tests && python -m harness.support"
