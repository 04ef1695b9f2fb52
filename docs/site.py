"""Makes links of the public names in the site's text: a hook of mkdocs, see mkdocs.yml.

Docstrings and documents write `name` as code, which reads well in a terminal and in an
editor. Here mkdocs-autorefs gets told where that leads.
"""

import ast
import pathlib
import re

_SOURCE = pathlib.Path(__file__).parents[1] / "src" / "allhands"
# What is no place for a link comes first, so that it is skipped as a whole.
_NO_PLACE = r"<(?P<tag>a|pre|h\d)\b.*?</(?P=tag)>"
_NAME = r"<code>(?:dist\.|allhands\.)?(?P<name>[\w.]+)(?:\(\))?</code>"
_CODE = re.compile(f"{_NO_PLACE}|{_NAME}", re.DOTALL)


def _names_offered():
    """What the modules say that they offer; more than is public does no harm here."""
    for path in _SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AugAssign) and "__all__" in ast.dump(
                node
            ):
                names = (x for x in ast.walk(node.value) if isinstance(x, ast.Constant))
                yield from (name.value for name in names)


# `group` nearly always is the argument of that name.
_NAMES = set(_names_offered()) - {"group"}


def _link(found):
    name = found["name"]
    if name is None or name.partition(".")[0] not in _NAMES:
        return found[0]
    return f'<autoref identifier="allhands.{name}" optional>{found[0]}</autoref>'


def on_page_content(html, **_):
    """Called by mkdocs with the HTML of each page."""
    return _CODE.sub(_link, html)
