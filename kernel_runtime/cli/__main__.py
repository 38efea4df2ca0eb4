"""`python -m kernel_runtime.cli`."""

from kernel_runtime.cli import main

main()
