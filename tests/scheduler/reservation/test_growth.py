"""What reservations and backfill cost: sums, not products, of waiting gangs, reservations and running pods."""

from __future__ import annotations

import pytest

from maniple.scheduler.actions.common import filling
from maniple.scheduler.actions.common.filling import Filling
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.departures import departures, usual_moments
from maniple.scheduler.reservation.reserve import Nowhere, reserve
from maniple.scheduler.reservation.running_pods import RunningPods
from maniple.scheduler.reservation.start_search import Room, Search
from scheduler.counted_work import work_of
from scheduler.reservation.test_reservation_book import OLD, gpu_node, gpu_pod, job_of, open_session
from scheduler.small_clusters import Object, group, queue


def gang(name: str, of: str, gpus: int) -> list[Object]:
    owner = group(name, 1, queue=of)
    owner["metadata"]["creationTimestamp"] = OLD
    return [owner, gpu_pod(f"{name}-0", gpus, of=name, created=OLD)]


def session_of(*, queues: int, waiting: int, settled: int = 0) -> Session:
    """Each queue has a full node, which is reserved for its first gang. Others wait. Other pods run elsewhere."""
    objects: list[Object] = []
    for number in range(queues):
        name = f"q{number}"
        objects += [queue(name), gpu_node(f"n{number}", 8), gpu_pod(f"busy{number}", 8, nodeName=f"n{number}")]
        objects += gang(f"big{number}", name, 8)
    for number in range(waiting):
        objects += gang(f"small{number}", "q0", 4)
    for number in range(settled):
        objects += [gpu_node(f"small{number}", 1), gpu_pod(f"settled{number}", 1, nodeName=f"small{number}")]
    session = open_session(objects, run=())
    for number in range(queues):
        first = job_of(session, f"big{number}")
        reserve(session, session.queue_of(first), first)
    assert len(session.reservations) == queues
    return session


def test_a_gang_like_one_that_fitted_in_no_reservation_costs_the_same_however_many_there_are() -> None:
    def second(queues: int) -> int:
        session = session_of(queues=queues, waiting=2)
        fill, jobs = Filling(session), [job_of(session, f"small{number}") for number in range(2)]
        assert not fill.place(session.queue_of(jobs[0]), jobs[0])
        return work_of(lambda: fill.place(session.queue_of(jobs[1]), jobs[1]))

    assert second(16) == second(8)


def test_a_gang_is_not_searched_a_place_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    session, tried = session_of(queues=4, waiting=8), []
    monkeypatch.setattr(filling, "start_gang", lambda _session, _queue, job, **_: tried.append(job.name))
    Filling(session).run()
    assert not tried
    fill = Filling(session)
    for number in range(8):
        job = job_of(session, f"small{number}")
        assert not fill.place(session.queue_of(job), job)
    assert not tried


def test_to_suspend_a_reservation_is_no_more_work_if_there_are_more_of_them() -> None:
    def suspended(queues: int) -> int:
        reserved = session_of(queues=queues, waiting=0).reserved
        reservation = next(iter(reserved.by_job.values()))

        def suspend() -> None:
            with reserved.lifted([reservation]):
                assert reserved.mask is not None
                assert reserved.mask.sum() == queues - 1

        return work_of(suspend)

    assert suspended(16) == suspended(8)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_search_does_no_work_for_each_running_pod(is_elsewhere: bool) -> None:
    def search(settled: int) -> int:
        session = session_of(queues=4, waiting=0, settled=settled)
        running, job = RunningPods(session), job_of(session, "big0")
        usual = usual_moments(session, running)

        def again() -> None:
            room = Room.elsewhere(session, job) if is_elsewhere else Room.on(session, {0: 1})
            assert Search(session, job, departures(session, job, running, usual)).reservation(room) is not None

        again()  # what is learnt once is learnt
        return work_of(again)

    assert search(40) == search(20)


def test_late_gangs_that_are_alike_look_at_all_nodes_once_for_a_sooner_start(monkeypatch: pytest.MonkeyPatch) -> None:
    session, looks, fits_anywhere = session_of(queues=8, waiting=0), [], Search.fits_anywhere

    def look(search: Search, before: float) -> bool:
        looks.append(search.job.name)
        return fits_anywhere(search, before)

    monkeypatch.setattr(Search, "fits_anywhere", look)
    running, nowhere = RunningPods(session), Nowhere(list(session.reservations.values()))
    usual = usual_moments(session, running)
    for reservation in session.reservations.values():
        search = Search(session, reservation.job, departures(session, reservation.job, running, usual))
        assert nowhere.holds_for(search)
        assert search.sooner(Room.elsewhere(session, reservation.job), reservation.expected) is None
    assert len(looks) == 1
