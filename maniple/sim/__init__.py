"""Games on real or made-up clusters: what a way of placing pods is worth in numbers."""
