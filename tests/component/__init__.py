"""One component at a time, in this process, with a real database and a real etcd."""
