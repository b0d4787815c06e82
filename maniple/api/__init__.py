"""What users write: types, defaults and validation of Kubernetes' objects and our own. No logic, no I/O."""
