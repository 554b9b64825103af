"""Whole processes, started and killed as an operator or a fault would."""
