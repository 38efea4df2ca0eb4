"""Between the journal and .ipynb files: render, merge with what people wrote, write whole, read."""
