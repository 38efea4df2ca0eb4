"""Sessions in a Jupyter Server: its kernels, its documents and its page."""
