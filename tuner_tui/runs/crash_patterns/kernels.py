"""Attention, fused optimizers, compilers: what was asked for does not run on this box or in this version."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.crash_patterns.pattern import form

ATTENTION = "This attention implementation does not run here"
FUSED = "The fused optimizer does not run here"
COMPILE = "Compilation failed"
FLASH = r"(?:Flash ?Attention[\w .-]{0,12}|flash_attn\w*|`?flash_attention_\d`?)"

ATTENTION_FORMS = (
    form("attention-unsupported", rf"{FLASH}\s*(?:only supports?|forward only|backward for head dim|requires compute capability|is not (?:available|supported) on)", ATTENTION),
    form("attention-unsupported", rf"does not support (?:an attention implementation|{FLASH})", ATTENTION),
    form("attention-unsupported", r"is not a valid attention implementation|possible arguments are `?attn_implementation", ATTENTION),
    form("attention-unsupported", r"No available kernel\.? ?Aborting execution|No viable backend for scaled_dot_product_attention", ATTENTION),
    form("attention-unsupported", r"No operator found for `?memory_efficient_attention", ATTENTION),
    form("attention-unsupported", rf"You are attempting to use {FLASH}|{FLASH}.{{0,40}}(?:Ampere|Hopper|Turing) GPUs", ATTENTION),
    form("attention-unsupported", r"(?i)flex[_ ]?attention.{0,120}(?:not supported|only supported|requires|unsupported)", ATTENTION),
    form("attention-unsupported", r"Requested Flash Attention \d which is not supported", ATTENTION),
)  # fmt: skip
FUSED_FORMS = (
    form("fused-unsupported", r"`?fused(?:=True)?`? (?:requires|does not support|and `?foreach)", FUSED),
    form("fused-unsupported", r"FusedAdam\w*.{0,80}(?:requires cuda|not (?:available|supported|implemented))|fused.{0,40}not supported", FUSED),
    form("fused-unsupported", r"unexpected keyword argument 'fused'", f"{FUSED}: torch is too old for it"),
    form("fused-unsupported", r"adamw_torch_fused.{0,80}(?:requires|is not a valid|not found|not supported)|'?adamw_torch_fused'? is not", FUSED),
    form("fused-unsupported", r"'aten::_fused_(?:adam|adamw|sgd|adagrad)_", FUSED),
    form("fused-unsupported", r"Optimizer not found: adamw_torch_fused|[Uu]nknown optimizer:? '?adamw_torch_fused", FUSED),
)  # fmt: skip
COMPILE_FORMS = (
    form("compile-failed", r"torch\._(?:dynamo|inductor|functorch)\.\S*(?:exc\.|Error)|BackendCompilerFailed|InductorError|LoweringException", COMPILE),
    form("compile-failed", r"TritonMissing|Cannot find a working triton|triton\.(?:compiler|runtime)\.\S*Error|PTXASError|Internal Triton PTX codegen", COMPILE),
    form("compile-failed", r"C\+\+ compile error|CppCompileError|No working C\+\+ compiler|[Ff]ailed to find C compiler|InvalidCxxCompiler", f"{COMPILE}: no working compiler"),
    form("compile-failed", r"[Dd]ynamo (?:is )?not supported on|not yet supported for torch\.compile|too old to be supported by the triton", f"{COMPILE}: not supported here"),
    form("compile-failed", r"CompilationError: |RecompileLimit|FailOnRecompileLimitHit|recompile_limit reached", COMPILE),
    form("compile-failed", r"CalledProcessError: Command .{0,400}(?:/gcc|/cc|/g\+\+|clang|ptxas|nvcc|ninja)\b", COMPILE),
    form("compile-failed", r"Error building extension|Error compiling objects for extension|Ninja is required to load C\+\+ extensions", "A C++/CUDA extension did not compile"),
    form("compile-failed", r"does not match the version torch was compiled with|CUDA_HOME (?:environment variable is not set|does not exist)", "A CUDA extension cannot be compiled"),
    form("compile-failed", r"accessing tensor output of CUDAGraphs that has been overwritten|CUDAGraph|cudagraph", COMPILE, "likely"),
    form("compile-failed", r"Detected that you are using FX to (?:symbolically )?trace a dynamo", COMPILE),
)  # fmt: skip
PATTERNS = (*ATTENTION_FORMS, *FUSED_FORMS, *COMPILE_FORMS)
