"""Errors of the program: packages, workers, arguments, data, numbers that are not finite, full disks, checkpoints."""

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

MISSING = "A package is missing from the training interpreter"
BROKEN = "A package is incompatible with the others in this interpreter"
VERSIONS = "Releases that do not fit together: what the code uses does not exist in the installed package"
COMPILED = "The compiled code of a package failed; its build may not fit the installed torch"
OPTIONAL = "A package that another one uses only where it is installed is missing"
UNKNOWN_MODEL = "This release of transformers does not know the model: it is too old, or the name is wrong"
TOKENIZER_FILE = "The tokenizer files do not match the installed tokenizers"
WORKER = "A loader process died"
FILES = "The loader ran out of open files"
ARGUMENTS = "The command got arguments it does not accept"
CONFIGURATION = "The configuration is not valid"
NOT_FOUND = "A file, model or dataset does not exist"
SHAPES = "The shapes of two tensors do not match"
DEVICES = "Tensors of one operation are on different devices"
COLUMNS = "The columns of the dataset are not those that the model or the collator expects"
DATA_FILE = "A data file cannot be read: unexpected format or record"
NO_BATCHES = "The loader had no batch left, or the dataset is empty or smaller than a batch"
TOGETHER = "Settings that do not go together"
REFUSED = r"^(?:\w+\.)*(?:ValueError|AssertionError|NotImplementedError|TypeError|RuntimeError): "
"""Exceptions that a program raises to refuse a setting."""
NOT_SENT = "An object could not be sent to a process that was to be started"
SIGNATURE = "A function or class does not accept an argument that it is given"
LIMITS = "An index is out of range: a label or token id is too large for the model"

