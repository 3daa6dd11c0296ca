"""Training, of client halves and the server half alike: shards as one table, batches, one step, and the loop."""
