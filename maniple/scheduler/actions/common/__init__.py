"""What several actions share: the order of jobs, and the loop of those that evict."""
