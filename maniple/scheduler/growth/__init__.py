"""Room for growth of elastic jobs, and what a resize is worth."""
