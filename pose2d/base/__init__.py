"""What every package stands on: errors a user can fix, atomic files, safe unpickling, threads."""
