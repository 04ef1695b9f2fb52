from dataclasses import replace

import pytest

from allhands.elastic.logs import DefaultLogsSpecs
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.worker_spec import WorkerSpec

SPEC = WorkerSpec(
    command=lambda local_rank: ["program", str(local_rank)],
    node_ranks=NodeRanks.alone(4),
    run_id="id",
    master_addr="::1",
    master_port=5,
    store_port=6,
    max_restarts=2,
    logs=DefaultLogsSpecs("/logs"),
)


def test_environment_overrides_what_was_there():
    base = {"RANK": "9", "PATH": "/bin", "ALLHANDS_SECRET": "s"}
    environment = SPEC.environment(3, 1, "mark", base)
    assert environment["RANK"] == environment["LOCAL_RANK"] == "3"
    assert environment["PATH"] == "/bin"
    assert environment["ALLHANDS_SECRET"] == "s"
    assert environment["ALLHANDS_JOB"] == "mark"
    assert environment["MASTER_ADDR"] == "::1"
    assert environment["ALLHANDS_STORE"] == "::1:6@5"
    assert environment["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert environment["TORCHELASTIC_MAX_RESTARTS"] == "2"
    assert base["RANK"] == "9"
    own = replace(SPEC, secret="mine").environment(3, 1, "mark", base)
    assert own["ALLHANDS_SECRET"] == "mine"


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("4", 1), ("4,", 1)])
def test_a_rank_without_a_gpu_of_its_own_is_refused(visible, count):
    job = replace(SPEC, virtual_local_rank=True)
    base = {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(ValueError, match=f"names {count}; .* at least {count + 1}"):
        job.environment(count, 0, "mark", base)


def test_modules_that_are_loaded_for_all_ranks_see_all_gpus_of_the_launcher():
    job = replace(SPEC, virtual_local_rank=True)
    base = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    own = job.environment(2, 0, "mark", base)
    assert (own["LOCAL_RANK"], own["CUDA_VISIBLE_DEVICES"]) == ("0", "6")
    shared = job.shared_environment(0, "mark", base)
    assert shared["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert "LOCAL_RANK" not in shared
    assert "CUDA_VISIBLE_DEVICES" not in job.shared_environment(0, "mark", {})


def test_log_directory():
    assert SPEC.log_directory(3, 1) == "/logs/id/attempt_1/3"


@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        ("/etc/x", "%2Fetc%2Fx"),
        ("..", "%2E%2E"),
        ("a/../../b", "a%2F..%2F..%2Fb"),
        ("a.b-1 %", "a.b-1%20%25"),
    ],
)
def test_no_id_of_a_run_leads_out_of_the_folder(run_id, name):
    job = replace(SPEC, run_id=run_id, dumps="/dumps/own")
    assert job.log_directory(3, 1) == f"/logs/{name}/attempt_1/3"
    assert job.dump_file(1) == f"/dumps/{name}_attempt_1.json"
