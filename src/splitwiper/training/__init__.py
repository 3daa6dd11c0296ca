"""Train a server half on shards: the cache of rows, batches, one step, and the loop over epochs."""
