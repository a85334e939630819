"""Outputs of failed trainings and of trainings that only look failed. The texts are synthetic, their forms are real."""
