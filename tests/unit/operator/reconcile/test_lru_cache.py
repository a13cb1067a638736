from disttrain_operator.reconcile.desired import LruCache


def test_what_is_remembered_is_not_made_again() -> None:
    kept: LruCache[str, object] = LruCache(10)
    assert kept.get("a", 3, object) is kept.get("a", 3, object)


def test_what_was_asked_for_last_stays_as_far_as_sizes_allow() -> None:
    kept: LruCache[str, object] = LruCache(10)
    first = {name: kept.get(name, 4, object) for name in ("a", "b", "a", "c")}
    assert len(kept) == 2
    assert kept.get("a", 4, object) is first["a"]
    assert kept.get("b", 4, object) is not first["b"]


def test_what_is_larger_than_everything_takes_no_place_of_others() -> None:
    kept: LruCache[str, object] = LruCache(10)
    small = kept.get("small", 4, object)
    kept.get("large", 11, object)
    assert kept.get("small", 4, object) is small
