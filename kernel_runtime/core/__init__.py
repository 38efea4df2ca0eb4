"""The functional core: pure, synchronous, takes `now`. The supervisor is its imperative shell."""
