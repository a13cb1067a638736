"""A real API server keeps what the operator, and the API server in memory, promise of it."""

import asyncio
import random

import pytest

from cluster import Kubectl
from contract import api_contract
from disttrain_operator.cluster import credentials
from disttrain_operator.cluster.client import Client


@pytest.mark.parametrize("check", api_contract.CHECKS, ids=lambda check: check.__name__)
def test_on_a_real_one(check: api_contract.Check, namespace: Kubectl) -> None:
    async def scenario() -> None:
        found = credentials.of_kubeconfig(namespace.kubeconfig)
        async with Client(found, random.Random(0)) as client:
            await check(client, namespace.namespace)

    asyncio.run(scenario())
