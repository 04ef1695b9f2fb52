"""Two hosts whose ranks differ in a setting, and what they say of it."""

from harness.ranks import Processes


def errors(setting, values):
    """The error of a barrier on each of two ranks, on hosts with these values."""
    source = f"""
        dist.destroy_process_group()
        os.environ["{setting}"] = {values!r}[rank]
        store = FileStore(f"{{folder}}/again", size)
        dist.init_process_group(store=store, rank=rank, world_size=size)
        try:
            dist.barrier()
        except dist.DistBackendError as error:
            give(str(error))
        """
    with Processes(2, source, hosts="01") as processes:
        return processes.join()
