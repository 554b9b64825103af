"""tools/: launchers, generators and checks."""
