"""The games: their rules, their baselines and what our score brings."""
