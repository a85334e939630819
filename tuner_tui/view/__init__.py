"""Pure functions from state to lines of cells. Nothing here knows a widget, so every picture can be tested as text."""
