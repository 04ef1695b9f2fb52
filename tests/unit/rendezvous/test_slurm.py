"""What srun says of a task; the variables were recorded on Slurm 22.05."""

import pytest

from allhands.rendezvous.slurm import expand_counts, expand_nodes, read_task

# The fifth of `srun -N 3 -n 6` on nodes of four CPUs.
TASK = {
    "SLURM_JOB_ID": "4",
    "SLURM_JOB_NODELIST": "host[0-2]",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "6",
    "SLURM_PROCID": "4",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "host[0-2]",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "4,1(x2)",
    "SLURM_TASKS_PER_NODE": "4,1(x2)",
}
BATCH = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "3", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("host[0-2]", ["host0", "host1", "host2"]),
        ("login", ["login"]),
        ("a,b-1.x", ["a", "b-1.x"]),
        ("gpu[08-10,12],n1", ["gpu08", "gpu09", "gpu10", "gpu12", "n1"]),
        ("r[1-2]n[3,5]", ["r1n3", "r1n5", "r2n3", "r2n5"]),
        ("n[9-11]-ib", ["n9-ib", "n10-ib", "n11-ib"]),
    ],
)
def test_the_short_form_of_names(text, names):
    assert expand_nodes(text) == names


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "a[1-", "a]1[", "a[2-1]", "a[x]", "a[0-99999999]", "a b"]
)
def test_what_is_no_list_of_names(text):
    with pytest.raises(ValueError, match="list of nodes"):
        expand_nodes(text)


def test_the_short_form_of_counts():
    assert expand_counts("4,1(x2)") == [4, 1, 1]
    assert expand_counts("7") == [7]


@pytest.mark.parametrize("text", ["", "4,", "x2", "4(x)", "4(x99999999)"])
def test_what_is_no_list_of_counts(text):
    with pytest.raises(ValueError, match="tasks per node"):
        expand_counts(text)


def test_a_task_on_nodes_of_unequal_counts():
    task = read_task(TASK)
    assert (task.rank, task.size) == (4, 6)
    assert (task.local_rank, task.local_size) == (0, 1)
    assert task.first_node == "host0"
    first = read_task({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"})
    assert (first.local_size, first.port) == (4, task.port)
    assert 12_000 <= task.port < 28_384


def test_starts_are_told_apart():
    other = {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "5"}, {"SLURM_RESTART_COUNT": "1"}
    tasks = [read_task({**TASK, **change}) for change in ({}, *other)]
    assert len({task.step for task in tasks}) == 4
    assert len({task.port for task in tasks}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_STEP_ID": ""},
        {"SLURM_STEP_ID": str(0xFFFFFFFB)},
        {"SLURM_PROCID": ""},
        {"SLURM_JOB_ID": "x"},
    ],
)
def test_what_srun_has_not_started_is_no_task(change):
    assert read_task(BATCH) is None
    assert read_task({**TASK, **change}) is None
