"""Makes links of the public names in the site's text: a hook of mkdocs, see mkdocs.yml.

Docstrings and documents write `name` as code, which reads well in a terminal and in an
editor. Here mkdocs-autorefs gets told where that leads.
"""

import ast
import pathlib
import re

_SOURCE = pathlib.Path(__file__).parents[1] / "src" / "allhands" / "__init__.py"
# What is no place for a link comes first, so that it is skipped as a whole.
_NO_PLACE = r"<(?P<tag>a|pre|h\d)\b.*?</(?P=tag)>"
_NAME = r"<code>(?:dist\.|allhands\.)?(?P<name>[\w.]+)(?:\(\))?</code>"
_CODE = re.compile(f"{_NO_PLACE}|{_NAME}", re.DOTALL)


def _public_names():
    for node in ast.parse(_SOURCE.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return set(ast.literal_eval(node.value))
    raise LookupError(f"{_SOURCE} has no __all__")


# `group` nearly always is the argument of that name.
_NAMES = _public_names() - {"group"}


def _link(found):
    name = found["name"]
    if name is None or name.partition(".")[0] not in _NAMES:
        return found[0]
    return f'<autoref identifier="allhands.{name}" optional>{found[0]}</autoref>'


def on_page_content(html, **_):
    """Called by mkdocs with the HTML of each page."""
    return _CODE.sub(_link, html)
