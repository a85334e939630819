"""Provokes real crashes on a machine without a GPU and keeps what they print: `python -m tests.advice.crash.provoke`.

Run by hand when a library's words may have changed. Paths are made neutral; everything else is kept as it was printed.
"""

# ruff: noqa: E501  (a script a snippet)

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OUTPUTS = Path(__file__).parent / "provoked"
DATA = "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n    def __len__(self): return 64\n"
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))\n"
TRAINER = (
    "import torch\nfrom transformers import Trainer, TrainingArguments, BertConfig, BertForSequenceClassification\n"
    "model = BertForSequenceClassification(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2,"
    " intermediate_size=32, vocab_size=100))\n"
    "data = [{'input_ids': [1, 2, 3, 4], 'labels': n % 2} for n in range(64)]\n"
    "def train(**more):\n"
    "    a = TrainingArguments('out', max_steps=6, logging_steps=1, use_cpu=True, report_to='none', save_strategy='no', **more)\n"
    "    Trainer(model, a, train_dataset=data).train()\n"
)
SNIPPETS = {
    "host-oom.training.cpu-allocator": LIMIT
    + "import torch\ndef training_step():\n    return torch.ones(1 << 31).sum()\ntraining_step()\n",
    "host-oom.loading.cpu-allocator": LIMIT
    + "import torch\ndef from_pretrained():\n    return torch.nn.Linear(1 << 16, 1 << 16)\nfrom_pretrained()\n",
    "host-oom.optimizer-step.adam": "import torch\np = torch.nn.Parameter(torch.zeros(1 << 26)); p.grad = torch.ones_like(p)\n"
    "o = torch.optim.AdamW([p], foreach=False)\n" + LIMIT.replace("3 << 30", "1 << 28") + "o.step()\n",
    "host-oom..python": LIMIT + "x = bytearray(8 << 30)\n",
    "missing-package..module": "import bitsandbytes_that_is_not_there\n",
    "missing-package..bnb-optimizer": TRAINER + "train(optim='adamw_bnb_8bit')\n",
    "missing-package..flash": TRAINER
    + "BertForSequenceClassification._from_config(model.config, attn_implementation='flash_attention_2')\n",
    "bad-arguments..argparse": "import argparse\np = argparse.ArgumentParser(); p.add_argument('--lr', type=float); p.parse_args(['--lrr', '3'])\n",
    "bad-arguments..training-arguments": TRAINER + "train(evaluation_strategy='no')\n",
    "bad-arguments..prefetch": TRAINER + "train(dataloader_prefetch_factor=2)\n",
    "bad-arguments..hf-parser": "from transformers import HfArgumentParser, TrainingArguments\n"
    "HfArgumentParser(TrainingArguments).parse_dict({'output_dir': 'o', 'learning_rat': 1})\n",
    "bad-arguments..label": TRAINER + "data[5]['labels'] = 7\ntrain()\n",
    "disk-full.checkpoint.full": "import torch\ndef save_checkpoint():\n    torch.save(torch.ones(1 << 20), '/dev/full')\nsave_checkpoint()\n",
    "disk-full..write": "with open('/dev/full', 'w') as f:\n    f.write('x' * (1 << 20))\n",
    "checkpoint-io..truncated": "import torch\ntorch.save(torch.ones(1000), 'a.pt')\nb = open('a.pt', 'rb').read()\n"
    "open('a.pt', 'wb').write(b[:500])\ntorch.load('a.pt')\n",
    "checkpoint-io..folder": "import torch\ntorch.save(torch.ones(3), 'no/such/folder/a.pt')\n",
    "checkpoint-io..other-model": "import torch\ntorch.nn.Linear(2, 3).load_state_dict(torch.nn.Linear(4, 3).state_dict())\n",
    "worker-crash..killed": DATA
    + "    def __getitem__(self, i):\n        import os, signal\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    "for b in DataLoader(D(), num_workers=2): pass\n",
    "worker-crash..raised": DATA
    + "    def __getitem__(self, i):\n        return {'a': 1}['b']\nfor b in DataLoader(D(), num_workers=2): pass\n",
    "shm..bus-error": DATA
    + "    def __getitem__(self, i):\n        import os, signal\n        os.kill(os.getpid(), signal.SIGBUS)\n"
    "for b in DataLoader(D(), num_workers=2): pass\n",
    "precision-unsupported..mixed": "import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2).half())\n",
    "precision-unsupported..tf32-cpu": TRAINER + "train(tf32=True)\n",
    "fused-unsupported..device": "import torch\np = torch.nn.Parameter(torch.zeros(3, device='meta')); p.grad = torch.zeros(3, device='meta')\n"
    "torch.optim.AdamW([p], fused=True).step()\n",
    "compile-failed..no-compiler": "import os; os.environ['CXX'] = '/no/such/compiler'\nimport torch\ntorch.compile(lambda x: x.sin() + 1)(torch.ones(8))\n",
    "nan..trainer": TRAINER + "for p in model.parameters(): p.data.fill_(float('nan'))\ntrain()\n",
    "nan..anomaly": "import torch\ntorch.autograd.set_detect_anomaly(True)\nx = torch.zeros(1, requires_grad=True)\n(x.sqrt() * 0 / x).sum().backward()\n",
    "host-oom..worker": LIMIT
    + DATA
    + "    def __getitem__(self, i):\n        return torch.ones(1 << 31)\nfor b in DataLoader(D(), num_workers=1): pass\n",
    "host-oom.evaluation.gather": LIMIT
    + "import torch\ndef evaluate(parts):\n    return torch.cat(parts * 4096)\nevaluate([torch.ones(1 << 20)])\n",
    "host-oom..numpy": LIMIT + "import numpy as np\nnp.ones((1 << 16, 1 << 16))\n",
    "worker-crash..exits": DATA
    + "    def __getitem__(self, i):\n        import os\n        os._exit(3)\nfor b in DataLoader(D(), num_workers=2): pass\n",
    "worker-crash..pickle": DATA + "    def __getitem__(self, i):\n        return i\nd = D(); d.f = lambda: 0\n"
    "if __name__ == '__main__':\n    for b in DataLoader(d, num_workers=1, multiprocessing_context='spawn'): pass\n",
    "gpu-software..no-cuda": "import torch\ntorch.nn.Linear(2, 2).to('cuda')\n",
    "bad-arguments..token": "import torch\ntorch.nn.Embedding(10, 4)(torch.tensor([11]))\n",
    "bad-arguments..model": "from transformers import AutoModel\nAutoModel.from_pretrained('/no/such/model')\n",
    "checkpoint-io..safetensors": "import torch\nfrom safetensors.torch import load_file, save_file\nsave_file({'a': torch.ones(9)}, 'a.safetensors')\n"
    "b = open('a.safetensors', 'rb').read(); open('a.safetensors', 'wb').write(b[:40])\nload_file('a.safetensors')\n",
    "checkpoint-io..resume": TRAINER + "a = TrainingArguments('out', max_steps=2, use_cpu=True, report_to='none')\n"
    "Trainer(model, a, train_dataset=data).train(resume_from_checkpoint='out/checkpoint-5')\n",
    "checkpoint-io..weights-only": "import torch\nclass A: pass\ntorch.save({'a': A()}, 'a.pt')\ntorch.load('a.pt')\n",
    "collective-timeout..gloo": "import datetime, os, sys, time\nimport torch.distributed as dist\n"
    "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29611')\nrank = 1 if os.fork() else 0\n"
    "dist.init_process_group('gloo', rank=rank, world_size=2, timeout=datetime.timedelta(seconds=4))\n"
    "if rank == 0:\n    time.sleep(9); os._exit(0)\ndist.barrier()\n",
    "compile-failed..full-graph": "import torch\n@torch.compile(fullgraph=True, backend='eager')\ndef f(x):\n    torch._dynamo.graph_break()\n    return x\nf(torch.ones(2))\n",
    "attention-unsupported..name": TRAINER
    + "BertForSequenceClassification._from_config(model.config, attn_implementation='flash_attention_9')\n",
    "unknown..segfault": "import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(0)\n",
    "unknown..bug": TRAINER + "data[3]['input_ids'] = None\ntrain()\n",
    "healthy..trainer": TRAINER + "train()\n",
    "healthy..caught": TRAINER
    + "import traceback\ndef probe():\n    try:\n        torch.ones(1 << 40)\n    except RuntimeError:\n"
    "        traceback.print_exc()\n        print('does not fit, falling back to a smaller probe')\nprobe()\ntrain()\n",
}


def provoke(script: str) -> str:
    """What the script prints, and the exit status that a shell would show."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
        result = subprocess.run(
            [sys.executable, "train.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=300,
        )  # fmt: skip
        return neutral(result.stdout.decode("utf-8", "replace").replace(folder, "/home/ann"))


def neutral(text: str) -> str:
    """Without this machine's folders."""
    text = re.sub(r'[^"\s]*/lib/python3\.\d+/site-packages/', "/opt/env/lib/python3.11/site-packages/", text)
    text = re.sub(r'[^"\s]*/lib/python3\.(\d+)/(?!site-packages)', r"/opt/python/lib/python3.\1/", text)
    return re.sub(r"/tmp/[\w./-]+", "/tmp/folder", text)


def main() -> None:
    """Provoke what is named on the command line, or everything."""
    for name in sys.argv[1:] or SNIPPETS:
        OUTPUTS.joinpath(f"{name}.txt").write_text(provoke(SNIPPETS[name]))
        print(name)


if __name__ == "__main__":
    main()
