"""The Cache: Snapshot in, Plan out. `memory` keeps a cluster in this process; kube/ and local/ come later."""
