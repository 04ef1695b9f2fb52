"""Ranks that take work when they have time: a shared counter and gathered objects.

    allhands run --nproc-per-node 2 examples/work_queue.py

Jobs of unlike length, divided beforehand, leave ranks idle. Here the next free rank
takes the next job: the number of it is a counter in a store, which all ranks share.
"""

import argparse

import allhands as dist


def count_primes(limit):
    """The job: how many primes there are below `limit`."""
    is_prime = bytearray([0, 0]) + bytearray([1]) * (limit - 2)
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            multiples = range(number * number, limit, number)
            is_prime[number * number :: number] = bytes(len(multiples))
    return sum(is_prime)


def take(store, jobs):
    """Jobs until none is left; no two ranks get the same one."""
    while (number := store.add("taken", 1) - 1) < len(jobs):
        yield jobs[number]


def main(num_jobs):
    # What init_process_group() does, in two steps, because we need the store as well.
    store, rank, size = next(dist.rendezvous("env://"))
    dist.init_process_group(store=store, rank=rank, world_size=size)

    # Rank 0 decides what is to do, the longest job first. Any object that pickles will
    # do; the others bring a list of the same length.
    plan = [[10 * 4**n for n in reversed(range(num_jobs))]] if rank == 0 else [None]
    dist.broadcast_object_list(plan, src=0)
    limits = plan[0]

    shared = dist.PrefixStore("work_queue", store)  # for keys of our own
    found = {limit: count_primes(limit) for limit in take(shared, limits)}

    everyones = [None] * size if rank == 0 else None
    dist.gather_object(found, everyones, dst=0)
    if rank == 0:
        for limit in limits:
            (primes,) = (counts[limit] for counts in everyones if limit in counts)
            print(f"{primes:7,} primes below {limit:,}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=8)
    main(parser.parse_args().jobs)
