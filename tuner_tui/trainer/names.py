"""The models and data that every machine has: named by a word, neither downloaded nor found by a path."""

SHAPES = ("tiny", "bert-base", "bert-large", "gpt2", "llama-1b")
STDLIB = "stdlib"
