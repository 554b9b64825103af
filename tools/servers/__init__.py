"""Launchers for the servers that Tidewheel stands on: for `tidewheel dev`, the demo, the benches and the tests.

They own the processes they start and nothing else: loopback only, free ports, one directory each, stopped by pid.
Production servers are started by their operators, never from here.
"""
