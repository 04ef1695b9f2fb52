"""Groups in processes that fork, are spawned, have threads, or run for long."""

import subprocess
import sys
from textwrap import dedent

import pytest

from harness.launcher import program
from harness.ranks import LIMIT
from harness.torch_jobs import TorchJob

pytest.importorskip("torch")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_torch_starts(tmp_path, method):
    text = f"""
        import sys
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank, folder):
            store = dist.FileStore(folder + "/store", 2)
            dist.init_process_group("allhands", store=store, rank=rank, world_size=2)
            x = torch.full((2,), rank + 1.0)
            dist.all_reduce(x)
            print(x.tolist(), flush=True)
            if rank == 1:
                raise ValueError("stop")
            dist.destroy_process_group()

        if __name__ == "__main__":
            try:
                mp.start_processes(
                    work, (sys.argv[1],), nprocs=2, start_method="{method}")
            except mp.ProcessRaisedException as error:
                print("raised", error.error_index, flush=True)
    """
    path = program(tmp_path, text)
    done = subprocess.run(
        [sys.executable, path, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[3.0, 3.0]") == 2
    assert "raised 1" in done.stdout


def test_a_fork_leaves_the_group_to_its_parent(tmp_path):
    source = """
    init("allhands")
    x = torch.ones(2)
    dist.all_reduce(x)
    given = []
    if rank == 0:
        pid = os.fork()
        if pid == 0:
            try:
                dist.all_reduce(torch.ones(2))
            except RuntimeError as error:
                give(str(error))
            sys.exit(3)  # by way of what runs at exit
        given.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with open(f"{folder}/0.json") as file:
            given.append(json.load(file))
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=2,
        sampler=torch.utils.data.DistributedSampler(data, shuffle=False))
    for (batch,) in loader:
        dist.all_reduce(batch)
        given.append(batch.tolist())
    give(given)
    """
    with TorchJob(tmp_path, 2, source) as job:
        [[code, text, *batches], others] = job.join()
    assert code == 3
    assert "fork" in text
    assert batches == others == [[1, 5], [9, 13]]


def test_a_single_wait_may_have_a_limit_and_rpc_runs_beside(tmp_path):
    source = """
    from torch.distributed import rpc
    init("allhands")
    dist.barrier()
    given = []
    def note(call):
        try:
            call()
        except RuntimeError as error:
            given.append(str(error))

    if rank == 0:
        x = torch.ones(2)
        work = dist.all_reduce(x, async_op=True)
        note(lambda: work.wait(timedelta(seconds=0.1)))
        open(f"{folder}/go", "w").close()
        work.wait()
        given.append(x.tolist())
    else:
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.01)
        dist.all_reduce(torch.ones(2))

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/rpc")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    y = rpc.rpc_sync(f"worker{1 - rank}", torch.add, (torch.ones(2), rank))
    dist.all_reduce(y)
    given.append(y.tolist())
    rpc.shutdown()

    dist.barrier()
    if rank == 0:
        note(lambda: dist.new_group(timeout=timedelta(seconds=0.2)))
    give(given)
    """
    with TorchJob(tmp_path, 2, source) as job:
        [[limited, total, answers, late], others] = job.join()
    assert "timed out" in limited
    assert total == [2, 2]
    assert [answers] == others == [[3, 3]]
    assert "did not come: [1]" in late


def test_long_runs_keep_nothing(tmp_path):
    source = """
    import gc, threading
    from torch import nn

    def kept():
        gc.collect()
        with open("/proc/self/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        return [len(os.listdir("/proc/self/fd")), int(fields["Threads"]),
                int(fields["VmRSS"].split()[0])]

    init("allhands")
    module = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(module.parameters(), 0.001)
    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            module(torch.ones(4, 64)).sum().backward()
            optimizer.step()
        return kept()
    train(100)
    given = [train(100), train(1000)]

    groups = [dist.new_group() for _ in range(2)]
    sums = {}
    def reduce(group):
        x = torch.ones(3)
        for _ in range(200):
            dist.all_reduce(x, group=group)
            x /= size
        sums[group.group_name] = x.tolist()
    threads = [threading.Thread(target=reduce, args=[group]) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given.append(list(sums.values()))

    del module, optimizer, groups, threads
    dist.destroy_process_group()
    def again(first, count):
        for number in range(first, first + count):
            init("allhands", number)
            x = torch.ones(100_000)
            dist.all_reduce(x, async_op=True).wait()
            dist.destroy_process_group()
            del x
        return kept()
    again(1, 10)
    given += [again(11, 10), again(21, 40)]
    give(given)
    """
    with TorchJob(tmp_path, 2, source) as job:
        for steps, many_steps, sums, worlds, many_worlds in job.join():
            assert steps[:2] == many_steps[:2]  # descriptors and threads
            assert many_steps[2] - steps[2] < 4096  # KiB
            assert sums == [[1, 1, 1]] * 2
            assert worlds[:2] == many_worlds[:2]
            assert many_worlds[2] - worlds[2] < 8192


_AT_A_PORT = """
def wait_for(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.001)
    return open(f"{folder}/{name}").read()

def note(name, text=""):
    with open(f"{folder}/{name}.part", "w") as file:
        file.write(text)
    os.rename(f"{folder}/{name}.part", f"{folder}/{name}")

if rank == 0:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    note("port", str(store.port))
else:
    store = dist.TCPStore("127.0.0.1", int(wait_for("port")))
dist.init_process_group("allhands", store=store, rank=rank, world_size=size)
del store
"""


def test_a_group_is_made_although_the_stores_host_is_leaving(tmp_path):
    source = """
    if rank == 0:
        part = dist.new_group([1, 2])
        note("leaving")
        dist.destroy_process_group()
        give(None)
    else:
        wait_for("leaving")
        part, x = dist.new_group([1, 2]), torch.ones(2)
        dist.all_reduce(x, group=part)
        dist.destroy_process_group()
        give(x.tolist())
    """
    with TorchJob(tmp_path, 3, _AT_A_PORT + dedent(source)) as job:
        assert job.join() == [None, [2, 2], [2, 2]]


def test_the_stores_host_may_leave_long_before_the_others(tmp_path):
    source = """
    dist.barrier()
    if rank == 0:
        start = time.monotonic()
        dist.destroy_process_group()
        took = time.monotonic() - start
        note("left")
        give(took)
    else:
        wait_for("left")
        dist.destroy_process_group()
        give(None)
    """
    with TorchJob(tmp_path, 2, _AT_A_PORT + dedent(source)) as job:
        [took, _] = job.join()
    assert took >= 1.9  # it has waited
