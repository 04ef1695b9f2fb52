"""What a rank says on stderr."""

from allhands.rendezvous.log import LogLevel, say


def test_a_level_that_cannot_be_read_counts_as_warning(monkeypatch, capsys):
    monkeypatch.setenv("ALLHANDS_LOG", "loud")
    say(LogLevel.INFO, "groups", 1, "hidden")
    say(LogLevel.WARNING, "groups", 1, "shown")
    assert capsys.readouterr().err == "allhands: [rank1] groups: shown\n"
