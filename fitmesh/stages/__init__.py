"""The road from a video to its files. Each stage is a plain function of the files before it."""
