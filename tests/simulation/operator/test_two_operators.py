"""Two operators that want to look after the same jobs: one does, the other waits and says so."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from builders.fake_cluster import BEGIN, FakeClient, World
from disttrain_operator.errors import Forbidden, ScopeLost, Unavailable
from disttrain_operator.kinds import Kind
from disttrain_operator.policies import leases
from disttrain_operator.reconcile.scope import Holder, Scope

SEEDS = range(20)
OURS = "disttrain.dev/operator"


@dataclass(slots=True)
class Contender:
    """An operator without its jobs."""

    scope: Scope
    client: FakeClient
    released: list[str] = field(default_factory=list)

    async def attempt(self) -> str:
        """Try; an API server that does not answer is in the way too."""
        try:
            return await self.scope.attempt()
        except Unavailable as error:
            return str(error)


class Cut(FakeClient):
    """A client that may lose its connection, as the other one does not."""

    cut = False

    def _count(self) -> None:
        super()._count()
        if self.cut:
            message = "no connection"
            raise Unavailable(message)


def contender(
    world: World,
    identity: str,
    *namespaces: str,
    manager: str = OURS,
    client: FakeClient | None = None,
) -> Contender:
    def clock() -> float:
        return (world.now - BEGIN).total_seconds()

    released: list[str] = []
    used = client or Cut(world)
    holder = Holder(identity=identity, namespaces=namespaces, manager=manager)
    scope = Scope(used, holder, released.append, clock)
    return Contender(scope, used, released)


def later(world: World, seconds: float) -> None:
    world.now += timedelta(seconds=seconds)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(World()))


def test_the_second_one_waits_until_the_first_gives_back() -> None:
    async def scenario(world: World) -> None:
        first, second = contender(world, "a/first"), contender(world, "b/second")
        assert await first.attempt() == ""
        for _ in range(20):
            assert "a/first holds Lease default/disttrain-operator" in await second.attempt()
            assert not second.scope.is_held()
            later(world, 5)
            await first.scope.renew()

        await first.scope.release()

        assert not first.scope.is_held()
        assert await second.attempt() == ""
        assert second.scope.is_held()

    run(scenario)


def test_who_died_is_followed_after_its_time_and_who_restarts_need_not_wait() -> None:
    async def scenario(world: World) -> None:
        first, second = contender(world, "a/first"), contender(world, "b/second")
        assert await first.attempt() == ""
        assert await second.attempt()
        assert await contender(world, "a/first").attempt() == "", "its container was restarted"
        assert await second.attempt()

        later(world, leases.LAST_SECONDS - 1)
        assert await second.attempt()
        later(world, 1)
        assert await second.attempt() == ""
        with pytest.raises(ScopeLost, match="b/second holds"):
            await first.scope.renew()

    run(scenario)


def test_who_renews_reads_its_lease_only_after_somebody_else_touched_it() -> None:
    async def scenario(world: World) -> None:
        each = contender(world, "a/first", "team")
        place = (Kind.Lease, "team", leases.name(OURS))
        assert await each.attempt() == ""

        async def requests() -> int:
            before = world.num_requests
            later(world, leases.RENEW_SECONDS)
            await each.scope.renew()
            assert world.find(place)["spec"]["holderIdentity"] == "a/first"
            return world.num_requests - before

        assert [await requests() for _ in range(3)] == [1, 1, 1]
        world.change(place, {"metadata": {"annotations": {"example.com/seen": "yes"}}})
        assert [await requests() for _ in range(2)] == [3, 1]
        world.delete(place)
        assert [await requests() for _ in range(2)] == [3, 1]

    run(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_among_broken_connections_never_two_hold_it(seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        both = [contender(world, "a/first"), contender(world, "b/second")]
        held = 0
        for _ in range(300):
            later(world, chance.uniform(0.5, 6))
            each = chance.choice(both)
            assert isinstance(each.client, Cut)
            each.client.cut = chance.random() < 0.5
            await each.attempt()
            holding = [one for one in both if one.scope.is_held()]
            assert len(holding) <= 1
            held += len(holding)
        assert held > 100

    run(scenario)


def test_operators_of_different_jobs_are_not_in_each_others_way() -> None:
    async def scenario(world: World) -> None:
        assert await contender(world, "a/first").attempt() == ""
        assert await contender(world, "b/second", manager="example.com/Team A").attempt() == ""
        names = {name for kind, _, name in world.objects if kind is Kind.Lease}
        assert names == {"disttrain-operator", "disttrain-operator-example-com-team-a"}

    run(scenario)


def test_who_looks_after_all_namespaces_leaves_out_those_that_have_their_own() -> None:
    async def scenario(world: World) -> None:
        everywhere, team = contender(world, "a/all"), contender(world, "b/team", "team")
        assert await everywhere.attempt() == ""
        assert not everywhere.scope.is_left_to_others("team")
        assert await team.attempt() == ""
        await everywhere.scope.renew()
        assert everywhere.scope.is_left_to_others("team")
        assert not everywhere.scope.is_left_to_others("other")
        assert everywhere.released == []

        await team.scope.release()
        later(world, 5)
        await everywhere.scope.renew()

        assert not everywhere.scope.is_left_to_others("team")
        assert everywhere.released == ["team"], "its jobs are looked at again"

    run(scenario)


@pytest.mark.parametrize(("somebody", "seconds"), [(True, 10), (False, 0)])
def test_who_takes_a_namespace_from_the_operator_of_all_waits_until_that_has_heard(
    monkeypatch: pytest.MonkeyPatch, *, somebody: bool, seconds: float
) -> None:
    slept = []

    async def scenario(world: World) -> None:
        everywhere, team = contender(world, "a/all"), contender(world, "b/team", "team")
        if somebody:
            assert await everywhere.attempt() == ""

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            later(world, seconds)
            await everywhere.scope.renew()

        monkeypatch.setattr(asyncio, "sleep", sleep)
        await team.scope.take()
        assert team.scope.is_held()
        assert everywhere.scope.is_left_to_others("team") is somebody

    run(scenario)

    assert sum(slept) == seconds


def test_two_that_want_several_namespaces_do_not_wait_for_each_other() -> None:
    async def scenario(world: World) -> None:
        first, second = contender(world, "a", "x", "y"), contender(world, "b", "y", "x")
        found = [await second.attempt(), await first.attempt()]
        assert [not said for said in found] == [True, False]

    run(scenario)


def test_who_may_not_hold_a_lease_waits_and_says_what_is_missing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Denied(FakeClient):
        denies = True

        def _count(self) -> None:
            super()._count()
            if self.denies:
                message = "leases is forbidden"
                raise Forbidden(message)

    async def scenario(world: World) -> None:
        client = Denied(world)
        each = contender(world, "a/first", client=client)

        async def sleep(seconds: float) -> None:
            later(world, seconds)
            client.denies = (world.now - BEGIN).total_seconds() < 130

        monkeypatch.setattr(asyncio, "sleep", sleep)
        await each.scope.take()
        assert each.scope.is_held()

    caplog.set_level(logging.INFO)
    run(scenario)

    said = [each.message for each in caplog.records if "the right to hold a Lease" in each.message]
    assert len(said) == 3, "once a minute"
    assert "nobody else is in the way any more" in caplog.text


def test_in_a_namespace_that_is_not_there_nobody_is_in_the_way() -> None:
    async def scenario(world: World) -> None:
        each = contender(world, "a/first", "nowhere")
        assert await each.attempt() == ""

    run(scenario)
