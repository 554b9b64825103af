"""Tests, one package a room; `make test` runs all but those marked `long`."""
