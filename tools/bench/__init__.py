"""Benches: each measures one part or one case, and prints what `build/bench.json` holds."""
