"""The machine: cores, devices and blocks of runs (`blocks`), XLA options (`xla`), Ray clusters, and stopping on a signal.

All code that computes uses this package. Nothing here depends on policies.
"""
