"""Pure code of every room: no I/O, no servers."""
