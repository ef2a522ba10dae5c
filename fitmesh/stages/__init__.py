"""The road from a film to its files. Each stage is a plain function of the files before it."""
