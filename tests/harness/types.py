"""The types of the code with what they are, for the glossary.

Anew: cd tests && python -m harness.types
"""

import ast
import re

from harness.documents import ROOT

GLOSSARY = ROOT / "docs/glossary.md"
HEADING = "## Types of the code\n"
_CPP_TYPE = re.compile(
    r"((?:^ *//[^\n]*\n)*)^(?:template <[^\n]*>\n)?"
    r"(?:class|struct|enum class|enum) (?:alignas\(\w+\) )?([A-Z]\w+)[^;\n]*\{",
    re.MULTILINE,
)
_COMMENT = re.compile(r"^ *// ?", re.MULTILINE)
_HEAD = re.compile(r"(?://[^\n]*\n)*")


def first_sentence(text):
    words = " ".join(text.split())
    end = re.search(r"[.:;](\s|$)", words)
    return words[: end.start()] if end else words


def python_types():
    for path in sorted((ROOT / "src/allhands").rglob("*.py")):
        module = ast.parse(path.read_text())
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node) or ""
                if text.startswith("See the module"):
                    text = ast.get_docstring(module) or ""
                    text = text.removeprefix(f"{node.name}: ")
                    text = text[:1].upper() + text[1:]
                yield node.name, path, first_sentence(text)


def cpp_types():
    for path in sorted((ROOT / "csrc/allhands").rglob("*.hpp")):
        text = path.read_text()
        found = _CPP_TYPE.findall(text)
        head = _HEAD.match(text)[0] if len(found) == 1 else ""  # or of what is it?
        for comment, name in found:
            about = comment or head
            yield name, path, first_sentence(_COMMENT.sub("", about))


def section():
    lines = [HEADING, "\n| type | is | where |\n|---|---|---|\n"]
    for name, path, text in sorted([*python_types(), *cpp_types()]):
        assert text, f"{path}: {name} does not say what it is"
        place = path.relative_to(ROOT)
        lines.append(f"| `{name}` | {text.replace('|', '/')} | `{place}` |\n")
    return "".join(lines)


def main():
    words = GLOSSARY.read_text().partition(HEADING)[0].rstrip()
    GLOSSARY.write_text(f"{words}\n\n{section()}")


if __name__ == "__main__":
    main()
