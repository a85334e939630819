"""Everything that the five field notes ask for, item by item."""
