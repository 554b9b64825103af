"""The coordination room: everything that speaks to etcd. Etcd advises who should own what; the terms in SQL decide."""
