"""Gives every operation of the reference a list of its parameters: see mkdocs.yml.

The docstrings of `allhands.ops` say in prose what an operation does with its arrays.
A parameter means nearly the same in all operations, so its text stands once, in
parameters.toml: by name, or by operation and name where it differs. This extension of
griffe, which reads the docstrings, adds the list to each of them.
"""

import pathlib
import re

import griffe

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

_HERE = pathlib.Path(__file__).parent
_TEXTS = tomllib.loads((_HERE / "parameters.toml").read_text())
_INTERNAL = {"object_exchange", "serialization"}
_SECTION = re.compile(r"^(?:Args|Returns|Raises|Example):$", re.MULTILINE)


def text_of(operation, parameter):
    """What the list says of a parameter.

    Raises:
        KeyError: parameters.toml does not have it.
    """
    own = _TEXTS.get(operation, {})
    return own[parameter] if parameter in own else _TEXTS["every"][parameter]


class ParameterLists(griffe.Extension):
    """Adds the section `Args` to docstrings of operations that have none."""

    def on_function_instance(self, *, func, **_):
        """Called by griffe with each function that it has read."""
        package, _, module = func.parent.path.rpartition(".")
        if package != "allhands.ops" or module in _INTERNAL:
            return
        if func.name not in func.parent.exports:
            return
        docstring = func.docstring
        if docstring is None or not len(func.parameters) or "Args:" in docstring.value:
            return
        rows = [f"    {p.name}: {text_of(func.name, p.name)}" for p in func.parameters]
        section = "\n".join(["Args:", *rows, "", ""])
        first = _SECTION.search(docstring.value)
        place = first.start() if first else len(docstring.value)
        before, after = docstring.value[:place], docstring.value[place:]
        docstring.value = f"{before.rstrip()}\n\n{section}{after}"
