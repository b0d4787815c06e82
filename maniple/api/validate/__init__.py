"""What is wrong with an object beyond its types: our own kinds and Kubernetes'."""
