"""What users write: quantities, documents, decoding, validation, and ten thousand kinds of wrong input."""
