"""Outputs of trainings that failed, and of trainings that only look so. The texts are ours; the forms are the libraries'."""
