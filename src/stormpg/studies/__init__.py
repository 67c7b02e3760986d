"""Studies of many runs: units of work, workers, storage, protocols, statistics, comparison, equal tuning.

Built on `runs`. Used by `reproduce`, `tune`, `theory` and the command line.
"""
