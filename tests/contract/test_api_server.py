"""The API server in memory keeps what the operator relies on of a real one.

The same checks run on a real one in `end_to_end/test_api_server.py`.
"""

import asyncio

import pytest

from builders.fake_cluster import FakeClient, World
from contract import api_contract


@pytest.mark.parametrize("check", api_contract.CHECKS, ids=lambda check: check.__name__)
def test_in_memory(check: api_contract.Check) -> None:
    async def scenario() -> None:
        await check(FakeClient(World()), "here")

    asyncio.run(scenario())
