"""Objects to Snapshot: tables that are updated object by object."""
