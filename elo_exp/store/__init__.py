"""What was paid for, and that it is never paid twice."""
