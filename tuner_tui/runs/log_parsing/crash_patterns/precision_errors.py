"""Values that are not finite, and precisions that the hardware or the library does not support."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

NAN = "A value became nan or infinite"
DTYPE = "One operation got tensors of different dtypes"
UNSUPPORTED = "This precision is not supported here"
NOT_IMPLEMENTED = "This operation does not support this precision on this device"
HALF = r"(?:Half|BFloat16|bfloat16|float16|c10::Half|c10::BFloat16|Float8\w*)"

NOT_FINITE = (
    pattern("nan", r"(?i)\bloss(?: value)?(?: is|:| was| became| =)? ?\(?(?:nan|inf)\b|\b(?:nan|inf(?:inite)?)(?:/nan|/inf)? (?:in )?(?:the )?(?:training )?loss", NAN),
    pattern("nan", r"(?i)non-?finite (?:loss|grad)|(?:loss|gradients?) (?:is|are|contains?) (?:not finite|non-?finite|nan)|nan (?:encountered|detected|found)", NAN),
    pattern("nan", r"returned nan values in its \d+", NAN),
    pattern("nan", r"(?:inf`?, `?nan`?|either `inf`, `nan`) or element < 0", NAN),
    pattern("nan", r"[Cc]urrent loss scale already at minimum|Minimum loss scale reached|loss scale .{0,40}(?:minimum|underflow)", f"{NAN}: the loss scaler found no working scale"),
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
    pattern("precision-unsupported", r"Must flatten tensors with uniform dtype|[Cc]annot flatten integer dtype tensors", "FSDP needs weights of one dtype in each wrapped module", topic="fsdp-dtype"),
    pattern("precision-unsupported", r"(?:must|should|expected to) (?:have|be of) the same d?type|must have the same type as|(?:dtype|type) mismatch|[Ee]xpected (?:tensor )?dtype|have (?:a )?different dtypes?|expected \w*(?:query, key|key, and value).{0,40}same dtype|(?:got|found) (?:torch\.)?(?:\w+) (?:!=|and) (?:c10::|torch\.)?(?:Half|BFloat16|float16|bfloat16)", DTYPE, "likely"),
    pattern("precision-unsupported", r"Attempting to unscale FP16 gradients|No inf checks were recorded", "The loss scaler got 16-bit weights; it needs fp32 weights"),
    pattern("precision-unsupported", r"At most one of fp16 and bf16 can be True", UNSUPPORTED),
    pattern("precision-unsupported", r"Index put requires the source and destination dtypes match.{0,60}(?:Half|BFloat16)", DTYPE),
)  # fmt: skip
