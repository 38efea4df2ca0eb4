"""What tests need inside the package: named points at which a process can be made to fail.

Lowest layer, standard library only: every other part may call `failpoints.reach`.
"""
