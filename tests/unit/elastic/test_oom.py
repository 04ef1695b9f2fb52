import pytest

from allhands.elastic.oom import oom_kills


def write(root, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_here_it_is_a_count():
    assert oom_kills() >= 0


@pytest.mark.parametrize(
    ("cgroup", "counter"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
        ("1:name=systemd:/\n0::/\n", "sys/fs/cgroup/memory.events"),
        ("4:cpu:/\n0::/x\n", "sys/fs/cgroup/unified/x/memory.events"),
        ("4:cpu,memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.oom_control"),
        ("4:memory:/gone\n", "sys/fs/cgroup/memory/memory.oom_control"),
        ("", "proc/vmstat"),
    ],
)
def test_reads_the_most_precise_counter_there_is(tmp_path, cgroup, counter):
    files = {
        "proc__self__cgroup": cgroup,
        "proc__vmstat": "nr_free_pages 5\noom_kill 99\n",
        counter.replace("/", "__"): "low 0\noom 7\noom_kill 3\noom_group_kill 0\n",
    }
    assert oom_kills(write(tmp_path, **files)) == 3


def test_counts_nothing_where_nothing_is_counted(tmp_path):
    assert oom_kills(str(tmp_path)) == 0
