"""Video and images in and out."""