PACKAGES = (
    pattern("gpu-software", r"(?:Could not load library libcud\w+|[Ll]ibrary (?:lib)?cu\w+(?:64_\d+\.dll|\.so\S*) is not found)|(?:Unable to|Cannot|Could not) load (?:any of {)?\W{0,3}libcud(?:nn|art)\w*|\blib(?:cudnn|cudart|cublas|cusparse|cupti|nvrtc|nvJitLink|nccl)\w*\.so\S* ?: (?:cannot open|undefined symbol|version)|(?:cuDNN|CUDNN) version (?:in|mis)compatib\w+|CUDNN_STATUS_(?:VERSION_MISMATCH|SUBLIBRARY)|undefined symbol: __nv\w+, version libnv", "The CUDA libraries that are loaded do not belong to this torch", bare=True, topic="cuda-libraries"),
    pattern("missing-package", r"(?i)numpy\.dtype size changed|compiled using NumPy 1\.x cannot be run in NumPy|module 'numpy' has no attribute|numpy\.core\.multiarray failed to import|_ARRAY_API not found", "A package was built for another major version of NumPy", topic="numpy"),
    pattern("missing-package", r"Descriptors cannot (?:not )?be created directly|'?runtime_version'? from 'google\.protobuf'", "The installed protobuf is newer than the generated code", topic="protobuf"),
    pattern("missing-package", r"does not recognize this architecture|[Uu]nrecognized model in|The checkpoint you are trying to load has model type|^KeyError: '(?:qwen|llama|mistral|gemma|phi|mixtral|deepseek|olmo|granite|smollm|glm|internlm|falcon|modernbert)\w*'", UNKNOWN_MODEL, topic="transformers-age"),
    pattern("missing-package", r"did not match any variant of untagged enum|Couldn't instantiate the backend tokenizer|Tokenizer class \S+ does not exist or is not currently imported", TOKENIZER_FILE, topic="tokenizer-file"),
    pattern("missing-package", r"CUDA SETUP: .{0,40}(?:Required library version not found|Setup [Ff]ailed|Something unexpected)", BROKEN, bare=True, topic="broken-package"),
    pattern("missing-package", r"OMP: Error #15: Initializing \S+, but found \S+ already initialized", "Two packages bring an OpenMP runtime of their own", bare=True, topic="openmp"),
    pattern("missing-package", r"cannot import name '|(?:module|type object) '[\w.]+' has no attribute", VERSIONS, topic="package-versions"),
    pattern("missing-package", r"(?i)\bversions? of .{1,60} (?:is|are) (?:not compatible|incompatible|too old|too new|not supported)|\b(?:is|are) (?:incompatible|not compatible) with (?:the )?(?:installed |your )?\w+ ?(?:version|[<>=]?=?\d)", VERSIONS, "likely", topic="package-versions"),
    pattern("missing-package", r"Failed to import \S+ because of the following error", BROKEN, "likely", topic="broken-package"),
    pattern("missing-package", r"ModuleNotFoundError: ", MISSING),
    pattern("missing-package", r"^\S*python\S*: No module named (?:[\w.]+)|^(?:\S+: (?:line )?\d+: )?(?:accelerate|torchrun|deepspeed): (?:command )?not found", MISSING, bare=True),
    pattern("missing-package", r"^'?(?:accelerate|torchrun|deepspeed)'?(?: :)?(?: The term \S+)? is not recognized as", MISSING, bare=True),
    pattern("bad-arguments", r"is not recognized as (?:an internal or external command|the name of a cmdlet)", "The command or its script does not exist", bare=True),
    pattern("missing-package", r"requires the following packages that were not found|requires the (?:\w+) library but it was not found", MISSING),
    pattern("missing-package", r"(?:`?(?:[\w-]+)`?) is not installed|[Nn]eed to install `?(?:[\w-]+)|doesn't seem to be installed|seems to be not installed", MISSING),
    pattern("missing-package", r"[Pp]lease install [`'\"]?(?:[\w-]+)|Please run `?pip install|PackageNotFoundError|DistributionNotFound|Using `?bitsandbytes`?.{0,80}requires", MISSING),
    pattern("missing-package", r"requires (?:`|the )?(?:accelerate|bitsandbytes|peft|deepspeed|flash[-_]attn|sentencepiece|tiktoken|protobuf|datasets|apex|einops|triton|transformers|torch)`?(?: ?[>=<]|\b.{0,30}(?:install|library))", MISSING),
    pattern("compile-failed", r"(?:\.cache|tmp)/torch_extensions/\S+\.so\b", "A compiled C++/CUDA extension cannot be loaded", topic="extension"),
    pattern("missing-package", r"ImportError: .{0,300}(?:undefined symbol|cannot open shared object|DLL load failed|version `?GLIBC)", BROKEN, topic="broken-package"),
    pattern("missing-package", r"OSError: .{0,200}\.so[.\d]*: (?:cannot open shared object|undefined symbol)|CUDA [Ss]etup failed|CUDA_SETUP.*failed", BROKEN, topic="broken-package"),
    pattern("missing-package", r"Attempted to use bitsandbytes native library functionality", BROKEN, bare=True, topic="broken-package"),
    pattern("missing-package", r"has no attribute 'cget_managed_ptr'|name 'str2optimizer\w+' is not defined", f"{BROKEN}: bitsandbytes has no binary for this CUDA or ROCm version", topic="broken-package"),
    pattern("missing-package", r"^ImportError: ", BROKEN, "likely", topic="broken-package"),
)  # fmt: skip
DATA = (
    pattern("program-error", r"image file is truncated|cannot identify image file|broken (?:data stream|PNG file)|[Tt]runcated File Read|UnidentifiedImageError|DecompressionBomb|Error opening .{1,300}(?:Format not recognised|File contains data)", DATA_FILE, topic="data-file"),
    pattern("program-error", r"UnicodeDecodeError|UnicodeEncodeError", "A text file has another encoding than the program expects", topic="encoding"),
)  # fmt: skip
WORKERS = (
    pattern("worker-crash", r"^(?:BlockingIOError: .*)?(?:\[Errno 11\] )?Resource temporarily unavailable$|(?:fork|thread)\b.{0,60}Resource temporarily unavailable|can't start new thread|(?:[Tt]hread creation failed|pthread_create failed)", "The limit of processes and threads is reached", bare=True, topic="process-limit"),
    pattern("worker-crash", r"DataLoader worker \(pid[^)]*\) is killed by signal: Killed", "A loader process was killed; the kernel does this when host memory is full", topic="killed-worker"),
    pattern("worker-crash", r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:is killed by signal|exited unexpectedly)", WORKER),
    pattern("worker-crash", r"DataLoader timed out after|Pin memory thread exited unexpectedly", "The loader stopped responding"),
    pattern("worker-crash", r"Caught \w+ in DataLoader worker process|Traceback \(most recent call last\):\\n .{0,300}, in _worker_loop\b", "A loader process raised an exception"),
    pattern("worker-crash", r"subprocesses has abruptly died|BrokenProcessPool|terminated abruptly while", "A data preparation process died", topic="map-processes"),
    pattern("worker-crash", r"\bworkers? (?:process(?:es)? )?(?:are|is) no longer alive", "A background process died; its own error is above", bare=True, consequence=True),
    pattern("worker-crash", r"Too many open files|\[Errno 24\]|received 0 items of ancdata", FILES, topic="open-files"),
    pattern("worker-crash", r"Cannot re-initialize CUDA in forked subprocess", "A loader process used the GPU after a fork", topic="cuda-in-worker"),
    pattern("worker-crash", r"before the current process has finished its bootstrapping", "The script starts processes without `if __name__ == '__main__':`", topic="main-guard"),
    pattern("worker-crash", r"^(?:ConnectionResetError|BrokenPipeError|ConnectionRefusedError)", "A process of the training exited", "possible", consequence=True),
    pattern("worker-crash", r"Can't (?:get local|pickle) (?:local )?object|[Cc]an't pickle|cannot pickle", "An object cannot be pickled for the loader processes", "likely", topic="pickle"),
)  # fmt: skip
USAGE = (
    pattern("bad-arguments", r"^(?:\S+: )?error: (?:unrecognized arguments|the following arguments|argument |ambiguous option|invalid choice|one of the arguments|too few|expected)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"^(?:Error: |Got unexpected |│ ?)(?:No such (?:option|command)|Invalid value for|Missing (?:option|argument|parameter)|Got unexpected extra|unexpected extra)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"not used by the HfArgumentParser|Some keys are not used", ARGUMENTS),
    pattern("bad-arguments", r"(?<!\bforward\(\) got an )unexpected keyword argument '(?!fused)", SIGNATURE, topic="package-versions"),
    pattern("bad-arguments", r"^(?:Could not override|Error merging (?:override|'.{1,80}' with schema)|Key '.{1,80}' (?:is not in struct|not in ')|You must specify|Primary config .* not found|Could not load '|In '.{1,80}': Could not find)", ARGUMENTS, bare=True),
    pattern("bad-arguments", r"^(?:missing \w+ at '|mismatched input '|extraneous input '|no viable alternative at input '|token recognition error at: ')|^See https://hydra\.cc/\S+/override_grammar", "An override on the command line cannot be read", bare=True),
    pattern("bad-arguments", r"prefetch_factor.{0,60}(?:only be specified|can only be set)|persistent_workers option needs|num_workers option should", ARGUMENTS),
    pattern("bad-arguments", r"is not a valid \w+, please select one of|--?load_best_model_at_end requires|strategy \S+ requires|requires (?:either )?(?:a )?(?:non-zero|positive) |must be an integer", ARGUMENTS),
    pattern("bad-arguments", r"panicked at .{0,300}(?:NotFound|No such file)", NOT_FOUND, bare=True),
    pattern("bad-arguments", r"Check batch related parameters\. train_batch_size is not equal to", "DeepSpeed's batch sizes contradict each other", topic="deepspeed-batch"),
    pattern("bad-arguments", r"DeepSpeed (?:Zero-?3 )?is not compatible with|not compatible with `?(?:low_cpu_mem_usage|device_map)|can't train a model that has been loaded (?:with|in).{0,60}(?:device_map|distributed mode|different device)", "The model's device map does not work with this kind of training", topic="device-map"),
    pattern("bad-arguments", r"cannot perform fine-?tuning on purely quantized|is not supported for (?:`?[48]-bit`?|quantized model)|only supports? (?:training|fine-?tuning) .{0,40}adapters", "A quantized model can only be trained through adapters", topic="quantized-base"),
    pattern("bad-arguments", r"uniform `?requires_grad", "FSDP wraps trained and frozen weights in one module", topic="fsdp-requires-grad"),
    pattern("bad-arguments", r"trust_remote_code=True|requires you to execute the (?:configuration|modeling|tokenizer|dataset)\S* (?:file|script)", "The model or dataset needs trust_remote_code", topic="remote-code"),
    pattern("bad-arguments", r"Dataset scripts are no longer supported", "The dataset is a script, which this release of datasets does not support", topic="dataset-script"),
    pattern("bad-arguments", r"chat_template is not set|no (?:chat )?template argument was passed", "The tokenizer has no chat template", topic="chat-template"),
    pattern("bad-arguments", r"you didn't pass an `?eval_dataset|requires an? (?:eval|train)_dataset|max_steps has to be specified|cannot instantiate unsupported optimizer|Got warmup_steps", ARGUMENTS),
    pattern("bad-arguments", r"(?:yaml|omegaconf)\.\w*\.?\w*(?:Error|Exception)|JSONDecodeError|TOMLDecodeError|ParserError|ScannerError", "A configuration file cannot be read"),
    pattern("bad-arguments", r"pydantic\S*ValidationError|validation errors? for \w+|jsonargparse|ArgumentError|BadParameter|UsageError|MissingParameter", ARGUMENTS),
    pattern("bad-arguments", r"can't open file '.{1,300}': \[Errno 2\]|: (?:command )?not found$|: No such file or directory$", "The command or its script does not exist", bare=False),
    pattern("bad-arguments", r"^\S*python\S*: can't open file|^(?:/bin/)?(?:ba|z|da)?sh: (?:line )?(?:\d+: )?\S+: (?:command )?not found", "The command or its script does not exist", bare=True),
    pattern("bad-arguments", r"not a local folder and is not a valid model identifier|does not appear to have a file named|[Rr]epository Not Found|RepositoryNotFoundError|EntryNotFoundError|RevisionNotFoundError|HFValidationError", NOT_FOUND, topic="hub-name"),
    pattern("bad-arguments", r"DatasetNotFoundError|doesn't exist on the Hub|Couldn't find (?:a dataset script|any data file)|Unable to find '|[Uu]nrecognized configuration|BuilderConfig .* not found|Unknown split", NOT_FOUND, topic="hub-name"),
    pattern("bad-arguments", r"FileNotFoundError|NotADirectoryError|IsADirectoryError", NOT_FOUND, "likely"),
    pattern("gpu-software", r"Torch not compiled with CUDA enabled|[Dd]evice type=?'?cuda'? .{0,60}not available|Unable to proceed, no GPU resources available", "This torch build or this machine has no CUDA", topic="torch-cpu"),
    pattern("bad-arguments", r"invalid device ordinal|device >= 0 && device < num_gpus|Invalid device id|Duplicate GPU detected|ncclInvalidUsage|No CUDA GPUs are available|No supported gpu backend found|machine only has: \[|Invalid device string|No slot '\d+' specified on host", "The requested GPUs do not exist here", topic="visible-devices"),
    pattern("bad-arguments", r"Target modules .{1,200} not found in the base model", "The adapter's target modules do not exist in this model", topic="target-modules"),
    pattern("bad-arguments", r"Target modules? .{1,300} (?:is|are) not supported", "The adapter does not support this kind of layer", topic="layer-kind"),
    pattern("bad-arguments", r"Cannot copy out of meta tensor|\b(?:is|are) on (?:the )?meta device", "Some weights are still on the meta device: they were offloaded or never loaded", topic="device-map"),
    pattern("program-error", r"Caught StopIteration in replica", "torch.nn.DataParallel does not work with this model", topic="data-parallel"),
    pattern("bad-arguments", r"does not have a pad(?:ding)? token|no padding token is defined|pad token (?:is )?not (?:set|defined|configured)|tokenizer is not configured with a padding token", "The tokenizer has no padding token", topic="pad-token"),
    pattern("bad-arguments", r"activate truncation and/or padding", COLUMNS, topic="columns"),
    pattern("bad-arguments", r"Target -?\d+ is out of bounds|index out of range in self|label_?ids? out of range", LIMITS, "likely", topic="indexes"),
    pattern("program-error", r"Expected input batch_size|Found input variables with inconsistent numbers", SHAPES, "likely", topic="shapes"),
    pattern("bad-arguments", r"\b(?:is|are) not (?:evenly )?(?:divisible by|a multiple of)|\b(?:should|must|needs? to|has to|have to) be (?:evenly )?(?:divisible by|(?:a )?multiples? of)", "Two sizes do not divide evenly", "likely", topic="divisible"),
    pattern("bad-arguments", REFUSED + r"(?!.*\b(?:dtype|tensors?|Half|BFloat16|[Cc]ompute capability)\b).{0,300}(?:\b(?:incompatible|not compatible|cannot be (?:used|combined|enabled) (?:together )?|not (?:currently |yet )?supported|(?:does not|doesn't) (?:work|support .{1,60})) (?:with|when|if|in combination)\b|\b(?:[Cc]an't|[Cc]annot) (?:use|load|set|combine|enable) .{1,80} (?:with|if|when|together)\b|mutually exclusive)", TOGETHER, "likely", topic="together"),
    pattern("bad-arguments", REFUSED + r".{0,200}\b(?:[Uu]nknown|[Uu]nsupported|[Ii]nvalid|[Uu]nrecognized) (?:\w+ )?(?:argument|option|optimizer|scheduler|strategy|template|backend|split|choice|mode|method|config\w*|stage|trainer|task|loss type)s?\b", ARGUMENTS, "likely"),
    pattern("bad-arguments", r"\b\w*[Cc]onfig\w*(?:Error|Exception)\b|MissingMandatoryValue|OverrideParseException|UnsupportedInterpolationType", CONFIGURATION),
)  # fmt: skip
CODE = (
    pattern("program-error", r"[Ee]xpected all tensors to be on the same device|should be on the same device|Input type \(torch\.(?:cuda\.)?\w+Tensor\) and weight type \(torch\.(?:cuda\.)?\w+Tensor\)|Placeholder storage has not been allocated on MPS device|module must have its parameters and buffers on device", DEVICES, bare=True, topic="devices"),
    pattern("program-error", r"does not require grad and does not have a grad_fn|No inf checks were recorded|None of the inputs have requires_grad=True|optimizer got an empty parameter list", "The loss does not depend on any trained parameter", topic="no-gradient"),
    pattern("program-error", r"Expected to have finished reduction in the prior iteration|mark(?:ed)? (?:as )?(?:a )?(?:variable )?ready (?:twice|only once)|INTERNAL ASSERT FAILED.{0,80}reducer\.cpp", "DistributedDataParallel waits for gradients that never arrive, or arrive twice", topic="unused-parameters"),
    pattern("program-error", r"parameters in the parameter fetch queue|'status': 'NOT_AVAILABLE'", "DeepSpeed ZeRO-3 met other modules, or another order, than in the step before", topic="zero3-order"),
    pattern("program-error", r"torch\.utils\.checkpoint\S*: (?:torch\.utils\.checkpoint: )?(?:Recomputed values|A different number of tensors)", "With checkpointing the backward pass computed something else than the forward pass", topic="recomputed"),
    pattern("program-error", r"backward through the graph a second time|modified by an inplace operation|leaf Variable that requires grad", "The graph of the step was modified or used twice", topic="graph"),
    pattern("program-error", r"shapes cannot be multiplied|\b(?:[Ss]izes?|[Ss]hapes?|[Dd]imensions?)\b.{0,60}\b(?:must|should|does not|do not|doesn't|don't) (?:be equal|be the same|match|agree)|shape mismatch|stack expects each tensor to be equal size|shape '\[.{0,60}\]' is invalid for input|[Tt]arget size \(.{0,80}input size|Expected target size", SHAPES, topic="shapes"),
    pattern("program-error", r"did not return a loss from the inputs|No columns in the dataset match|Unable to create tensor, you should probably|too many dimensions 'str'|[Tt]ext input must (?:be )?of type|is out of bounds for size 0\b|\b(?:has|have|need|must)(?: to)? (?:specify|provide|pass|be given) (?:either |exactly one of |one of )?`?(?:text|input_ids|inputs_embeds|decoder_input_ids|pixel_values|input_features|input_values)\b|\bforward\(\) (?:got an unexpected keyword|missing \d+ required)", COLUMNS, topic="columns"),
    pattern("program-error", r"^KeyError: '(?:labels?|text|input_ids|attention_mask|prompt|completion|messages|conversations|instruction|output|response|question|answer|sentence|image|audio|chosen|rejected)'|Column\(?s?\)? .{0,120}(?:not in|doesn't exist|not found|to remove)", COLUMNS, "likely", topic="columns"),
    pattern("program-error", r"offset overflow while concatenating|[Oo]verflow in the <class 'pyarrow", "One piece of the dataset is larger than the 2 GiB that its Arrow type can hold", topic="arrow-size"),
    pattern("program-error", r"DatasetGeneration(?:Cast)?Error|CastError|ArrowInvalid|ArrowTypeError|JSON parse error|Error tokenizing data|Couldn't cast array of type", DATA_FILE, topic="data-file"),
    pattern("program-error", r"'(?:\w*DataParallel|\w*DeepSpeedEngine|OptimizedModule|DDP|FSDP)' object has no attribute", "The program asks the wrapper around the model for something that only the model has", topic="wrapped-model"),
    pattern("program-error", r"num_samples should be a positive integer|num_samples=0|DataLoader .{0,60}(?:is empty|zero length)|empty dataset|There seems(?: to be)? not (?:to be )?a single sample", "The dataset has no samples", topic="no-samples"),
    pattern("bad-arguments", r"PermissionError|\[Errno 13\]|Permission denied", "No permission to read or write a file or folder", "likely", topic="permission"),
)  # fmt: skip

