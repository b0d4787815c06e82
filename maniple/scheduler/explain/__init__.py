"""Why a gang waits, and what would start it."""
