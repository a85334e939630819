# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

"""Outputs of trainings that failed, and of trainings that only look so. The texts are ours; the forms are the libraries'."""
