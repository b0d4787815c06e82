"""Other systems' PodGroups and Queues, read as ours."""
