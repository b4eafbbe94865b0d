"""Causal language models: loading, generation, scoring, several heads and their product."""
