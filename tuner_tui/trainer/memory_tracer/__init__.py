"""Traces the peak memory of a training step on fake tensors. What needs no torch is said before its import."""

from __future__ import annotations

import gc
import warnings
from typing import Any

from ..job_file import JobError, find_config_problem, first_line, go_offline_if_unreachable, needs_hub


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """What was traced; `answers` in the order of the request's `requests`, if it has several."""
    warnings.simplefilter("ignore")
    gc.disable()  # until all is imported: looking through that takes a quarter of the time
    evaluations: dict[str, Any] = {}
    if "requests" in request:
        return {"answers": [trace_or_problem(part, evaluations) for part in request["requests"]]}
    return trace_or_problem(request, evaluations)


def trace_or_problem(request: dict[str, Any], evaluations: dict[str, Any]) -> dict[str, Any]:
    """What was traced, or `{"problem": sentence}`. `evaluations` are those traced before, for requests alike."""
    if request.get("config") is None and needs_hub({"model": request["job"]["model"]}):
        go_offline_if_unreachable()
        if (problem := find_config_problem(request["job"]["model"])) is not None:
            return {"problem": problem}
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    from .tracer import trace_memory

    try:
        return trace_memory(request, evaluations)
    except JobError as error:
        return {"problem": str(error)}
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return {"problem": f"the model's code depends on values of the data, which a trace does not have ({error})"}
    except Exception as error:  # noqa: BLE001  whatever a model's own code raises on fake tensors is the answer
        if "Unrecognized configuration class" in str(error):
            return {"problem": f"Transformers has no class of this architecture for {request['job']['task']}"}
        return {"problem": f"{type(error).__name__}: {first_line(error)}"}
