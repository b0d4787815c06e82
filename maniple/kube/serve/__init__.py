"""`maniple serve`: the loop of cycles, and what it writes to the API server."""
