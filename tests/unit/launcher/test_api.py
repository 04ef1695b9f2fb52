"""What `LaunchConfig` may say, without starting anything."""

import pytest

from allhands.elastic.multiprocessing import DefaultLogsSpecs
from allhands.launcher import LaunchConfig, elastic_launch


def work():
    raise AssertionError("no rank is to start")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_nodes": 4}, r"min_nodes and max_nodes are 1 and 4; want the same"),
        ({"min_nodes": 0, "max_nodes": 0}, r"are 0 and 0; want the same number twice"),
        ({"nproc_per_node": 0}, r"nproc_per_node is 0; want 1 or more"),
        ({"max_restarts": -1}, r"LaunchConfig.max_restarts is -1; want 0 or more"),
        ({"shutdown_timeout": -1}, r"shutdown_timeout is -1; want seconds, 0 or more"),
        ({"monitor_interval": 0}, r"monitor_interval is 0; want seconds, above 0"),
        ({"start_method": "clone"}, r"is 'clone'; want one of spawn, forkserver"),
        ({"rdzv_timeout": 0}, r"rdzv_timeout: timeout is 0; want seconds, above 0"),
        ({"rdzv_configs": {"timeout": -2}}, r"timeout is -2; want seconds, above 0"),
        ({"rdzv_configs": {"timeout": "x"}}, r"timeout is 'x'; want seconds, above 0"),
        ({"numa_options": "node"}, r"numa_options is 'node'; want None: this launcher"),
        ({"rdzv_backend": "none"}, r"rdzv_backend is 'none'; want one of static, c10d"),
        (
            {"min_nodes": 2, "max_nodes": 2},
            r"rdzv_backend is 'etcd' and rdzv_endpoint ''; with 2 nodes want 'static'",
        ),
        (
            {
                "min_nodes": 2,
                "max_nodes": 2,
                "rdzv_backend": "static",
                "rdzv_endpoint": "host:1",
            },
            r"has rank None; with 2 nodes want the number of this node, in \[0, 2\)",
        ),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    given = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 1, **fields}
    with pytest.raises(ValueError, match=message):
        elastic_launch(LaunchConfig(**given), work)()


def test_fields_may_be_set_later():
    config = LaunchConfig(1, 1, 1)
    config.rdzv_configs, config.rdzv_backend = {}, "unknown"
    with pytest.raises(ValueError, match="unknown"):
        elastic_launch(config, work)()
    config.rdzv_backend = "static"
    config.numa_options = 1
    with pytest.raises(ValueError, match="numa_options is 1"):
        elastic_launch(config, work)()


def test_a_configuration_is_completed_as_torch_does():
    assert LaunchConfig(1, 1, 1).rdzv_configs == {"timeout": 900}
    assert LaunchConfig(1, 1, 1, rdzv_timeout=5).rdzv_configs == {"timeout": 5}
    given = LaunchConfig(1, 1, 1, rdzv_configs={"timeout": 7}, rdzv_timeout=9)
    assert given.rdzv_configs == {"timeout": 9}
    assert LaunchConfig(1, 1, 1).logs_specs == DefaultLogsSpecs()


def test_the_environment_says_how_long_ranks_get_to_end(monkeypatch):
    assert LaunchConfig(1, 1, 1).shutdown_timeout == 30
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    assert LaunchConfig(1, 1, 1).shutdown_timeout == 7
    assert LaunchConfig(1, 1, 1, shutdown_timeout=0).shutdown_timeout == 0
    for text in "soon", "-1", "nan":
        monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", text)
        with pytest.raises(ValueError, match=f"TIMEOUT is '{text}'; want seconds"):
            LaunchConfig(1, 1, 1)


@pytest.mark.parametrize("entrypoint", [None, 5, ["train.py"]])
def test_what_cannot_be_run_is_refused(entrypoint):
    with pytest.raises(TypeError, match="want a function, or the path of a program"):
        elastic_launch(LaunchConfig(1, 1, 1), entrypoint)()
