"""Bytes to typed objects: documents, strict decoding, and errors that name file, object and field."""
