"""Figures: each is a function from standings, or rows, to a Plot, in the style of `style`."""
