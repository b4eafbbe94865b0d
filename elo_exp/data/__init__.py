"""What a run is about: prompts, rubrics, pairs, battles."""
