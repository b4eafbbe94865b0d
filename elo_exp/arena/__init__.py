"""Human arena battles: reading them, placing a model among them, and what is written and drawn of it."""
