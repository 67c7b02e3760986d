"""The machine: cores, devices and blocks of runs (`blocks`), XLA options and how many programs are kept (`xla`), Ray
clusters, and stopping on a signal.

All code that computes uses this package. Nothing here depends on policies.
"""
