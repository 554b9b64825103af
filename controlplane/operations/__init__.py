"""Work over many jobs or occurrences that goes on after the call that asked for it."""
