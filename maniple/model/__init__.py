"""The world as numbers: resources, node columns, shapes, jobs and queues, gathered in an immutable Snapshot."""
