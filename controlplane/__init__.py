"""The control plane: the API, the election of a leader, and the leader's duties. It never fires a run."""
