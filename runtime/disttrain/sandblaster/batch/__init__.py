"""One evaluation over a batch: groups of portions, who computes them, and how they become one sum.

The unit of lease, of copies and of the commit is the group: some consecutive portions whose
gradients a replica adds up and pushes to all shards at once. A replica's attempt at a group is
staged on every shard, then one attempt for each group is committed on all of them. `groups` is the
coordinator's part, `staging` is a shard's. All of it is pure.
"""
