"""What a person does on a cluster: submit, list, watch, resize, delete jobs, and read their logs."""
