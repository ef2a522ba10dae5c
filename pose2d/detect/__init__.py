"""Images -> person boxes."""
