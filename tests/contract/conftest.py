"""What contract tests share."""

from collections.abc import Iterator

import pytest

from builders import object_stores


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The uri of a bucket in an S3 server, one for all tests of a module."""
    with object_stores.s3_server() as uri:
        yield uri
