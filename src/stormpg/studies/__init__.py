"""Studies of many runs: units of work, who does them, where they are kept, protocols, statistics, comparison, equal tuning.

Built on `runs`. Called by `reproduce`, `tune`, `theory` and the command.
"""
