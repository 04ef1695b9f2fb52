"""The `allhands` command itself."""

import re

import pytest

import allhands
from allhands.__main__ import main


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert re.search(r"^  run +start a program", capsys.readouterr().out, re.M)


def test_without_a_command_it_helps(capsys):
    assert main([]) == 2
    assert "usage: allhands" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"allhands {allhands.__version__}\n"


def test_an_unknown_command_is_named_with_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["frob"])
    assert re.search("'frob' .*run", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["rnu", "program.py"], "run"),
        (["--versoin"], "--version"),
        (["run", "--nprocs", "2", "program.py"], "--nproc"),
        (["run", "--master_adr=host0", "program.py"], "--master_addr"),
        (["bench", "--opp", "all_reduce"], "--ops"),
    ],
)
def test_a_misspelt_word_brings_the_closest_known_one(given, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


def test_a_word_like_no_other_brings_no_guess(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["top", "--zzzz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzzz\n")


def test_options_go_to_the_command(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--nproc-per-node", "none", "program.py"])
    assert "--nproc-per-node is 'none'" in capsys.readouterr().err
