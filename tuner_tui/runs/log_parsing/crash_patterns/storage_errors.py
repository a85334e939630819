"""A full disk, and checkpoints that could not be written or read."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

FULL = "The disk is full"
WRITE = "A checkpoint could not be written"
CUT_OFF = "A checkpoint was only partly written: its disk is most likely full"
READ = "A checkpoint could not be read: incomplete, damaged, or from another model"

OTHER_MODEL = "The checkpoint belongs to another model: names or shapes of weights differ"
OPEN = "A checkpoint could not be opened: it is missing or not readable"
WEIGHTS = r"(?:\.safetensors|\.ckpt|\.pth?|\.distcp|(?:pytorch_model|model|adapter_model|weights|checkpoint|consolidated)[\w.-]*\.(?:bin|h5|msgpack)|model\.safetensors\.index\.json|checkpoint-\d+)\b"
"""The end of a checkpoint's path. A bare `.bin` is a data set as often."""

PATTERNS = (
    pattern("disk-full", r"\[Errno 28\]|No space left on device|StorageFull|\(os error 28\)|ENOSPC", FULL),
    pattern("disk-full", r"\[Errno 122\]|Disk quota exceeded|\(os error 122\)|EDQUOT", "The disk quota is used up"),
    pattern("disk-full", r"Not enough (?:free )?disk space|insufficient disk space|There is not enough space on the disk", FULL),
    pattern("disk-full", r"^(?:\w+: )*(?:error: )?write error: No space left on device|^cp: .*No space left on device", FULL, bare=True),
    pattern("checkpoint-io", r"PytorchStreamWriter failed writing|inline_container\.cc.{0,80}writing", WRITE),
    pattern("disk-full", r"unexpected pos \d+ vs \d+", CUT_OFF, "likely"),
    pattern("checkpoint-io", r"Error while serializing|Parent directory .{1,400} does not exist", WRITE),
    pattern("checkpoint-io", r"\[Errno 30\]|Read-only file system|\(os error 30\)", "The output folder is read-only"),
    pattern("checkpoint-io", r"\[Errno (?:5|116|121)\]|Input/output error|Stale (?:NFS )?file handle", "The storage returned an error"),
    pattern("checkpoint-io", rf"(?:No such file or directory|Permission denied|FileNotFoundError|PermissionError).{{0,400}}{WEIGHTS}", OPEN),
    pattern("checkpoint-io", r"unable to open file <?.{0,400} in read-only mode|Unable to (?:synchronously )?open file \(.{0,300}errno = (?:2|13)\b|open file failed because of errno \d+ on fopen", OPEN),
    pattern("checkpoint-io", r"Error no file named .{0,300}(?:model|weights)|Unsuccessful TensorSliceReader|Failed to find any matching files for", OPEN),
    pattern("checkpoint-io", r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted", READ),
    pattern("checkpoint-io", r"SafetensorError|HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer|incomplete metadata", READ),
    pattern("checkpoint-io", r"Weights only load failed|WeightsUnpickler error", "The checkpoint contains more than tensors, which torch.load rejects since 2.6", topic="weights-only"),
    pattern("checkpoint-io", r"UnpicklingError|invalid load key|pickle data was truncated|Ran out of input", READ),
    pattern("checkpoint-io", r"[Uu]nable to load weights from (?:pytorch )?checkpoint|[Cc]heckpoint .{0,200}(?:corrupt|incomplete)", READ),
    pattern("checkpoint-io", r"Error\(s\) in loading state_dict|size mismatch for [\w.]+: copying a param|You set `?ignore_mismatched_sizes`? to `?False", OTHER_MODEL, topic="other-model"),
    pattern("checkpoint-io", r"loaded state dict (?:has|contains) a (?:different number|parameter group)", "The optimizer state belongs to other parameters", topic="other-optimizer"),
    pattern("checkpoint-io", r"Attempting to deserialize object on (?:a CUDA|CUDA) device", "The checkpoint was saved on a device that this machine does not have", topic="map-location"),
    pattern("checkpoint-io", r"Can't find a valid checkpoint at|No valid checkpoint found in output directory", READ),
    pattern("checkpoint-io", r"CheckpointException|CheckpointError|checkpoint.{0,80}(?:FileNotFoundError|No such file)", READ),
    pattern("checkpoint-io", r"No such file or directory: .{0,400}(?:checkpoint-\d+|trainer_state\.json|optimizer\.pt|rng_state)", READ),
    pattern("checkpoint-io", r"The checkpoint being loaded used a DP world size of", "The checkpoint was saved with a different number of processes", topic="other-world"),
    pattern("checkpoint-io", r"storage has wrong (?:byte )?size|unexpected EOF, expected \d+ more bytes|The file might be corrupted", READ),
)  # fmt: skip
