"""The public contract as Python modules, generated from proto/tidewheel/v1. Names here are API; never edit by hand."""
