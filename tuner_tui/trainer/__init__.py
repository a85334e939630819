"""The built-in training job: text classification and causal language modelling by the Hugging Face Trainer.

It is an ordinary training script: `PYTHON …/tuner_tui/trainer CONFIG.yaml`, run by the interpreter that trains, which
need not have tuner-tui installed. It prints to stdout and stderr, writes only below its `output_dir` and the cache
folder, and is observed like any other script. Nothing else in tuner-tui imports it.
"""
