"""What a process says about itself: metrics, health, logs, traces."""
