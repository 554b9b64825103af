"""All SQL of the product, one module a table or a verb. Nothing outside this room sees SQLAlchemy, asyncpg or SQL."""
