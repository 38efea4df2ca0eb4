"""What a cell may have touched, and what the heap then holds: by looking, without running the user's code."""
