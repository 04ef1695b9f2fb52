"""Source that makes the kernel refuse system calls to the process that runs it."""

__all__ = ["refuse"]

# Numbers of x86-64 and of ARM64.
NUMBERS = {"process_vm_readv": (310, 270), "process_vm_writev": (311, 271)}

# seccomp(2): a filter that the process cannot take back.
SOURCE = """
    import ctypes, struct
    number = dict(zip(("x86_64", "aarch64"), {numbers}))[os.uname().machine]
    program = b"".join(struct.pack("HBBI", *line) for line in [
        (0x20, 0, 0, 0),                # load the number of the system call
        (0x15, 0, 1, number),           # if it is this one
        (0x06, 0, 0, 0x00050000 | 1),   # refuse with EPERM
        (0x06, 0, 0, 0x7FFF0000),       # else allow
    ])
    text = ctypes.create_string_buffer(program)
    filter = struct.pack("HxxxxxxP", 4, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_char_p(filter), 0, 0) == 0  # PR_SET_SECCOMP
"""


def refuse(call: str, rank: int) -> str:
    """Source by which rank `rank` loses `call`, for `harness.ranks.Processes`."""
    lines = SOURCE.format(numbers=NUMBERS[call]).replace("\n", "\n    ")
    return f"    if rank == {rank}:\n{lines}\n"
