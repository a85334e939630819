"""Guesses the number of epochs or steps of a plain loop, by its `for` statements and the names of its variables.

Looked up once, at the first optimizer step, in the functions that lead to it: the loops around the step that count with
`range`, and a local or global variable, or an attribute of a settings object, such as `num_epochs` or `args.max_steps`.
"""

from __future__ import annotations

import ast
import linecache
import math
import operator
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

EPOCH_NAMES = frozenset(
    {"epochs", "numepochs", "nepochs", "nepoch", "numepoch", "maxepochs", "maxepoch", "totalepochs", "totalepoch",
     "trainepochs", "trainingepochs", "numtrainepochs", "epochnum", "nbepochs"}
)  # fmt: skip
STEP_NAMES = frozenset(
    {"maxiters", "maxiter", "maxsteps", "maxtrainsteps", "numiters", "numiterations", "niters", "iterations",
     "totaliters", "totaliterations", "numtrainingsteps", "numtrainsteps", "maxiterations", "trainiters", "trainsteps"}
)  # fmt: skip
MEMBER_EPOCH_NAMES = frozenset({"epoch"})
"""Names of a number of epochs among settings and constants; as a variable it is the epoch that runs."""
START_NAMES = frozenset({"startepoch", "startingepoch", "resumeepoch", "firstepoch"})
OWNERS = frozenset(
    {"args", "arguments", "opt", "opts", "options", "config", "cfg", "conf", "hparams", "hps", "params", "flags",
     "self", "hyperparameters", "settings", "hp"}
)  # fmt: skip
MAX_FRAMES = 30
MAX_LENGTH = 10**9
LIBRARIES = (os.path.dirname(os.__file__) + os.sep, os.sep + "site-packages" + os.sep,
             os.sep + "dist-packages" + os.sep, "_tuner_observer", "<")  # fmt: skip
"""Parts of the paths of code that is not the script's. A forked process has the frames of its parent, whose loop over
the ranks is told from the training's loops by the standard library's frames in between."""


# The loops around the step are parsed from the source, because the bounds of `range` are in no variable. Expressions
# are evaluated by hand from names, attributes, items and lengths: calling the script's functions might have side
# effects.
def planned_length(frame: FrameType | None) -> dict[str, int]:
    """`epochs`, `steps` and `start`, the first epoch, as far as functions from `frame` outwards say them.

    What the loops say is preferred to names.
    """
    length = _named_length(frame)
    counts = _loop_counts(frame)
    if not counts:
        return length
    inner, outer = counts[0], [count for count in counts[1:] if count is not None]
    if len(outer) < len(counts) - 1:  # the length of a loop around the epochs is not known
        length.pop("epochs", None)
    elif inner is not None:
        steps = math.prod([inner, *outer])
        length.update({"steps": steps} if 0 < steps < MAX_LENGTH else {})
    elif outer:
        length.pop("start", None)
        length["epochs"] = math.prod(outer)
    return length


def _loop_counts(frame: FrameType | None) -> list[int | None]:
    """How often each loop around the step runs, the innermost first; None for one that does not count.

    Loops of a library that calls the script are not seen, those outside it neither.
    """
    counts: list[int | None] = []
    inside = False
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if any(part in frame.f_code.co_filename for part in LIBRARIES):
            if inside:
                break
        else:
            inside = True
            counts += _counts_in(frame)
        frame = frame.f_back
    return counts


def _counts_in(frame: FrameType) -> list[int | None]:
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    first, line = frame.f_code.co_firstlineno, frame.f_lineno
    counts: list[int | None] = []
    for node in ast.walk(ast.parse(source)):  # outer statements come first
        if not isinstance(node, (ast.For, ast.While, ast.If)) or not first <= node.lineno:
            continue
        if not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            continue
        if isinstance(node, ast.If):
            # `if i % n == 0: optimizer.step()`: the loop counts batches or environment steps, not optimizer steps.
            skips = any(isinstance(each, ast.Mod) for each in ast.walk(node.test))
            counts[-1:] = [None] if skips and counts else counts[-1:]  # a step in some of the iterations
        elif isinstance(node, ast.While):
            counts.append(_counted_while(node, frame))
        elif not _lists_phases(node.iter, frame):
            counts.append(_count(node.iter, frame))
    return counts[::-1]


def _counted_while(node: ast.While, frame: FrameType) -> int | None:
    """The iterations of `while epoch < epochs:` whose body itself counts with `epoch += 1`, None of another loop."""
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Lt, ast.LtE)) or len(test.ops) > 1:
        return None
    counts = any(
        isinstance(each, ast.AugAssign) and ast.dump(each.value) == ONE and _same(each.target, test.left)
        for each in node.body
    )
    first, end = _value(test.left, frame), _value(test.comparators[0], frame)
    if not counts or type(first) is not int or type(end) is not int:
        return None
    return max(0, end - first + isinstance(test.ops[0], ast.LtE))


