"""Mutation testing: which changes of the code no test notices. `python -m tests.mutation --help`."""
