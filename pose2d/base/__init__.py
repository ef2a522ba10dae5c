"""What every package stands on: errors a user can mend, atomic files, safe unpickling, threads."""