def _same(stored: ast.expr, loaded: ast.expr) -> bool:
    return ast.dump(stored).replace("Store()", "Load()") == ast.dump(loaded)


def _lists_phases(node: ast.expr, frame: FrameType) -> bool:
    """Whether a loop is over such as `["train", "val"]`, of which one trains."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return True
    value = _value(node, frame)
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _count(node: ast.expr, frame: FrameType) -> int | None:
    """The iterations over `range(…)` or data in memory, also if it is passed through a function that shows progress."""
    if isinstance(node, ast.Call):
        name = _name(node)
        if name == "zip":
            counts = [_count(each, frame) for each in node.args]
            return min((each for each in counts if each is not None), default=None) if None not in counts else None
        if name not in ("range", "trange"):
            passes = name in WRAPPERS or "tqdm" in name
            return _count(node.args[0], frame) if passes and node.args else None
        bounds = [_value(each, frame) for each in node.args]
        whole = [int(each) for each in bounds if isinstance(each, (int, float)) and each == each // 1]
        return len(range(*whole)) if 0 < len(whole) == len(bounds) and 0 not in whole[2:] else None
    return _length(_value(node, frame))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _length(value: Any) -> int | None:
    """The length of data in memory or of a loader that the script defines, as a progress bar would ask for it.

    A DataLoader of torch is not asked: its batches are counted, and its length may depend on settings to inject.
    """
    if "tqdm" in type(value).__name__:
        return _length(value.__dict__.get("iterable"))
    if getattr(value, "shape", None) == () or any(each.__name__ == "DataLoader" for each in type(value).__mro__):
        return None
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - code of the script
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression, None unless it is computed without side effects."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        value = getattr(owner, "__dict__", {}).get(node.attr)
        return _item(owner, node.attr) if value is None else value
    if isinstance(node, ast.Subscript):
        return _item(_value(node.value, frame), _value(node.slice, frame))
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        value = _value(node.args[0], frame)
        if _name(node) == "int":
            return int(value) if isinstance(value, (int, float)) else None
        sized = (
            node.func.value if _name(node) == "size" and value == 0 and isinstance(node.func, ast.Attribute) else None
        )
        return _length(value) if _name(node) == "len" else None if sized is None else _length(_value(sized, frame))
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, frame), _value(node.right, frame)
        compute = OPERATIONS.get(type(node.op))
        if compute is not None and type(left) in (int, float) and type(right) in (int, float):
            return compute(left, right) if right or compute not in (operator.floordiv, operator.truediv) else None
    return None


def _item(owner: Any, key: Any) -> Any:
    """A named member of settings, whose attributes may be its items as in `wandb.config` and OmegaConf."""
    return owner.get(key) if _has_items(owner) and isinstance(key, str) else None


def _has_items(owner: Any) -> bool:
    """Whether this is a mapping, or behaves like one without being derived from it."""
    return all(hasattr(type(owner), name) for name in ("keys", "items", "get", "__getitem__"))


WRAPPERS = frozenset({"enumerate", "list", "reversed", "progress_bar", "master_bar", "track"})
ONE = ast.dump(ast.Constant(1))
OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip


def _named_length(frame: FrameType | None) -> dict[str, int]:
    """`epochs`, `steps` and `start`, as far as functions from `frame` outwards name them."""
    length: dict[str, int] = {}
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if not any(part in frame.f_code.co_filename for part in LIBRARIES):
            for name, value, is_setting in _named_values(frame):
                _add(length, name, value, is_setting)
        frame = frame.f_back
    return length


def _named_values(frame: FrameType) -> Iterator[tuple[str, Any, bool]]:
    """Names and values, and whether each is a member of settings or a constant."""
    for variables in (frame.f_locals, frame.f_globals):
        for name, value in list(variables.items()):
            yield name, value, name.isupper()
            if name.strip("_").lower() in OWNERS:
                yield from ((member, each, name != "self") for member, each in _members(value))


def _members(owner: Any) -> Iterator[tuple[str, Any]]:
    members: Mapping[Any, Any] = owner if _has_items(owner) else getattr(owner, "__dict__", {})
    for name, value in list(members.items()):
        if not isinstance(name, str):
            continue
        yield name, value
        if name in ("config", "args", "cfg", "hparams", "opt") and hasattr(value, "__dict__"):
            yield from [each for each in list(vars(value).items()) if isinstance(each[0], str)]


def _add(length: dict[str, int], name: str, value: Any, is_setting: bool) -> None:
    if type(value) not in (int, float) or value != value or not 0 < value < MAX_LENGTH or value != int(value):
        return
    plain = name.replace("_", "").lower()
    epochs = EPOCH_NAMES | MEMBER_EPOCH_NAMES if is_setting else EPOCH_NAMES
    kinds = (("epochs", epochs), ("steps", STEP_NAMES), ("start", START_NAMES))
    for kind, names in kinds:
        if plain in names:
            length.setdefault(kind, int(value))
