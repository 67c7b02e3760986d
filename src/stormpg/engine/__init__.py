"""The one loop: an iteration (`iteration`), and how it is repeated inside JAX (`compiled_loop`) and outside (`python_loop`).

Called by `runs` for whole trainings, and by `own_loop` for loops of users.
"""
