"""Images -> person boxes -> tracks."""
