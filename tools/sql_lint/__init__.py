"""Holds the SQL of core/store to what CockroachDB and PostgreSQL have in common, and to the fence.

PostgreSQL accepts much that CockroachDB refuses or understands differently, so a green test suite on PostgreSQL proves
nothing about the other: the text itself is judged here, as PostgreSQL's own grammar reads it. One rule is one small
function; its message begins with the rule's label:

1 to 12     what one text for both databases must look like (portable.py for statements, ddl.py for migrations)
14          migrations are single, idempotent steps
21          a scan of `due` names its shard and both bucket bounds (landing.py)
22          a dispatcher's write is fenced by its own term row, FOR SHARE, in the same statement (fence.py)
clock       the server's clock is recorded, never asked for a decision
functions   the list of functions that both databases have alike
kinds       a statement does only what its Kind says (kinds.py)
landing     nothing is put into `due` below the floor (landing.py)
terms       who may change shard_terms (kinds.py), and how its rows are found (fence.py)
repair      the reconciler's write, without a term, is guarded by a comparison of its own (repair.py)
registry    every SQL text of the room is a registered statement or a migration (source.py)
"""
