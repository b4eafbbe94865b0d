"""Causal language models in memory: loading, batched generation, heads on one trunk and their product."""
