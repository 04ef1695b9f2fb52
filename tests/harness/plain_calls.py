"""Which arrays a library is handed as they are; see `PolledRows`."""


def note_plain(communicator):
    """The list to which each call adds whether the library took the array as it is."""
    plain_all_reduce, taken = communicator._plain_all_reduce, []

    def noting(*given):
        request = plain_all_reduce(*given)
        taken.append(request is not NotImplemented)
        return request

    communicator._plain_all_reduce = noting
    return taken


def fail_plain(communicator, error):
    """Let the library raise `error` instead of taking an array as it is."""

    def failing(*_):
        raise error

    communicator._plain_all_reduce = failing
