"""How fast the library is here, beside what it is compared with, every table measured in one run.

Called by the command `bench`.
"""
