"""How the numbers that suit a machine are chosen from what was measured."""

import pytest

from allhands import _C
from allhands.bench.thresholds import THRESHOLDS, VARIANTS, choose, plan

NOW = _C.tuning_here(1)
NEVER = 1 << 40


def by_name(choices):
    return {choice.name: choice for choice in choices}


def times_of(ranks, seconds):
    """Made-up times: `seconds(cell, variant)`."""
    return {
        cell: {variant: seconds(cell, variant) for variant in variants}
        for cell, variants in plan(ranks).items()
    }


def test_every_variant_is_a_tuning():
    for changes in VARIANTS.values():
        tuning = _C.tuning_here(2, changes=changes)
        assert {name: tuning[name] for name in changes} == changes


def test_every_candidate_is_a_tuning():
    for threshold in THRESHOLDS:
        for name in threshold.names:
            for number in threshold.candidates:
                assert _C.tuning_here(2, changes={name: number})[name] == number


def test_no_cell_is_measured_in_vain():
    for ranks in (2, 4):
        for cell, variants in plan(ranks).items():
            assert cell.ranks == ranks
            assert len(variants) == len(set(variants)) >= 2
            assert set(variants) <= set(VARIANTS)


def test_where_nothing_differs_all_stays_as_it_is():
    choices = choose(times_of(2, lambda _cell, _variant: 1e-6), NOW)
    assert len(choices) >= 9
    assert all(choice.best == choice.now and choice.gain == 1.0 for choice in choices)


def test_noise_of_one_percent_changes_nothing():
    noisy = times_of(2, lambda cell, variant: 1 + hash((cell, variant)) % 10 / 1000)
    assert all(choice.best == choice.now for choice in choose(noisy, NOW))


@pytest.mark.parametrize("crossover", [16 << 10, 64 << 10, 256 << 10])
def test_the_crossover_is_found(crossover):
    """Reading costs as much as staging at a share of that size."""

    def seconds(cell, variant):
        is_whole = cell.collective in ("all_to_all", "broadcast")
        share = cell.size if is_whole else cell.size // 2
        staged = 2.0 * share
        return staged if variant.startswith("staged") else 0.9 * crossover + share

    choices = by_name(choose(times_of(2, seconds), NOW))
    for name in ("read_bytes", "read_all_to_all_bytes"):
        assert choices[name].best == crossover
        if crossover != NOW[name]:
            assert choices[name].gain > 1.02


def test_a_host_with_dear_system_calls_never_reads():
    dear = times_of(2, lambda _, variant: 3.0 if variant.startswith("read") else 1.0)
    found = by_name(choose(dear, NOW))
    assert found["read_bytes"].best == NEVER
    assert found["read_all_to_all_bytes"].best == NEVER
    assert found["read_reduce_bytes"].best == NEVER
    assert found["read_most_bytes"].best == 4 << 20
    assert found["read_most_all_to_all_bytes"].best == 4 << 20
    assert found["eager_bytes"].best == 64 << 10
    assert found["handover_bytes"].best == NEVER


def test_reading_that_pays_only_in_large_pages_begins_there():
    """The kernel pays for each page, and arrays of 4 MiB have large ones."""

    def seconds(cell, variant):
        is_small = cell.size < 4 << 20
        return 1.0 if is_small == variant.startswith("staged") else 1.5

    found = by_name(choose(times_of(2, seconds), NOW))
    assert found["handover_bytes"].best == 4 << 20
    assert found["read_rooted_bytes"].best == 2 << 20  # of each of two ranks


def test_a_message_of_just_the_eager_size_goes_at_once():
    """Up to 16 KiB the ring is faster, from 32 KiB on the offer."""

    def seconds(cell, variant):
        is_small = cell.size <= 16 << 10
        return 1.0 if is_small == variant.startswith("staged") else 2.0

    found = by_name(choose(times_of(2, seconds), NOW))
    assert found["eager_bytes"].best == 16 << 10


def test_a_broadcast_to_several_is_another_number_than_one_to_one():
    two = by_name(choose(times_of(2, lambda *_: 1.0), NOW))
    four = by_name(choose(times_of(4, lambda *_: 1.0), NOW))
    assert "read_broadcast_bytes" not in two
    assert "read_broadcast_bytes" in four


def test_the_best_chunk_wins():
    small = times_of(2, lambda _, variant: 1.0 if variant == "staged by 128K" else 1.5)
    found = by_name(choose(small, NOW))["chunk_bytes"]
    assert (found.best, found.gain) == (128 << 10, pytest.approx(1.5))


def test_numbers_of_ranks_are_weighed_together():
    """Reading gains as much on 4 ranks as it loses on 2, and more, or less."""

    def seconds_of(gain):
        def seconds(cell, variant):
            if not variant.startswith("read"):
                return 1.0
            return 1.5 if cell.ranks == 2 else 1 / gain

        return seconds

    for gain, best in ((3.0, 8 << 10), (1.2, NEVER)):
        times = {**times_of(2, seconds_of(gain)), **times_of(4, seconds_of(gain))}
        assert by_name(choose(times, NOW))["read_bytes"].best == best
