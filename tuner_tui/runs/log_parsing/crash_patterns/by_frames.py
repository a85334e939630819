"""Errors recognised by the code that raised them, where their words say little."""

from __future__ import annotations

import re

from tuner_tui.runs.log_parsing.crash_patterns.gpu_errors import COMPILE, FUSED_MISMATCH, NO_ANSWER
from tuner_tui.runs.log_parsing.crash_patterns.memory_errors import SHARED_MEMORY_FULL
from tuner_tui.runs.log_parsing.crash_patterns.pattern import CrashPattern, FramePattern, pattern
from tuner_tui.runs.log_parsing.crash_patterns.program_errors import (
    COLUMNS,
    COMPILED,
    CONFIGURATION,
    DATA_FILE,
    NO_BATCHES,
    NOT_SENT,
    OPTIMIZER_STATE,
    OPTIONAL,
    READ,
    VERSIONS,
    WRITE,
)

# Python's own exceptions say little: a `KeyError` or `TypeError` means something else in a dataset, a checkpoint reader
# and generated code. A rule therefore joins the exception's line with one of the innermost frames, and gives the cause
# that such an error has there. It must not hide a specific message, so it names the causes that it replaces.

WRAPPERS = frozenset({"worker-crash", "compile-failed", "collective-timeout"})
"""Causes whose messages often wrap the real cause."""
GENERAL = frozenset(
    {"precision-unsupported", "program-error", "bad-arguments", "checkpoint-io", "disk-full", "unknown", *WRAPPERS}
)
"""Causes whose words say less than the code that raised the error."""
TRANSPARENT = re.compile(
    r"/torch/nn/modules/module\.py:|:(?:wrapper|wrapped\w*|inner\w?|inner_f|new_init|decorate\w*)$"
)
"""Frames that only pass a call or an access on."""
# `<string>` is code that a package generates (Unsloth), except for the `__init__` of dataclasses.
INSTALLED = r"(?:site|dist)-packages/|unsloth_compiled_cache/|^<string>:(?!__init__)"
SIGNATURE = (
    r"TypeError: (?!\S*\bforward\(\)).*(?:got an unexpected keyword argument '(?!fused)|positional arguments? but \d+"
    r"|missing \d+ required (?:positional|keyword-only) argument|'(?:method|function|property|module)' object is not )"
)
PLAIN_TYPES = r"(?:NoneType|str|int|float|bool|list|dict|tuple|set|bytes|DictConfig|Namespace)"
"""Types whose missing attributes tell of a wrong value, not of another release."""


def _rule(
    headline: str, frame: str, found: CrashPattern, *, replaces: frozenset[str] = GENERAL, depth: int = 3
) -> FramePattern:
    return FramePattern(re.compile(headline), re.compile(frame), found, replaces, depth)


