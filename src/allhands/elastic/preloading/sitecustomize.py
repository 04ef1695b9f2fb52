"""What a preloaded process runs before its program: it loads modules, then forks.

Python imports this in its own start, just before it runs the program of its command
line. The process that the launcher started never gets that far: it forks the ranks, and
they go on from here. So Python runs the program in a rank as it does in any process,
with nothing of ours below.

The launcher speaks to it by descriptor 0: a message with what to load; then one for
each rank, with its streams, which is answered by the rank's pid, or an errno. Ranks
wait until the launcher ends this process, and are the launcher's own children then.

Nothing is imported that is not there in any start of Python: the program might have a
module of that name.
"""

import _io
import _socket
import _thread
import atexit
import gc
import marshal
import os
import sys

TYPE_CHECKING = False  # `typing` itself would be one more module
if TYPE_CHECKING:
    from typing import Any

_MESSAGE_BYTES = 1 << 18

_preloaded: "dict[str, Any]" = {}
"""The modules that Python does not take apart when a rank ends, by name."""
_kept: "list[Any]" = []
"""The objects that live until the process ends."""


def _main() -> None:
    """Load the modules and fork the ranks. It returns only in a rank."""
    atexit.register(
        _keep_from_teardown
    )  # the first to be registered is the last to be called
    launcher = _socket.socket(fileno=os.dup(0))
    config = marshal.loads(launcher.recv(_MESSAGE_BYTES))
    _forget_this_folder(config["folder"], config["python_path"])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    problem = _load(config["modules"], config["first_path"])
    launcher.send(marshal.dumps(problem))
    if problem:
        os._exit(1)
    _note_loaded(config["folder"])
    _fork_ranks(launcher)


def _forget_this_folder(folder: str, python_path: str | None) -> None:
    """Hide this file from processes that are started from here."""
    sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    if python_path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = python_path


def _load(modules: list[str], first_path: str | None) -> str:
    """Import modules as the program would. Return why ranks cannot be forked."""
    if first_path is not None:
        sys.path.insert(0, first_path)
    for name in modules:
        try:
            __import__(name)
        except BaseException as error:
            return " ".join(f"{type(error).__name__}: {error}".split())
        num_threads = len(os.listdir("/proc/self/task"))
        if num_threads > 1:
            noun = "thread" if num_threads == 2 else "threads"
            return (
                f"{name} has started {num_threads - 1} {noun}, which a fork does not "
                f"copy; with OMP_NUM_THREADS=1 NumPy and torch start none"
            )
    if first_path is not None:
        sys.path.remove(first_path)
    if sys.gettrace() or sys.getprofile():
        return "a tracer or profiler runs, which would take all ranks for one process"
    return ""


def _note_loaded(folder: str) -> None:
    """Note the loaded modules, without those in the program's own folders."""
    package = os.path.dirname(os.path.dirname(folder))
    installed = tuple(
        os.path.join(path, "") for path in (sys.prefix, sys.base_prefix, package)
    )
    for name, module in sys.modules.items():
        try:
            # Not by `getattr`: a module may load itself, or raise whatever it likes.
            path = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            path = None
        is_own = isinstance(path, str) and not path.startswith(installed)
        if not is_own and name not in ("__main__", "builtins", "sys"):
            _preloaded[name] = module
    # A cycle, which `gc.freeze` keeps for good. Python clears the program's modules if
    # they still are there. It could not take them apart otherwise, frozen as they are.
    _kept.extend([_kept, _preloaded, *sys.modules.values()])


def _keep_from_teardown() -> None:
    """Keep Python from taking apart the modules that were loaded before the fork.

    Python would take them apart object by object, and a rank would copy nearly all of
    its memory for that. Objects of the program itself end as in any process. Files are
    written out, because these modules might hold them.
    """
    if _thread._count() > 0:  # it may import any of them now
        return
    gc.collect()
    for each in gc.get_objects():  # what is frozen is not among them
        if issubclass(type(each), _io._IOBase):
            try:
                each.closed or each.flush()
            except Exception:  # as where Python itself closes it
                continue
    for name, module in _preloaded.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _fork_ranks(launcher: _socket.socket) -> None:
    # A rank that ends would copy all these pages, only to find nothing to collect.
    gc.collect()
    gc.freeze()
    gate, held = os.pipe()
    parent = os.getpid()
    size = _socket.CMSG_SPACE(3 * 4)
    while True:
        message, received, _, _ = launcher.recvmsg(_MESSAGE_BYTES, size)
        if not message:
            os._exit(0)
        streams = memoryview(received[0][2]).cast("i").tolist()
        try:
            pid = os.fork()
        except OSError as error:
            # Ranks wait as long as this process lives; the launcher ends them first.
            pid = -error.args[0]
        if pid == 0:
            os.close(held)
            launcher.close()
            return _become(marshal.loads(message), streams, gate, parent)
        for fd in streams:
            os.close(fd)
        launcher.send(marshal.dumps(pid))


def _become(
    environment: dict[str, str], streams: list[int], gate: int, parent: int
) -> None:
    """Make this process the rank that `environment` tells of."""
    os.setsid()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    for name, value in environment.items():
        os.environ[name] = value
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        # Not by the other name: a module may have put anything there.
        stream = _opened(fd, name, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _draw_new_seeds()
    _answer_signals()
    os.read(gate, 1)
    os.close(gate)
    while os.getppid() == parent:  # its files are closed just before it is gone
        os.sched_yield()


def _draw_new_seeds() -> None:
    """Give new seeds to the generators that Python does not seed after a fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch.random" in sys.modules:
        sys.modules["torch.random"].default_generator.seed()


def _answer_signals() -> None:
    """Answer SIGUSR2 if allhands is loaded, as its import in a rank would do."""
    if "allhands.debug.reporter" in sys.modules:
        sys.modules["allhands.debug.reporter"].answer_already()


def _opened(fd: int, name: str, like: "Any") -> "Any":
    """Return a standard stream, made as Python makes it, for the new file of `fd`."""
    import io

    buffer: Any = open(fd, f"{like.mode}b", 0 if fd else -1, closefd=False)  # noqa: SIM115
    # Its own name is gone with its buffer where a module has detached that.
    (buffer if fd else buffer.raw).name = f"<{name}>"
    text: Any = io.TextIOWrapper(
        buffer,
        like.encoding,
        like.errors,
        newline="\n",
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
    text.mode = like.mode
    return text


try:
    _main()
except BaseException:
    # Not further up: Python would go on, and run the program.
    sys.excepthook(*sys.exc_info())
    os._exit(1)
# What the program would have met under this name, if there is one.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
