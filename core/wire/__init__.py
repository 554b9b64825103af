"""Generated messages of proto/tidewheel/internal/v1: what our own processes say to each other. Only edges import it."""
