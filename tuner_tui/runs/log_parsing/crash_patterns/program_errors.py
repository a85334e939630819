"""Missing packages, dead loader workers, wrong arguments."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

MISSING = "A package is missing from the training interpreter"
BROKEN = "A package does not fit the others of this interpreter"
WORKER = "A loader process died"
FILES = "The loader ran out of open files"
ARGUMENTS = "The command was given arguments it does not take"
NOT_FOUND = "A file, model or data set that was named does not exist"
LIMITS = "An index lies outside a table: a label or token id the model has no place for"

PACKAGES = (
    pattern("missing-package", r"ModuleNotFoundError: No module named '?(?:[\w.]+)", MISSING),
    pattern("missing-package", r"^\S*python\S*: No module named (?:[\w.]+)|^(?:\S+: (?:line )?\d+: )?(?:accelerate|torchrun|deepspeed): (?:command )?not found", MISSING, bare=True),
    pattern("missing-package", r"requires the following packages that were not found|requires the (?:\w+) library but it was not found", MISSING),
    pattern("missing-package", r"(?:`?(?:[\w-]+)`?) is not installed|[Nn]eed to install `?(?:[\w-]+)|doesn't seem to be installed|seems to be not installed", MISSING),
    pattern("missing-package", r"[Pp]lease install `?(?:[\w-]+)|Please run `?pip install|PackageNotFoundError|DistributionNotFound|Using `?bitsandbytes`?.{0,80}requires", MISSING),
    pattern("missing-package", r"requires (?:`|the )?(?:accelerate|bitsandbytes|peft|deepspeed|flash[-_]attn|sentencepiece|tiktoken|protobuf|datasets|apex|einops|triton|transformers|torch)`?(?: ?[>=<]|\b.{0,30}(?:install|library))", MISSING),
    pattern("missing-package", r"ImportError: .{0,300}(?:cannot import name|undefined symbol|cannot open shared object|DLL load failed|version `?GLIBC)", BROKEN),
    pattern("missing-package", r"OSError: .{0,200}\.so[.\d]*: (?:cannot open shared object|undefined symbol)|CUDA [Ss]etup failed|CUDA_SETUP.*failed", BROKEN),
    pattern("missing-package", r"Attempted to use bitsandbytes native library functionality", BROKEN, bare=True),
    pattern("missing-package", r"has no attribute 'cget_managed_ptr'|name 'str2optimizer\w+' is not defined", f"{BROKEN}: bitsandbytes has no code for this GPU's software"),
    pattern("missing-package", r"^ImportError: ", BROKEN, "likely"),
)  # fmt: skip
WORKERS = (
    pattern("worker-crash", r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:is killed by signal|exited unexpectedly)", WORKER),
    pattern("worker-crash", r"DataLoader timed out after|Pin memory thread exited unexpectedly", "The loader stopped answering"),
    pattern("worker-crash", r"Caught \w+ in DataLoader worker process", "A loader process raised an exception"),
    pattern("worker-crash", r"subprocesses has abruptly died|BrokenProcessPool|terminated abruptly while", "A process that prepares data died"),
    pattern("worker-crash", r"Too many open files|\[Errno 24\]|received 0 items of ancdata", FILES),
    pattern("worker-crash", r"Cannot re-initialize CUDA in forked subprocess", "A loader process used the GPU after a fork"),
    pattern("worker-crash", r"before the current process has finished its bootstrapping", "Processes are started without a main guard"),
    pattern("worker-crash", r"^(?:ConnectionResetError|BrokenPipeError|ConnectionRefusedError)", "A process of the training went away", "possible", consequence=True),
    pattern("worker-crash", r"Can't (?:get local|pickle) (?:local )?object|[Cc]an't pickle|cannot pickle", "Something cannot be sent to the loader processes", "likely"),
)  # fmt: skip
USAGE = (
    pattern("bad-arguments", r"^(?:\S+: )?error: (?:unrecognized arguments|the following arguments|argument |ambiguous option|invalid choice|one of the arguments|too few|expected)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"^(?:Error: |Got unexpected |│ ?)(?:No such (?:option|command)|Invalid value for|Missing (?:option|argument|parameter)|Got unexpected extra|unexpected extra)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"not used by the HfArgumentParser|Some keys are not used|unexpected keyword argument '(?!fused)", ARGUMENTS),
    pattern("bad-arguments", r"^(?:Could not override|Error merging override|Key '.{1,80}' is not in struct|You must specify|Primary config .* not found|Could not load '|In '.{1,80}': Could not find)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"ConfigAttributeError|ConfigKeyError|ConfigCompositionException|MissingConfigException|MissingMandatoryValue|OverrideParseException|UnsupportedInterpolationType", ARGUMENTS),
    pattern("bad-arguments", r"prefetch_factor.{0,60}(?:only be specified|can only be set)|persistent_workers option needs|num_workers option should", ARGUMENTS),
    pattern("bad-arguments", r"is not a valid \w+, please select one of|--?load_best_model_at_end requires|strategy \S+ requires|requires (?:either )?(?:a )?(?:non-zero|positive) |must be an integer", ARGUMENTS),
    pattern("bad-arguments", r"Check batch related parameters\. train_batch_size is not equal to", "DeepSpeed's batch sizes contradict one another"),
    pattern("bad-arguments", r"you didn't pass an `?eval_dataset|requires an? (?:eval|train)_dataset|max_steps has to be specified|cannot instantiate unsupported optimizer|Got warmup_steps", ARGUMENTS),
    pattern("bad-arguments", r"(?:yaml|omegaconf)\.\w*\.?\w*(?:Error|Exception)|JSONDecodeError|TOMLDecodeError|ParserError|ScannerError", "A configuration file cannot be read"),
    pattern("bad-arguments", r"pydantic\S*ValidationError|validation errors? for \w+|jsonargparse|ArgumentError|BadParameter|UsageError|MissingParameter", ARGUMENTS),
    pattern("bad-arguments", r"can't open file '.{1,300}': \[Errno 2\]|: (?:command )?not found$|: No such file or directory$", "The command or its script does not exist", bare=False),
    pattern("bad-arguments", r"^\S*python\S*: can't open file|^(?:/bin/)?(?:ba|z|da)?sh: (?:line )?(?:\d+: )?\S+: (?:command )?not found", "The command or its script does not exist", bare=True),
    pattern("bad-arguments", r"not a local folder and is not a valid model identifier|does not appear to have a file named|[Rr]epository Not Found|RepositoryNotFoundError|GatedRepoError|gated repo|EntryNotFoundError|RevisionNotFoundError|HFValidationError", NOT_FOUND),
    pattern("bad-arguments", r"DatasetNotFoundError|doesn't exist on the Hub|Couldn't find (?:a dataset script|any data file)|Unable to find '|[Uu]nrecognized (?:model|configuration)|BuilderConfig .* not found|Unknown split", NOT_FOUND),
    pattern("bad-arguments", r"FileNotFoundError|NotADirectoryError|IsADirectoryError", NOT_FOUND, "likely"),
    pattern("bad-arguments", r"invalid device ordinal|Invalid device id|Duplicate GPU detected|ncclInvalidUsage|No CUDA GPUs are available|Torch not compiled with CUDA enabled|Invalid device string", "More or other GPUs were asked for than there are"),
    pattern("bad-arguments", r"Target modules .{1,200} not found in the base model|does not have a padding token|activate truncation and/or padding", ARGUMENTS),
    pattern("bad-arguments", r"Target -?\d+ is out of bounds|index out of range in self|label_?ids? out of range|Expected input batch_size|Found input variables with inconsistent numbers", LIMITS, "likely"),
)  # fmt: skip
