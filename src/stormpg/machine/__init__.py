"""The machine: cores, devices and blocks of runs (`blocks`), what XLA is told (`xla`), Ray clusters, and stopping on a signal.

Called by everything that computes. Nothing here knows what a policy is.
"""
