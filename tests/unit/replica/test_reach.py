"""Whether a replica can have connections to all shards of its job."""

import pytest

from disttrain.replica.errors import TooManyShards
from disttrain.replica.membership import check_reach


def test_the_most_shards_of_a_manifest_fit_where_the_system_allows_ten_thousand_files() -> None:
    check_reach(1024, 10_000)


def test_too_many_shards_are_refused_with_what_would_help() -> None:
    with pytest.raises(TooManyShards, match=r"parameterServer.shards: 1024 shards.*at most 192"):
        check_reach(1024, 1024)
    check_reach(192, 1024)
    with pytest.raises(TooManyShards):
        check_reach(193, 1024)
