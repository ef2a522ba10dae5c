"""Who is who: boxes become tracks frame by frame, and identities once the whole video was seen."""
