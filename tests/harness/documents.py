"""Documents as tests see them: programs, commands with their output, links."""

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AFTER = re.compile(r"^(?!-)[ +]?(.*\n)", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_REFERENCE = re.compile(r"^::: (\S+)$((?:\n    .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command of a ```console block and the lines it is said to print."""

    line: str
    output: list[str]


@dataclass(frozen=True)
class Document:
    path: pathlib.Path
    text: str

    def blocks(self, language):
        found = _BLOCK.finditer(self.text)
        return [block[2] for block in found if block[1] == language]

    def languages(self):
        return {block[1] for block in _BLOCK.finditer(self.text)}

    def programs(self):
        """Text of each program by the file name in its first line.

        A program is a ```python block, or what a ```diff block makes of another one.
        """
        changed = ["".join(_AFTER.findall(block)) for block in self.blocks("diff")]
        return {
            block.splitlines()[0].removeprefix("# "): block
            for block in self.blocks("python") + changed
        }

    def commands(self):
        found = []
        for block in self.blocks("console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *output = part.splitlines()
                found.append(Command(line, output))
        return found

    def links(self):
        prose = _BLOCK.sub("", self.text)
        return _LINK.findall(prose)

    def references(self):
        """What mkdocstrings puts here: pairs of a name and its options, as text."""
        return _REFERENCE.findall(self.text)

    def anchors(self):
        """What a link to a heading of this document is called, as GitHub makes it."""
        prose = _BLOCK.sub("", self.text)
        return {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in _HEADING.findall(prose)
        }


def read(path):
    return Document(path, path.read_text())


def documents():
    """Every document of the repository, by its path."""
    names = ["README.md", "CHANGELOG.md", "examples/README.md"]
    paths = [*(ROOT / name for name in names), *ROOT.glob("docs/**/*.md")]
    return {str(path.relative_to(ROOT)): read(path) for path in sorted(paths)}


def unlike(expected, actual):
    """Lines of `expected` that are missing and of `actual` that are too many.

    Ranks write when they please, so the order does not count; `...` within a line is
    any text.
    """
    rest = list(actual)
    missing = []
    for line in expected:
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        found = next((other for other in rest if pattern.fullmatch(other)), None)
        if found is None:
            missing.append(line)
        else:
            rest.remove(found)
    return missing, rest
