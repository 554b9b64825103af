"""core/coord against a real etcd, with real faults."""
