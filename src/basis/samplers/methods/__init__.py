"""One sampler a file, named as its file, with its citation."""
