"""`make demo`: the whole system for real on a sample crontab, a crash on purpose, and a verdict from outside."""
