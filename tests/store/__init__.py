"""core/store against a real PostgreSQL, at both isolation levels."""
