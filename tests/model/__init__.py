"""The world as numbers: GPU links and the choice of sets."""
