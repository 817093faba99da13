"""One run under supervision: facts in, commands out, and one stream for every front end."""
