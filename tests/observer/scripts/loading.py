"""Loads a tiny model and data from a folder, then trains one step in a loop. Arguments: the folder."""

import sys

import torch
from datasets import Dataset, load_dataset
from transformers import BertConfig, BertModel

Dataset.from_list([{"x": 1.0}] * 4).to_json(f"{sys.argv[1]}/rows.json")
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BertModel(BertConfig(vocab_size=64, max_position_embeddings=16, **shape)).save_pretrained(f"{sys.argv[1]}/model")
loaded = BertModel.from_pretrained(f"{sys.argv[1]}/model")
assert type(loaded) is BertModel, "a class method keeps its class"
rows = load_dataset("json", data_files=f"{sys.argv[1]}/rows.json", cache_dir=f"{sys.argv[1]}/cache", split="train")
rows = rows.map(lambda row: {"y": row["x"] * 2})
layer = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(rows, batch_size=2):
    (layer(batch["x"].float()[:, None]) - batch["y"].float()[:, None]).square().mean().backward()
    optimizer.step()
rows.map(lambda row: {"z": row["x"]}, load_from_cache_file=False)
