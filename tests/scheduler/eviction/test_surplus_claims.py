"""How many pods a job takes: the largest number that works, with few tries."""

from __future__ import annotations

import pytest

from maniple.scheduler.eviction.surplus_claims import take_most


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_as_many_pods_are_taken_as_there_is_room_for_in_whole_steps_with_few_tries(step: int) -> None:
    for left in range(40):
        for room in range(left + 3):
            taken: list[int] = []
            tries = 0

            def takes(count: int, room: int = room, taken: list[int] = taken) -> bool:
                nonlocal tries
                tries += 1
                if sum(taken) + count > room:
                    return False
                taken.append(count)
                return True

            take_most(left, step, takes)
            # What is left over is a number of whole steps, so the first claim has those beyond whole steps.
            best = max((count for count in range(left, 0, -step) if count <= room), default=0)
            assert sum(taken) == best, (left, room, taken)
            assert tries <= left.bit_length() + 1, (left, room, tries)