BY_FRAMES: tuple[FramePattern, ...] = (
    _rule(
        r"^(?:NameError|UnboundLocalError|SyntaxError|IndentationError)\b",
        r"unsloth_compiled_cache",
        pattern("compile-failed", r"$^", f"{COMPILE}: the generated code is invalid"),
    ),
    _rule(
        r"^(?:NameError|UnboundLocalError|SyntaxError|IndentationError|AttributeError)\b",
        r"torchinductor_|<eval_with_key>|<torch_compiled|/\.triton/|\.triton\\|__compiled_fn|<generated>|\.inductor_cache",
        pattern("compile-failed", r"$^", f"{COMPILE}: the generated code is invalid"),
    ),
    _rule(
        r"^(?:\w+\.)*(?:JSONDecodeError|ParserError|OverflowError|KeyError|IndexError|TypeError|AttributeError|Arrow\w+)\b",
        r"/datasets/(?:packaged_modules|builder|arrow_writer|table|features)",
        pattern("program-error", r"$^", DATA_FILE, "likely", topic="data-file"),
        replaces=frozenset({"bad-arguments"}),
    ),
    _rule(
        r"^(?:EOFError|(?:_pickle\.)?UnpicklingError)\b",
        r"multiprocessing/spawn\.py:",
        pattern("worker-crash", r"$^", "A process that was started did not receive its data", consequence=True),
        replaces=frozenset({"checkpoint-io"}),
    ),
    _rule(
        r"^(?!BrokenPipeError|ConnectionError)(?:\w+\.)*\w+(?:Error|Exception)\b",
        r"multiprocess(?:ing)?/(?:reduction|popen_spawn_\w+)\.py:(?:dump|_launch)$",
        pattern("worker-crash", r"$^", NOT_SENT, "likely", topic="pickle"),
        depth=1,
    ),
    _rule(
        r"^(?:OSError|ValueError|SyntaxError|EOFError|RuntimeError|TypeError|IndexError|(?:\w+\.)*\w*[eE]rror|(?:\w+\.)*\w*BadZipFile|(?:\w+\.)*\w*ImageError)\b",
        r"/(?:PIL|torchvision/io|torchaudio/\w+|soundfile|librosa/core|audioread|decord|av|imageio|cv2|nibabel|pydicom|rasterio|webdataset|pandas/io)(?:/|\.py:)",
        pattern("program-error", r"$^", DATA_FILE, "likely", topic="data-file"),
        replaces=frozenset({"program-error", "worker-crash"}),
        depth=1,
    ),
    _rule(
        r"^(?:\w+\.)*\w*(?:Error|Exception|Timeout|Incomplete\w*)\b",
        r"/(?:huggingface_hub/(?:file_download|_snapshot_download|utils/_http)|requests/(?:adapters|models)|urllib3/\w+|httpx/_?\w+|httpcore/.*|aiohttp/.*)\.py:",
        pattern("hub-access", r"$^", NO_ANSWER, "likely", topic="server"),
        replaces=frozenset({"unknown", "program-error"}),
        depth=1,
    ),
    _rule(
        r"^(?:StopIteration$|RuntimeError: generator raised StopIteration|ZeroDivisionError)",
        r"/torch/utils/data/dataloader\.py:|/transformers/trainer\.py:|:(?:_fast_inner_training_loop|get_batch\w*)$",
        pattern("program-error", r"$^", NO_BATCHES, "likely", topic="no-samples"),
        depth=1,
    ),
    _rule(
        r"^(?:ValueError|AssertionError|NotImplementedError|RuntimeError|TypeError|Exception)\b: ?\S",
        r":(?:_?(?:validate|check|verify|sanitize|parse)_?(?:\w*_)?(?:args?|arguments?|cfg|config\w*|params|options|settings|environment|hyperparam\w*)|__post_init__|load_cfg)$",
        pattern("bad-arguments", r"$^", f"{CONFIGURATION}: a check of the settings refuses a value", "likely"),
        replaces=frozenset(),
        depth=1,
    ),
    _rule(
        r"\[Errno 28\]|No space left on device",
        r"multiprocessing/(?:synchronize|heap|shared_memory)\.py:",
        pattern("shm", r"$^", SHARED_MEMORY_FULL),
    ),
    _rule(
        r"(?i)\b(?:same (?:device|dtype)|expected .{0,60}(?:scalar type|dtype|device|cuda)|dtype|must (?:be|have))\b",
        r":_?fused_(?:adamw?|sgd|adagrad)|:_(?:single|multi)_tensor_fused|/apex/optimizers/fused|/ops/adam/fused_adam",
        pattern("fused-unsupported", r"$^", FUSED_MISMATCH),
    ),
    _rule(
        r"^(?:RuntimeError|ValueError|KeyError|EOFError|AssertionError|(?:\w+\.)*error)\b",
        r"/(?:safetensors/|torch/serialization\.py|torch/distributed/checkpoint/)[^:]*:(?:_?load\w*|get_tensor|_?read\w*)$",
        pattern("checkpoint-io", r"$^", READ),
        replaces=frozenset({"program-error"}),
    ),
    _rule(
        r"^(?:RuntimeError|ValueError|TypeError|KeyError|AttributeError|AssertionError|(?:_pickle\.)?PicklingError)\b",
        r"/(?:safetensors/|torch/serialization\.py|torch/distributed/checkpoint/|transformers/modeling_utils\.py)[^:]*:(?:_?save\w*|_flatten|serialize\w*)$",
        pattern("checkpoint-io", r"$^", WRITE, "possible", topic="cannot-save"),
        replaces=frozenset({"program-error", "worker-crash"}),
        depth=1,
    ),
    _rule(
        r"^(?:KeyError|IndexError|ValueError|AttributeError)\b",
        r":(?:load_(?:optimizer_)?state_dict|_?load_optimizer\w*|restore_optimizers\w*)$",
        pattern("checkpoint-io", r"$^", OPTIMIZER_STATE, "likely", topic="other-optimizer"),
        replaces=frozenset({"bad-arguments", "program-error"}),
    ),
    _rule(
        r"^KeyError\b",
        r":_?(?:load|restore|resume)_(?:from_)?checkpoint\w*$",
        pattern("checkpoint-io", r"$^", READ, "likely"),
        replaces=frozenset({"program-error"}),
        depth=1,
    ),
    _rule(
        r"^TypeError: .*object is not (?:subscriptable|iterable|callable)",
        r"/(?:torch/utils/data|sentence_transformers/datasets|datasets)/.*:(?:__getitem__|__iter__|fetch|collate\w*|default_collate)$",
        pattern("program-error", r"$^", COLUMNS, "likely", topic="columns"),
        replaces=frozenset(),
        depth=1,
    ),
    _rule(
        r"^(?:RuntimeError|SystemError)\b",
        r"-packages/(?:apex|flash_attn|xformers|causal_conv1d|mamba_ssm|bitsandbytes|transformer_engine|deepspeed/ops)[/-]",
        pattern("missing-package", r"$^", COMPILED, "possible", topic="broken-package"),
        replaces=frozenset(),
        depth=1,
    ),
    _rule(
        r"^NameError\b",
        INSTALLED,
        pattern("missing-package", r"$^", OPTIONAL, "likely", topic="optional-package"),
        depth=1,
    ),
    # Last, because it only says that something inside a package was called or asked for that is not there. Only
    # the innermost frame counts: in the program's own code the same words are a plain mistake.
    _rule(
        rf"^(?:{SIGNATURE}|AttributeError: (?!'{PLAIN_TYPES}' object))",
        INSTALLED,
        pattern("missing-package", r"$^", VERSIONS, "likely", topic="package-versions"),
        replaces=frozenset({"bad-arguments"}),
        depth=1,
    ),
)
"""Errors recognised by where they were raised."""
