"""Measured beside what people have today: `python -m benchmarks`, or `make bench`.

Every figure is a ratio to stock Jupyter (or Tithon) taken in turns in the same run, so that a busy or
slow machine changes both. Absolute times are shown and are not the claim.
"""
