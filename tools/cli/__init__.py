"""The `tidewheel` command: one module a group of commands, nothing heavy loaded before a command needs it."""
