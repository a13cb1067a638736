"""The master secret, from which the authorities of all jobs are derived, in a Secret of its own."""

import asyncio
import base64
import binascii
import logging
import secrets
from typing import Any, Final

from disttrain.job import cluster_labels
from disttrain_operator import untrusted
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden, InvalidSettings, NotFound, Unavailable
from disttrain_operator.kinds import Kind

LOG = logging.getLogger(__name__)

KEY: Final = "master"
_BYTES = 32
_ASK_AGAIN_SECONDS = 2.0


async def take(client: Client, namespace: str, name: str) -> bytes:
    """The secret; made by the first operator that finds none. Waits for the API server.

    Raises InvalidSettings where it may not be had, or is none.
    """
    while True:
        try:
            return await _found_or_made(client, namespace, name)
        except Conflict:
            # Another operator was faster.
            continue
        except Forbidden as error:
            message = (
                f"Secret {namespace}/{name} cannot be had ({error}): the operator needs to create "
                "Secrets in its own namespace, and to get this one; see docs/security.md"
            )
            raise InvalidSettings(message) from error
        except Unavailable as error:
            LOG.warning("the master secret cannot be read yet: %s", error)
            await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _found_or_made(client: Client, namespace: str, name: str) -> bytes:
    try:
        return _content(await client.get(Kind.Secret, namespace, name))
    except NotFound:
        made = secrets.token_bytes(_BYTES)
        await client.create(Kind.Secret, _secret(namespace, name, made))
        LOG.info("made Secret %s/%s: the authorities of all jobs follow from it", namespace, name)
        return made


def _content(secret: dict[str, Any]) -> bytes:
    text = str(untrusted.mapping(secret, "data").get(KEY, ""))
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != _BYTES:
        metadata = untrusted.mapping(secret, "metadata")
        message = (
            f"Secret {metadata.get('namespace')}/{metadata.get('name')} holds no {_BYTES} bytes "
            f"under {KEY!r}: delete it, and all jobs that run"
        )
        raise InvalidSettings(message)
    return found


def _secret(namespace: str, name: str, master: bytes) -> dict[str, Any]:
    labels = cluster_labels.managed()
    return {
        **Kind.Secret.header,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
        "data": {KEY: base64.b64encode(master).decode()},
    }
