"""README.md of this folder names every test of it, and none that is not there."""

import pathlib
import re

FOLDER = pathlib.Path(__file__).parent


def test_the_checklist_is_complete():
    defined = {
        name
        for path in FOLDER.glob("test_*.py")
        if path != pathlib.Path(__file__)
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    assert named == defined
    for path in re.findall(r"`([\w./]*test_\w+\.py)", text):
        assert (FOLDER / path).exists(), path
