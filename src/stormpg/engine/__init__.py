"""The one loop: an iteration (`iteration`), and how it is repeated inside JAX (`compiled_loop`) and outside (`python_loop`).

Called by `runs` for whole trainings, and by `loop` for a loop of one's own.
"""
