"""What people see of jobs, queues and nodes, computed once. Pure: the CLI draws it, and so will the dashboard."""
