"""Benchmarks: how fast the library is on this machine, compared with alternatives. All rows of a table are measured in one run.

Called by the command `bench`.
"""
