"""Human arena battles: reading them, placing models among them, and reporting the placement."""
