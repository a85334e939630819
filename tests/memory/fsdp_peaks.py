"""Prints the peak of one process of a training that FSDP divides, by PyTorch's own tracker, for each case in JSON.

The tensors are fake and so are the other processes, so that it needs neither their memory nor a GPU.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM


def peak_bytes(config: dict[str, Any], mesh: Any, batch: int, tokens: int, accumulated: int) -> int:
    model = LlamaForCausalLM(LlamaConfig(**config, use_cache=False, attn_implementation="sdpa"))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model.train()
    tracker = FSDPMemTracker(model, optimizer)
    ids = torch.randint(0, config["vocab_size"], (batch, tokens))
    tracker.track_inputs((ids,))
    with tracker:
        for _ in range(2):  # the states of the optimizer are there from the second step on
            for micro_step in range(accumulated):
                tracker.reset_mod_stats()
                model.set_requires_gradient_sync(micro_step == accumulated - 1)
                model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    ((_, parts),) = tracker.get_tracker_snapshot("peak").items()
    return int(parts["Total"])


def main() -> None:
    cases, processes = json.loads(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    mesh = init_device_mesh("cpu", (processes,))
    peaks = []
    for case in cases:
        with FakeTensorMode(allow_non_fake_inputs=True):
            peaks.append(peak_bytes(case["config"], mesh, case["batch"], case["tokens"], case["accumulated"]))
    print(json.dumps(peaks))


main()
