"""What goes into the training process. Nothing here is imported by the program: `site/` is put in front of PYTHONPATH."""
