"""A shard owner: finds what is due, fires it, hands it to workers, records how it ended."""
