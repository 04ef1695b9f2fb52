"""The documents are true: programs run, links lead somewhere, settings are listed."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from allhands import settings
from allhands.backends.call import OPERATIONS
from harness.documents import ROOT, documents, unlike
from harness.launcher import environment
from harness.ranks import LIMIT

DOCUMENTS = documents()
# Found, not imported, which would take from the time of the programs that are run.
HAS_TORCH = importlib.util.find_spec("torch") is not None
COMMANDS = [
    (name, command)
    for name, document in DOCUMENTS.items()
    for command in document.commands()
]


@pytest.mark.parametrize(
    ("name", "command"), COMMANDS, ids=[f"{n}: {c.line}" for n, c in COMMANDS]
)
def test_command_prints_what_is_shown(name, command, tmp_path):
    for file, text in DOCUMENTS[name].programs().items():
        if file in command.line and "import torch\n" in text and not HAS_TORCH:
            pytest.skip("torch is not installed")
        (tmp_path / file).write_text(text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=tmp_path,
        env=environment(PATH=path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout
    missing, unexpected = unlike(command.output, done.stdout.splitlines())
    assert (missing, unexpected) == ([], []), done.stdout


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_program_is_run_or_imported(name):
    document = DOCUMENTS[name]
    programs = document.programs()
    lines = [command.line for command in document.commands()]
    for file in programs:
        assert file.endswith(".py"), f"{name}: a program without a name: {file!r}"
        importing = f"from {file.removesuffix('.py')} import"
        is_run = any(file in line.split() for line in lines)
        assert is_run or any(importing in text for text in programs.values()), file


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_python_escapes_by_another_label(name):
    languages = DOCUMENTS[name].languages()
    assert languages <= {"python", "diff", "console", "sh", "text"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    document = DOCUMENTS[name]
    for link in document.links():
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (document.path.parent / file).resolve() if file else document.path
        assert target.exists(), f"{name}: {link}"
        if anchor:
            other = DOCUMENTS[str(target.relative_to(ROOT))]
            assert anchor in other.anchors(), f"{name}: {link}"


def test_every_document_can_be_found():
    """From the README, by links."""
    seen, todo = set(), ["README.md"]
    while todo:
        name = todo.pop()
        if name in seen or name not in DOCUMENTS:
            continue
        seen.add(name)
        folder = DOCUMENTS[name].path.parent
        links = [x.partition("#")[0] for x in DOCUMENTS[name].links() if "://" not in x]
        paths = [(folder / link).resolve() for link in links if link]
        todo += [str(p.relative_to(ROOT)) for p in paths if p.is_relative_to(ROOT)]
    assert seen == set(DOCUMENTS)


def test_design_maps_every_module_and_folder():
    text = DOCUMENTS["docs/design.md"].text
    core, package = re.findall(r"^(?:csrc|src)/allhands .*\n((?:  .*\n)+)", text, re.M)
    names = {
        part: re.findall(
            r"\w+", ",".join(re.findall(r"^  (\w+(?:, \w+)*)", lines, re.M))
        )
        for part, lines in (("csrc", core), ("src", package))
    }
    folders = [
        path.name for path in (ROOT / "csrc/allhands").iterdir() if path.is_dir()
    ]
    assert sorted(names["csrc"]) == sorted(folders)
    modules = {
        path.stem
        for path in (ROOT / "src/allhands").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert sorted(names["src"]) == sorted(modules - {"__init__"})


def test_design_is_an_overview_of_its_pages():
    overview = DOCUMENTS["docs/design.md"]
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/design/*.md")}
    _, _, listed = overview.text.partition("\n## The pages\n")
    assert {
        f"docs/{name}" for name in re.findall(r"^- \[[^]]+\]\((.+?)\)", listed, re.M)
    } == pages
    assert len(overview.text.splitlines()) <= 250


def test_the_reading_path_leads_through_the_code():
    text = DOCUMENTS["docs/design.md"].text
    frames = re.findall(r"^\| (\d+) `([\w:]+)` \| `([^`]+)` \|", text, re.M)
    assert [int(number) for number, _, _ in frames] == list(range(1, len(frames) + 1))
    assert 1 < len(frames) <= 12
    for _, frame, file in frames:
        owner, _, name = frame.rpartition("::")
        code = (ROOT / file).read_text()
        assert re.search(rf"\b{name}\(", code), f"{file}: {frame}"
        assert owner in code, f"{file}: {frame}"


def test_the_page_on_backends_lists_every_operation():
    text = DOCUMENTS["docs/howto/write-a-backend.md"].text
    _, table = text.split("| operation | `output` | `input` |\n|---|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(names) == sorted(OPERATIONS)


def test_settings_page_lists_every_setting():
    text = DOCUMENTS["docs/reference/settings.md"].text
    rows = [line for line in text.splitlines() if line.startswith("| `ALLHANDS_")]
    expected = [
        f"| `{setting.name}` | {f'`{setting.default}`' if setting.default else 'none'} "
        f"| {setting.help} |"
        for setting in settings.ALL
    ]
    assert rows == expected
