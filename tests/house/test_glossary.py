"""The glossary has every type of the code, with what the code says that it is."""

from harness.types import GLOSSARY, HEADING, section


def test_glossary_lists_the_types_there_are():
    _, heading, rest = GLOSSARY.read_text().partition(HEADING)
    assert heading + rest == section(), "write it anew: python -m harness.types"
