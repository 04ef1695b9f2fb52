"""Where a process listens, as text."""

import pytest

from allhands.rendezvous.endpoints import are_endpoints


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.3:4471",
        "10.0.0.3:1,10.1.0.3:65535",
        "[fe80::1%eth0.7]:4471,[::ffff:10.0.0.3]:80",
        "node-3.cluster_a.example:4471",
    ],
)
def test_what_a_rank_writes(text):
    assert are_endpoints(text)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.3",
        "10.0.0.3:",
        ":4471",
        "10.0.0.3:0",
        "10.0.0.3:65536",
        "10.0.0.3:-1",
        "10.0.0.3:4471,",
        "10.0.0.3:4471\n",
        "10.0.0.3:४४७१",
        "::1:4471",
        "[::1]4471",
        "[::1",
        "a b:4471",
        "größe:1",
        "-a:1",
        "../a:1",
        "a:1," * 256 + "a:1",
    ],
)
def test_what_no_rank_writes(text):
    assert not are_endpoints(text)
