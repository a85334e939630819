"""Every row of `frame_roles.yaml` has the role of its examples and of none of its counter-examples."""

from __future__ import annotations

import pytest

from tuner_tui.core.files import read_data_file
from tuner_tui.runs.log_parsing.failures import CodeFrame
from tuner_tui.runs.log_parsing.frame_roles import FILE, location_of, role_of_frame, role_of_traceback, roles

SITE = "/opt/env/lib/python3.11/site-packages"


def frames(field: str) -> list[tuple[str, str]]:
    return [(row["role"], frame) for row in read_data_file(FILE) for frame in row[field]]


def role_name(frame: str) -> str | None:
    file, _, function = frame.rpartition(":")
    role = role_of_frame(f"/home/ann/{file}" if "/" not in file else f"{SITE}/{file}", function)
    return None if role is None else role.name


@pytest.mark.parametrize(("role", "frame"), frames("example"))
def test_an_example_has_the_role_of_its_row(role: str, frame: str) -> None:
    assert role_name(frame) == role


@pytest.mark.parametrize(("role", "frame"), frames("counter_example"))
def test_a_counter_example_has_not(role: str, frame: str) -> None:
    assert role_name(frame) != role


def test_every_row_is_complete_and_yields_to_roles_that_exist() -> None:
    names = {role.name for role in roles()}
    assert [row["role"] for row in read_data_file(FILE) if not {"say", "source", "frames"} <= row.keys()] == []
    assert [name for role in roles() for name in role.yields if name not in names] == []


ZERO = (f"{SITE}/deepspeed/runtime/zero/stage3.py", "step")
ALL_REDUCE = (f"{SITE}/torch/distributed/distributed_c10d.py", "all_reduce")
PRETRAINED = (f"{SITE}/peft/peft_model.py", "from_pretrained")
RESUME = (f"{SITE}/transformers/trainer.py", "_load_from_checkpoint")
TORCH_LOAD = (f"{SITE}/torch/serialization.py", "load")
CALL = (f"{SITE}/torch/nn/modules/module.py", "_call_impl")
COLLATOR, STACK = ("train.py", "collate_pairs"), (f"{SITE}/numpy/core/shape_base.py", "stack")


@pytest.mark.parametrize(
    ("stack", "role", "location"),
    [
        ([("train.py", "main"), COLLATOR, STACK], "collate", None),
        ([ZERO, ALL_REDUCE], "zero", "training"),  # a collective yields to what called it
        ([("train.py", "training_step"), ("batch.py", "__getitem__")], "step", "training"),  # no sample of a data set
        ([COLLATOR, ("train.py", "tokenize")], "collate", None),
        ([PRETRAINED, TORCH_LOAD], "weights", "loading"),
        ([RESUME, TORCH_LOAD], "checkpoint-read", "loading"),
        ([("train.py", "evaluate"), ("model.py", "forward")], "forward", "evaluation"),
        ([("train.py", "train"), CALL, ("tasks.py", "predict"), ("head.py", "forward")], "forward", "training"),
        ([("train.py", "train"), ("train.py", "work")], None, "training"),
        ([("train.py", "work")], None, None),
        ([("train.py", "train"), ("train.py", "validate_epoch")], None, "evaluation"),
        ([PRETRAINED, (f"{SITE}/transformers/quantizers/base.py", "validate_environment")], "weights", "loading"),
        ([(f"{SITE}/transformers/models/auto/tokenization_auto.py", "from_pretrained")], "model-parts", "loading"),
    ],
)
def test_the_role_and_the_location_of_a_stack(
    stack: list[tuple[str, str]], role: str | None, location: str | None
) -> None:
    frames = [CodeFrame(*frame) for frame in stack]
    frame_role = role_of_traceback(frames)
    assert (None if frame_role is None else frame_role.name) == role
    assert location_of(frames) == location


def test_what_an_import_runs_is_not_the_work_of_its_package() -> None:
    script, package = CodeFrame("train.py", "main", 1, "import torchaudio"), f"{SITE}/torchaudio"
    library = (CodeFrame(f"{package}/__init__.py", "<module>"), CodeFrame(f"{package}/_extension.py", "_load_lib"))
    assert role_of_traceback((script, *library)) is None
    reading = role_of_traceback((script._replace(statement="torchaudio.load(path)"), library[1]))
    assert reading is not None
    assert reading.name == "decode"


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ("OSError: [Errno 122] Disk quota exceeded: '/home/ann/.triton/cache/a/k.json'", "compiler-cache"),
        ("OSError: [Errno 28] No space left on device: '/home/ann/.cache/huggingface/hub/blobs/a'", "download"),
        ("OSError: [Errno 28] No space left on device", None),
    ],
)
def test_a_path_in_the_message_gives_the_role_where_no_frame_does(message: str, role: str | None) -> None:
    frame_role = role_of_traceback((), message)
    assert (None if frame_role is None else frame_role.name) == role
