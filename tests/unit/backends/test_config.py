"""BackendConfig: which backend serves which device."""

import pytest

from allhands.backends.config import BackendConfig


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("undefined", "cpu:native,cuda:native"),
        ("native", "cpu:native,cuda:native"),
        ("GLOO", "cpu:gloo,cuda:gloo"),
        ("cpu:native,cuda:nccl", "cpu:native,cuda:nccl"),
        ("cpu:gloo", "cpu:gloo"),
    ],
)
def test_a_config_says_what_serves_each_device(text, config):
    assert str(BackendConfig(text)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:native,cuda", "Invalid device:backend pairing: cuda"),
        ("native,gloo", "Invalid device:backend pairing: native. .* 'cpu:native,"),
        ("cpu:", "Invalid device:backend pairing: cpu:"),
        ("cpu:native,cpu:gloo", "Duplicate device type cpu"),
    ],
)
def test_malformed_pairs_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        BackendConfig(text)


@pytest.mark.parametrize(
    ("text", "name"), [("nope", "nope"), ("cpu:nope", "nope"), ("", "''")]
)
def test_unknown_backends_are_refused(text, name):
    with pytest.raises(AssertionError, match=rf"Unknown backend type {name}\. There"):
        BackendConfig(text)
