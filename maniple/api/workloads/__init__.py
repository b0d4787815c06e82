"""Jobs, Deployments and other systems' jobs as people write them, and the pods that their controllers would make."""