NAN = "A value became nan or infinite"
DTYPE = "One operation got tensors of different dtypes"
UNSUPPORTED = "This precision is not supported here"
NOT_IMPLEMENTED = "This operation does not support this precision on this device"
HALF = r"(?:Half|BFloat16|bfloat16|float16|c10::Half|c10::BFloat16|Float8\w*)"

NOT_FINITE = (
    pattern("nan", r"(?i)\bloss(?: value)?(?: is|:| was| became| =)? ?\(?(?:nan|inf)\b|\b(?:nan|inf(?:inite)?)(?:/nan|/inf)? (?:in )?(?:the )?(?:training )?loss", NAN),
    pattern("nan", r"(?i)non-?finite (?:loss|grad)|(?:loss|gradients?) (?:is|are|contains?) (?:not finite|non-?finite|nan)|nan (?:encountered|detected|found)", NAN),
    pattern("nan", r"(?i)\b(?:loss|gradients?)\b.{0,60} (?:is|are|was|became) (?:nan|inf)\b", NAN),
    pattern("nan", r"returned nan values in its \d+", NAN),
    pattern("nan", r"(?:inf`?, `?nan`?|either `inf`, `nan`) or element < 0", NAN),
    pattern("nan", r"[Cc]urrent loss scale already at minimum", f"{NAN}: the loss scaler found no working scale", bare=True),
    pattern("nan", r"reducing loss scale to (?:0\.0|\d\.?\d*e-3\d\d)\b", f"{NAN}: the loss scaler found no working scale", "likely", bare=True),
    pattern("nan", r"Minimum loss scale reached|loss scale .{0,40}(?:minimum|underflow)", f"{NAN}: the loss scaler found no working scale"),
    pattern("nan", r"Input (?:X |y )?contains NaN|contains (?:infinity|NaN) or", NAN, "likely"),
    pattern("nan", r"(?i)\[(?:ERROR|fatal)\].*loss is nan|^Loss is (?:nan|inf), stopping training", NAN, bare=True),
    pattern("nan", r"The total norm of order .{1,40} is non-finite|found NaN in (?:local )?grad", NAN),
    pattern("nan", r"non-finite values|NaN or Inf found|Detected (?:nan|NaN|inf)", NAN, "likely"),
)  # fmt: skip
PRECISION = (
    pattern("precision-unsupported", r"Your setup doesn't support (?:bf16|fp16|tf32)", UNSUPPORTED),
    pattern("precision-unsupported", r"(?:bf16|fp16|fp8) mixed precision (?:requires|with|training)|`?mixed_precision`?.{0,40}not supported", UNSUPPORTED),
    pattern("precision-unsupported", r"--tf32 requires Ampere|--(?:bf16|fp16)\b.{0,200}(?:requires|can only be used|only)", UNSUPPORTED),
    pattern("precision-unsupported", r"Mixed precision training with AMP or APEX.{0,200}CUDA devices", UNSUPPORTED),
    pattern("precision-unsupported", r"[Dd]evice does not support (?:bfloat16|bf16|float16)|[Bb]f(?:loat)?16 is (?:only|not) supported", UNSUPPORTED),
    pattern("precision-unsupported", r"[Tt]ype (?:bf16|fp16|bfloat16|float16|BFloat16) is not supported|BFloat16 (?:type )?is not supported on MPS", UNSUPPORTED),
    pattern("precision-unsupported", r"Cannot convert a MPS Tensor to (?:float64|bfloat16)|MPS framework doesn't support (?:float64|bfloat16)", UNSUPPORTED),
    pattern("precision-unsupported", r"only supported on CUDA devices with compute capability|[Rr]equires? compute capability (?:of )?(?:>=|at least)? ?(?:8|9|10)\b.{0,60}(?:fp8|bf16)?", UNSUPPORTED),
    pattern("precision-unsupported", r"Feature '\.?(?:bf16|e4m3|e5m2|f8)\S*'.{0,60}requires \.target|fp8\w* (?:not supported|data type is not supported)", UNSUPPORTED),
    pattern("precision-unsupported", r"Device compute capability [\d.]+ or higher required for FP8", UNSUPPORTED),
    pattern("precision-unsupported", r"type fp8\w+ not supported in this architecture", UNSUPPORTED),
    pattern("precision-unsupported", rf"\"[\w:<>, ]+\" not implemented for '{HALF}'", NOT_IMPLEMENTED),
    pattern("precision-unsupported", rf"not (?:implemented|supported) for (?:dtype )?'?(?:torch\.)?{HALF}", NOT_IMPLEMENTED),
    pattern("precision-unsupported", rf"expected (?:m1 and m2|scalar type|mat1 and mat2|object of scalar type)\b.{{0,60}}{HALF}", DTYPE),
    pattern("precision-unsupported", rf"must have the same dtype.{{0,60}}{HALF}|Input type \(.{{1,60}}\) and (?:weight|bias) type \(.{{1,60}}\) should be the same", DTYPE),
    pattern("precision-unsupported", r"uniform dtype|[Cc]annot flatten integer dtype tensors", "FSDP needs weights of one dtype in each wrapped module", topic="fsdp-dtype"),
    pattern("precision-unsupported", r"(?:must|should|expected to|to) (?:have|be of) (?:the )?same d?types?|[Ff]ound dtype \w+ but expected|must have the same type as|(?:dtype|type) mismatch|[Ee]xpected (?:tensor )?dtype|have (?:a )?different dtypes?|expected \w*(?:query, key|key, and value).{0,40}same dtype|(?:got|found) (?:torch\.)?(?:\w+) (?:!=|and) (?:c10::|torch\.)?(?:Half|BFloat16|float16|bfloat16)", DTYPE, "likely"),
    pattern("precision-unsupported", r"Attempting to unscale FP16 gradients", "The loss scaler got 16-bit weights; it needs fp32 weights"),
    pattern("precision-unsupported", r"At most one of fp16 and bf16 can be True", UNSUPPORTED),
    pattern("precision-unsupported", r"Index put requires the source and destination dtypes match.{0,60}(?:Half|BFloat16)", DTYPE),
)  # fmt: skip

