"""How far to go along a direction. Pure: a search is a value that each evaluation replaces."""
