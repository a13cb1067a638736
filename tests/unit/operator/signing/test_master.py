"""The Secret from which the authorities of all jobs follow."""

import asyncio
import base64
from typing import Any

import pytest

from builders.fake_cluster import FakeClient, World
from disttrain_operator.errors import Conflict, Forbidden, InvalidSettings, NotFound
from disttrain_operator.kinds import Kind
from disttrain_operator.signing import master

PLACE = (Kind.Secret, "system", "own")


def take(client: FakeClient) -> bytes:
    return asyncio.run(master.take(client, "system", "own"))


def test_the_first_operator_makes_it_and_the_next_ones_read_it() -> None:
    world = World()
    made = take(FakeClient(world))
    assert len(made) == 32
    assert world.objects[PLACE]["immutable"] is True
    assert take(FakeClient(world)) == made
    other = World()
    assert take(FakeClient(other)) != made


def test_who_is_second_takes_what_the_first_has_made() -> None:
    class Slow(FakeClient):
        """Reads it before another operator makes it."""

        has_looked = False

        async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
            if not self.has_looked:
                self.has_looked = True
                await master.take(FakeClient(self._world), namespace, name)
                raise NotFound(name)
            return await super().get(kind, namespace, name)

    world = World()
    found = take(Slow(world))
    assert base64.b64decode(world.objects[PLACE]["data"]["master"]) == found
    with pytest.raises(Conflict):
        world.create(Kind.Secret, world.objects[PLACE])


@pytest.mark.parametrize("data", [None, {}, {"master": "x"}, {"master": "AAAA"}, {"master": 7}])
def test_one_that_holds_something_else_is_named(data: Any) -> None:
    world = World()
    world.create(Kind.Secret, {"metadata": {"name": "own", "namespace": "system"}, "data": data})
    with pytest.raises(InvalidSettings, match="Secret system/own holds no 32 bytes"):
        take(FakeClient(world))


def test_an_operator_that_may_not_read_it_says_what_it_needs() -> None:
    class Stranger(FakeClient):
        """Has no rights."""

        async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
            raise Forbidden(f"{kind} {namespace}/{name}")

    with pytest.raises(InvalidSettings, match="create Secrets in its own namespace"):
        take(Stranger(World()))
