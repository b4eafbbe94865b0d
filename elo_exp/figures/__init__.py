"""What is seen: every figure of the tournament, on one canvas."""
