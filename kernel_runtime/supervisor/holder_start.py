"""`python -I -S holder_start.py FD PROCESS_ID PATH…`: be the holder of one managed process.

Without `site` a Python is 2 MB smaller; what it would have found is given as PATH.
"""

import sys

if __name__ == "__main__":
    sys.path += sys.argv[3:]
    from kernel_runtime.supervisor.holder import main

    main(int(sys.argv[1]))
