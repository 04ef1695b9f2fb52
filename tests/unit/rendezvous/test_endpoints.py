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
        "::1:4471",
        "[::1]4471",
        "[::1",
        "node-3:4471",
        "10.0.0.3 :4471",
        "[fe80::1%../x]:4471",
        "10.0.0.3:1," * 50 + "10.0.0.3:1",
    ],
)
def test_what_no_rank_writes(text):
    assert not are_endpoints(text)
