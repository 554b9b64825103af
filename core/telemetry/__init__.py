"""What a process says about itself: logs, metrics, traces, and the HTTP port that shows them."""
