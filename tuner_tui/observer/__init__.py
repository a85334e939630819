"""What goes into the training process. The program imports nothing from here: `site/` leads PYTHONPATH."""
