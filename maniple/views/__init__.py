"""What people see of jobs, queues, nodes and plans, computed once. The CLI draws it, and so will the dashboard.

Views are values that can be written as JSON. Nothing here does I/O, reads a clock, or knows widths and colours.
"""
