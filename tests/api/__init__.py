"""What users write: quantities, documents, decoding, and input that is wrong in ten thousand ways."""
