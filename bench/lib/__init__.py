"""What several benches use; every claim is a script beside this folder."""
