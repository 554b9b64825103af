"""What stands around the product: the command line, launchers, generators, checks and benches."""
