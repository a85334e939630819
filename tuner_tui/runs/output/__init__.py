"""Reading a training's output: lines, failures, progress, numbers. Pure functions over text."""