FULL = "The disk is full"
WRITE = "A checkpoint could not be written"
CUT_OFF = "A checkpoint was only partly written: its disk is most likely full"
READ = "A checkpoint could not be read: incomplete, damaged, or from another model"

OPTIMIZER_STATE = "The optimizer state is missing, or belongs to another optimizer or other parameters"
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
    pattern("checkpoint-io", r"File \S.{0,400} cannot be opened|Error while serializing|Parent directory .{1,400} does not exist", WRITE),
    pattern("checkpoint-io", r"(?:contained|contains) shared tensors|[Ss]ome tensors share memory", "The model's weights share memory, which safetensors does not write", topic="shared-weights"),
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
    pattern("checkpoint-io", r"Error\(s\) in loading state_dict|[Ss]ize mismatch between saved|You set `?ignore_mismatched_sizes`? to `?False", OTHER_MODEL, topic="other-model"),
    pattern("checkpoint-io", r"^size mismatch for [\w.]+: copying a param", OTHER_MODEL, bare=True, topic="other-model"),
    pattern("checkpoint-io", r"loaded state dict (?:has|contains) a (?:different number|parameter group)|_OptimStateKey.{0,4000}is empty", OPTIMIZER_STATE, topic="other-optimizer"),
    pattern("checkpoint-io", r"Attempting to deserialize object on (?:a CUDA|CUDA) device", "The checkpoint was saved on a device that this machine does not have", topic="map-location"),
    pattern("checkpoint-io", r"Can't find a valid checkpoint at|No valid checkpoint found in output directory", READ),
    pattern("checkpoint-io", r"^KeyError: '(?:\w*optimizer\w*|\w*state_dict|lr_scheduler\w*|rng_\w+|param_groups)'", OPTIMIZER_STATE, "possible", topic="other-optimizer"),
    pattern("checkpoint-io", r"CheckpointException|(?<!torch\.utils\.checkpoint\.)\bCheckpointError|Unable to load .{1,80} from checkpoint|checkpoint.{0,80}(?:FileNotFoundError|No such file)", READ),
    pattern("checkpoint-io", r"No such file or directory: .{0,400}(?:checkpoint-\d+|trainer_state\.json|optimizer\.pt|rng_state)", READ),
    pattern("checkpoint-io", r"The checkpoint being loaded used a DP world size of", "The checkpoint was saved with a different number of processes", topic="other-world"),
    pattern("checkpoint-io", r"DataLossError|storage has wrong (?:byte )?size|unexpected EOF, expected \d+ more bytes|The file might be corrupted", READ),
)  # fmt: skip
