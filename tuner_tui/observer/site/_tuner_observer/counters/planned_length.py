"""Guesses the number of epochs or steps of a plain loop, by its loops and the names of its variables.

Looked up once, at the first optimizer step, in the functions that lead to it: the loops around the step that count,
what breaks out of them, and a local or global variable, or an attribute of a settings object, such as `num_epochs` or
`args.max_steps`. About once a second the variables that count are read again: not every iteration makes one step.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..names import NAMES

MAX_FRAMES = 30
MAX_LENGTH = 10**9
LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
ENGINES = {"ignite.engine.engine": ("self.state.epoch", "self.state.max_epochs")}
"""Libraries that call the script's step, by their module: the epoch that runs and the number of epochs."""
MIN_CHANGES = 10
"""Where an iteration makes several steps, so many have to be seen before a total is told from them."""


class Counter(NamedTuple):
    """A variable of the script that counts the iterations of a loop: `first`, and `stride` more in each."""

    code: CodeType
    expression: ast.expr
    first: int
    stride: int = 1


class Loop(NamedTuple):
    """A loop around the step. `iterations` is how often it runs, None if that is not known.

    `kind` says of such a loop whether it is one of `data`, of an `engine`, or ends when its condition says so, like an
    `episode` of reinforcement learning. `may_stop`: something that is not understood may end it earlier.
    """

    iterations: int | None
    counter: Counter | None = None
    kind: str = "data"
    may_stop: bool = False


EPISODE = Loop(None, kind="episode")


class Limit:
    """A position in nested loops, the innermost first, that ends the training when it is at `last`.

    Steps are computed from positions by the steps and the positions so far. `steady`: each iteration counts.
    `by_rollouts`: the position grows before the steps of an iteration, by a rollout, and the last one is made whole.
    """

    def __init__(self, loops: list[Loop], last: int, steady: bool = True, by_rollouts: bool = False) -> None:
        self._loops = loops
        self._last = last
        self._steady = steady
        self._by_rollouts = by_rollouts
        self._began: tuple[int, int] | None = None
        self._now = self._changed = (0, 0)
        self._changes = self._rollout = 0
        self._fewest, self._most = 1, MAX_LENGTH  # steps after each rollout
        self._makes_several = False

    @property
    def is_local(self) -> bool:
        """Whether the position is a variable of a function."""
        counter = self._loops[0].counter
        return counter is not None and getattr(counter.expression, "id", None) in counter.code.co_varnames

    def follow(self, frames: Mapping[CodeType, FrameType], steps: int, ahead: int) -> None:
        """Note the position after so many steps, of which the variables are `ahead`."""
        position, size = 0, 1
        for iterations, counter, *_ in self._loops:
            frame = None if counter is None else frames.get(counter.code)
            value = None if counter is None or frame is None else _value(counter.expression, frame)
            if counter is None or type(value) is not int:
                return
            position += size * ((value - counter.first) // counter.stride)
            size *= iterations or 1
        position -= ahead
        if self._began is None:
            self._began = self._changed = position, steps
        elif position != self._now[0]:
            self._changes += 1
            rollout = math.gcd(self._rollout, position - self._now[0])
            if rollout != self._rollout:  # what was computed with several as one does not count
                self._rollout, self._fewest, self._most = rollout, 1, MAX_LENGTH
            self._changed = position, steps
        self._makes_several = self._makes_several or steps > self._changed[1] + 1
        self._now = position, steps
        if self._by_rollouts and self._rollout:
            rollouts = (position - self._began[0]) // self._rollout
            self._fewest = max(self._fewest, -(-steps // (rollouts + 1)))
            self._most = min(self._most, (steps - 1) // rollouts)

    def total(self) -> int | None:
        """The steps of the whole training, None while they are not known."""
        if self._began is None:
            return None
        (first, first_steps), (position, steps) = self._began, self._now
        if position == first and steps == first_steps and first == 0 and self._steady:
            return steps + self._last - position
        if position <= first or steps <= first_steps:
            return None
        if self._rollout > 1 and self._fewest == self._most:
            return self._most * (math.ceil((self._last - first) / self._rollout) + 1)
        if steps - first_steps > 1.5 * (position - first) or self._makes_several:
            # Several steps in an iteration: their number is that from one change of the position to another.
            if self._changes < MIN_CHANGES:
                return None
            position, steps = self._changed
        rate = (steps - first_steps) / (position - first)
        # Down, as the last iterations make no step unless it is their turn; a little more for what is no exact number.
        return max(self._now[1], int(steps + (self._last - position) * rate + 1e-6))


class PlannedLength:
    """What the loops around the first step and the names of variables say of the length of a training.

    `epochs` is how often the innermost loop runs where it is over data of unknown length, or the named number;
    `iterations` is how often the step is passed where all loops count, and `inner` how often in one run of the
    innermost. `steps` is a named number of steps, `start` the named first epoch; 0 unless `epochs` is named.
    `is_episodic`: how often the innermost loop runs is told only by what happens in it.
    """

    def __init__(self, frame: FrameType | None) -> None:
        names = _named_length(frame)
        self.epochs, self.steps, self.start = names.get("epochs"), names.get("steps"), names.get("start", 0)
        self.iterations: int | None = None
        self.inner: int | None = None
        self.outer: int | None = None
        self.has_loops = self.is_episodic = self._breaks = self._ends_by_break = False
        self._limits: list[Limit] = []
        self._nest: Limit | None = None
        self._read_loops(frame)

    def _read_loops(self, frame: FrameType | None) -> None:
        finder = _LoopFinder(frame, self.epochs)
        loops, self._limits, self._breaks = finder.loops, finder.limits, finder.breaks
        if not loops:
            return
        if self.steps in [each.iterations for each in loops[:-1]]:
            self.steps = None  # of an episode
        # The early end of the outermost loop ends the training; another one begins again, and may end early again.
        loops[:-1] = [EPISODE if each.may_stop and each.iterations is not None else each for each in loops[:-1]]
        self.is_episodic = len(loops) > 1 and loops[0] is EPISODE
        self._ends_by_break = [loop.kind for loop in loops] == ["episode"]  # `while True:` without data
        outer = [loop.iterations for loop in loops[1:] if loop.iterations is not None]
        if len(outer) < len(loops) - 1:  # the length of a loop around the epochs is not known
            self.epochs = None
            return
        self.inner, inner = loops[0].iterations, "counted"
        if self.inner is not None:
            iterations = math.prod([self.inner, *outer])
            self.iterations = iterations if 0 < iterations < MAX_LENGTH else None
            self.outer, self.has_loops = math.prod(outer), True
        elif outer:
            self.epochs = self.outer = math.prod(outer)
            self.start, self.has_loops = 0, True
            inner, loops = loops[0].kind, loops[1:]
        if loops and all(loop.counter is not None for loop in loops) and self.has_loops and inner != "episode":
            last = math.prod([loop.iterations or 1 for loop in loops]) - 1
            self._nest = Limit(loops, last, steady=inner != "data")

    def follow(self, frame: FrameType | None, steps: int, ahead: int) -> None:
        """Read the variables that count, after so many steps, in the functions from `frame` outwards.

        `ahead` is 1 where the next iteration has begun, because that is what shows a step, else 0.
        """
        frames: dict[CodeType, FrameType] = {}
        while frame is not None:
            frames.setdefault(frame.f_code, frame)
            frame = frame.f_back
        for limit in (*self._limits, self._nest):
            if limit is not None:
                limit.follow(frames, steps, ahead)

    def total(self, batches: int | None, steps_an_epoch: float | None) -> int | None:
        """The steps of the training; None if they are not known.

        `batches` is the length of its loader, `steps_an_epoch` how many steps it made of that, as it was counted.
        """
        # A loop over the loader has as many steps as were counted in its epochs, whatever wraps the loader.
        over_loader = self.inner is None or self.inner == batches
        epochs = self.outer if over_loader and self.outer is not None else self.epochs
        remaining = None if epochs is None else epochs - self.start
        by_epochs = None
        if steps_an_epoch is not None and over_loader and remaining is not None and remaining > 0:
            by_epochs = round(remaining * steps_an_epoch)
        counted = [limit.total() for limit in self._limits]
        is_exact = self._ends_by_break and None not in counted
        if by_epochs is not None and self.has_loops:
            counted.append(by_epochs)
        elif self._nest is not None:
            counted.append(self._nest.total())
        else:
            counted.append(self.iterations)
        totals = [total for total in counted if total is not None]
        if totals:
            total = min(totals)
            if None in counted and not is_exact and self.steps is not None and self.steps < total:
                return self.steps  # by its name what a break compares with, which is not known yet
            return self.steps if self._breaks and self.steps == total - 1 else total
        if self.steps is None or by_epochs is None:
            return self.steps or by_epochs
        # Two names that disagree: one of them means something else.
        return self.steps if abs(self.steps - by_epochs) <= max(1, remaining or 1) else None


# The loops around the step are parsed from the source, because the bounds of `range` are in no variable. Expressions
# are evaluated by hand from names, attributes, items and lengths: calling the script's functions might have side
# effects.
class _LoopFinder:
    """Finds the `loops` around a step, the innermost first, and the `limits` at which a statement breaks out of them.

    `breaks`: there is a break that is not understood. A library's loops count if the step is made in it; those of one
    that calls the script are not seen, those outside it neither, except for `ENGINES`. `epochs` is a named number.
    """

    def __init__(self, innermost: FrameType | None, epochs: int | None) -> None:
        self.loops: list[Loop] = []
        self.limits: list[Limit] = []
        self.breaks = False
        self._epochs = epochs
        self._counted_inside: list[tuple[ast.expr, Any, bool]] = []
        self._around: list[ast.For | ast.While] = []
        in_script = False
        for frame in calling_frames(innermost, MAX_FRAMES):
            engine = ENGINES.get(frame.f_globals.get("__name__", ""))
            kind = kind_of_code(frame.f_code.co_filename)
            if engine is not None:
                self._read_engine(frame, *engine)
            if engine is not None or (in_script and kind != "script"):
                break
            in_script = kind == "script"
            if kind != "other":
                self._read(frame)

    def _read_engine(self, frame: FrameType, epoch: str, epochs: str) -> None:
        """A loop over batches of unknown number, in one over epochs."""
        counter, last = ast.parse(epoch, mode="eval").body, _value(ast.parse(epochs, mode="eval").body, frame)
        first = _value(counter, frame)
        if type(first) is int and type(last) is int:
            self.loops += [Loop(None, kind="engine"), Loop(last - first + 1, Counter(frame.f_code, counter, first))]

    def _read(self, frame: FrameType) -> None:
        source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
        first, line = frame.f_code.co_firstlineno, frame.f_lineno
        loops: list[Loop] = []
        self._around.clear()
        limits, self.limits = self.limits, []
        body: list[ast.stmt] = []
        for node in ast.walk(ast.parse(source)):  # outer statements come first
            if isinstance(node, ast.FunctionDef) and _includes(node, line):
                body = node.body
            if not isinstance(node, (ast.For, ast.While, ast.If)) or not first <= node.lineno:
                continue
            if not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
                continue
            if isinstance(node, ast.If):
                # `if i % n == 0: optimizer.step()`: the loop counts batches or environment steps, not optimizer steps.
                skips = any(isinstance(each, ast.Mod) for each in ast.walk(node.test))
                if skips and loops and loops[-1].counter is None:
                    loops[-1] = Loop(None)
                continue
            if isinstance(node, ast.While):
                loop = self._while(node, frame)
            elif _is_over_parts(node, frame):
                continue
            else:
                count, bounds = _count(node.iter, frame)
                counter = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
                is_counted = bounds is not None and (bounds is not ENUMERATED or count is not None)
                start, stride = (0, 1) if bounds is None else bounds
                loop = Loop(count, Counter(frame.f_code, counter, start, stride) if is_counted else None)
                outer = [each.target for each in self._around if isinstance(each, ast.For)]
                if bounds is not None and any(_names_in(each) & _names_in(node.iter) for each in outer):
                    loop = EPISODE
            loops.append(self._with_breaks(node, loop, frame))
            self._around.append(node)
        self.loops += loops[::-1]
        if loops:  # what a function that is called in a loop counts in a variable of its own begins again
            self._counted_inside.clear()
            limits = [each for each in limits if not each.is_local]
        self.limits += limits
        for each in body:  # `self.epoch += 1` in a method that a loop outside calls
            target = each.target if isinstance(each, ast.AugAssign) else None
            if isinstance(target, ast.Attribute) and _increments(each, target):
                self._counted_inside.append((target, _value(target.value, frame), each.lineno < line))

    def _while(self, node: ast.While, frame: FrameType) -> Loop:
        """The loop of `while epoch < epochs:` whose body counts with `epoch += 1`; a limit if something else counts.

        Of `while True:` the loop over the named number of epochs, if its body counts a variable with that name.
        """
        for counter, end in _comparisons(node.test, (ast.Lt, ast.LtE), frame, runs=True):
            value = _value(counter, frame)
            counted = [each.lineno < frame.f_lineno for each in node.body if _increments(each, counter)]
            counted += self._counted_by_calls(counter, node, frame)
            if counted:
                may_stop = isinstance(node.test, ast.BoolOp)
                return Loop(end - value + counted[0], Counter(frame.f_code, counter, value), may_stop=may_stop)
            grows_here = any(isinstance(each, ast.AugAssign) and _same(each.target, counter) for each in node.body)
            if not self._is_set_back(counter):
                self._add_limit(counter, end - 1, frame, steady=False, by_rollouts=not grows_here)
        for each in node.body:
            if isinstance(each, ast.AugAssign) and "epoch" in _last_name(each.target):
                value = _value(each.target, frame) if _increments(each, each.target) else None
                if type(value) is int and value < (self._epochs or 0):
                    iterations = (self._epochs or 0) - value + (each.lineno < frame.f_lineno)
                    return Loop(iterations, Counter(frame.f_code, each.target, value))
        return EPISODE

    def _counted_by_calls(self, counter: ast.expr, loop: ast.While, frame: FrameType) -> list[bool]:
        """Of functions that lead from a loop to the step and count this attribute once in each iteration, whether they
        do so before the step."""
        owner = _value(counter.value, frame) if isinstance(counter, ast.Attribute) else None
        inner = [each for each in ast.walk(loop) if isinstance(each, (ast.For, ast.While)) and each is not loop]
        if owner is None or any(_includes(each, frame.f_lineno) for each in inner):
            return []
        return [ahead for target, each, ahead in self._counted_inside if each is owner and _same(target, counter)]

    def _add_limit(
        self, counter: ast.expr, last: int, frame: FrameType, steady: bool, by_rollouts: bool = False
    ) -> None:
        loop = Loop(None, Counter(frame.f_code, counter, _value(counter, frame)))
        self.limits.append(Limit([loop], last - _value(counter, frame), steady, by_rollouts))

    def _is_set_back(self, counter: ast.expr) -> bool:
        """Whether a loop further out sets this variable."""
        return any(_assigns(each, counter) for loop in self._around for each in ast.walk(loop))

    def _with_breaks(self, node: ast.For | ast.While, loop: Loop, frame: FrameType) -> Loop:
        """The loop as far as its breaks let it run."""
        line = frame.f_lineno
        for test in _break_tests(node.body):
            understood = _is_switched_off(test, node, frame)
            for counter, end in _comparisons(test, (ast.Gt, ast.GtE, ast.Eq), frame):
                counted = loop.counter
                at_top = counted is not None and _same(counter, counted.expression)
                increments = [
                    each
                    for each in ast.walk(node)
                    if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add) and _same(each.target, counter)
                ]
                if any(_assigns(each, counter) for each in ast.walk(node)) or not (at_top or increments):
                    continue  # what is set back, such as the epochs without improvement, is no position
                lines = [each.lineno for each in increments] or [node.lineno]
                # How often it changes between the step and the test that follows, in this iteration or the next.
                tested = test.lineno
                last = end - sum(line < n < tested if line < tested else n > line or n < tested for n in lines)
                understood = True
                if counted is not None and at_top:
                    stop = (last - counted.first) // counted.stride + 1
                    loop = loop._replace(iterations=stop if loop.iterations is None else min(stop, loop.iterations))
                elif self._is_set_back(counter):
                    loop = EPISODE
                else:
                    steady = any(_increments(each, counter) for each in node.body)
                    self._add_limit(counter, last, frame, steady)
            if not understood:
                self.breaks, loop = True, loop._replace(may_stop=True)
        return loop


def kind_of_code(path: str) -> str:
    """Whether code is of the `script`, of a `library` that it trains with, or of something `other` without loops.

    A forked process has the frames of its parent, whose loop over the ranks is told from the training's loops by the
    standard library's frames in between.
    """
    if any(part in path for part in LIBRARIES):
        return "other" if any(part + "torch" + os.sep in path for part in LIBRARIES) else "library"
    outside = path.startswith((os.path.dirname(os.__file__) + os.sep, "<")) or "_tuner_observer" in path
    return "other" if outside else "script"


def _break_tests(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The tests of those `if` statements of a loop that leave it."""
    for node in body:
        if isinstance(node, ast.If):
            if any(isinstance(each, (ast.Break, ast.Return)) for each in node.body):
                yield node.test
            yield from _break_tests([*node.body, *node.orelse])
        elif isinstance(node, (ast.With, ast.Try)):
            yield from _break_tests(node.body)


def _comparisons(
    test: ast.expr, kinds: tuple[type, ...], frame: FrameType, runs: bool = False
) -> Iterator[tuple[ast.expr, int]]:
    """The variables that a test compares with a limit, and the first value beyond it, such as 10 for `i < 10`.

    Of `a or b` each is a limit, of `a and b` one if the other is known to be true, as it is of a loop that `runs`.
    """
    nodes = test.values if isinstance(test, ast.BoolOp) else [test]
    for node in nodes:
        if not isinstance(node, ast.Compare) or len(node.ops) > 1 or not isinstance(node.ops[0], kinds):
            continue
        if not isinstance(node.left, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        needs_others = not runs and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        if needs_others and not all(_truth_of(each, frame) for each in nodes if each is not node):
            continue
        value, end = _value(node.left, frame), _value(node.comparators[0], frame)
        if type(value) is int and isinstance(end, (int, float)) and end == end // 1 and value <= end < MAX_LENGTH:
            yield node.left, int(end) + isinstance(node.ops[0], (ast.Gt, ast.LtE))


def _names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _truth_of(node: ast.expr, frame: FrameType) -> bool | None:
    """Whether a condition is known to be true or false: a variable, `not …` of one, or a comparison with None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        truth = _truth_of(node.operand, frame)
        return None if truth is None else not truth
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        is_none = _value(node.left, frame) is None
        return isinstance(node.ops[0], ast.Is) == is_none if not is_none or _is_none(node.left, frame) else None
    value = _value(node, frame)
    return value if isinstance(value, bool) else None


def _is_none(node: ast.expr, frame: FrameType) -> bool:
    """Whether a variable or an attribute of settings is set to None, rather than unknown."""
    if isinstance(node, ast.Name):
        return variables_of(frame).get(node.id, frame.f_globals.get(node.id, node)) is None
    owner = _value(node.value, frame) if isinstance(node, ast.Attribute) else None
    return isinstance(node, ast.Attribute) and getattr(owner, "__dict__", {}).get(node.attr, node) is None


def _is_switched_off(test: ast.expr, loop: ast.stmt, frame: FrameType) -> bool:
    """Whether a condition needs a setting that is false or None, such as `eval_only`, which the loop does not set."""
    nodes = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    parts = [list(ast.walk(node)) for node in nodes if _truth_of(node, frame) is False]
    statements = list(ast.walk(loop))
    return any(not any(_assigns(each, part) for each in statements for part in variables) for variables in parts)


def _increments(node: ast.AST, counter: ast.expr) -> bool:
    """Whether a statement is `counter += 1`."""
    return isinstance(node, ast.AugAssign) and ast.dump(node.value) == ONE and _same(node.target, counter)


def _assigns(node: ast.AST, counter: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(_same(target, counter) for target in node.targets)


def _same(first: ast.AST, second: ast.AST) -> bool:
    return ast.dump(first).replace("Store()", "Load()") == ast.dump(second).replace("Store()", "Load()")


def _is_over_parts(loop: ast.For, frame: FrameType) -> bool:
    """Whether one of what a loop is over trains: of such as `["train", "val"]`, or of callbacks that it calls in turn.

    Or whether it is over the optimizers of a step, or over parameters of which each has its own, as in Pyro.
    """
    node = loop.iter
    if isinstance(node, (ast.List, ast.Tuple)):
        return not all(isinstance(_value(each, frame), (int, float)) for each in node.elts)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        node = node.value
    if isinstance(node, ast.Call) and _last_name(node.func) in ("values", "items") and not node.args:
        owner = _value(node.func.value, frame) if isinstance(node.func, ast.Attribute) else None
        items = list(owner.values()) if isinstance(owner, dict) else None
    else:
        items = _value(node, frame)
    target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
    if not isinstance(items, (list, tuple, set)):
        return False
    # Of several of one class, such as agents, each makes its steps.
    is_mixed = len(items) == 1 or len({type(each) for each in items}) > 1
    if is_mixed and any(_calls(each, target) for each in loop.body if _includes(each, frame.f_lineno)):
        return True
    return all(
        isinstance(each, str) or hasattr(each, "param_groups") or getattr(each, "requires_grad", False) is True
        for each in items
    )


def _calls(statement: ast.stmt, called: ast.expr) -> bool:
    """Whether a statement is a call of this object or of one of its methods."""
    call = getattr(statement, "value", None)
    function = call.func if isinstance(call, ast.Call) else None
    return function is not None and _same(function.value if isinstance(function, ast.Attribute) else function, called)


def _includes(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)


ENUMERATED = (0, 1)


def _count(node: ast.expr, frame: FrameType) -> tuple[int | None, tuple[int, int] | None]:
    """The iterations over `range(…)` or data in memory, also if it is passed through a function that shows progress.

    And first value and stride of a variable that counts them.
    """
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute):
            return _folds(_value(node.func.value, frame)), None
        if name == "zip":
            counts = [_count(each, frame)[0] for each in node.args]
            lengths = [each for each in counts if each is not None]
            return min(lengths, default=None) if len(lengths) == len(counts) else None, None
        if name not in ("range", "trange"):
            passes = name in WRAPPERS or "tqdm" in name
            count, bounds = _count(node.args[0], frame) if passes and node.args else (None, None)
            return count, ENUMERATED if name == "enumerate" else bounds
        values = [_value(each, frame) for each in node.args]
        whole = [int(each) for each in values if isinstance(each, (int, float)) and each == each // 1]
        if not 0 < len(whole) == len(values) or 0 in whole[2:]:
            return None, None
        iterated = range(*whole)
        return len(iterated), (iterated.start, iterated.step)
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts), None
    value = _value(node, frame)
    iterated = value.__dict__.get("iterable") if "tqdm" in type(value).__name__ else value
    if isinstance(iterated, range):
        return len(iterated), (iterated.start, iterated.step)
    return _length(value), None


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _folds(splitter: Any) -> int | None:
    """The number of folds into which scikit-learn's `split` divides the data."""
    folds = getattr(splitter, "__dict__", {}).get("n_splits")
    return folds if type(folds) is int else None


def _length(value: Any) -> int | None:
    """The length of data in memory or of a loader that the script defines, as a progress bar would ask for it.

    A DataLoader of torch is not asked: its batches are counted, and its length may depend on settings to inject. Nor is
    what says that it is one, as accelerate's loaders do.
    """
    if "tqdm" in type(value).__name__:
        return _length(value.__dict__.get("iterable"))
    if inspect.isgenerator(value):
        return None if value.gi_frame is None else _folds(value.gi_frame.f_locals.get("self"))
    classes = (*type(value).__mro__, *getattr(value.__class__, "__mro__", ()))
    if getattr(value, "shape", None) == () or any(each.__name__ == "DataLoader" for each in classes):
        return None
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - code of the script
        return None


def calling_frames(frame: FrameType | None, most: int) -> Iterator[FrameType]:
    """`frame` and those of its callers, the innermost first."""
    while frame is not None and most:
        yield frame
        frame, most = frame.f_back, most - 1


def variables_of(frame: FrameType) -> Mapping[str, Any]:
    """The local variables of a function, in a dictionary that keeps nothing alive."""
    variables = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return variables
    # Before Python 3.13 the frame keeps the values as of the last call: a batch or an output would occupy its memory
    # until the function returns.
    values = dict(variables)
    code = frame.f_code
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        variables.pop(name, None)
    return values


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression, None unless it is computed without side effects."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return variables_of(frame).get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        # Settings may be attributes of their class; nothing is called, such as a property.
        value = getattr(owner, "__dict__", {}).get(node.attr, inspect.getattr_static(owner, node.attr, None))
        return _item(owner, node.attr) if value is None else value
    if isinstance(node, ast.Subscript):
        return _item(_value(node.value, frame), _value(node.slice, frame))
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name, value = _last_name(node.func), _value(node.args[0], frame)
        if name == "int":
            return int(value) if isinstance(value, (int, float)) else None
        if name == "size" and value == 0 and isinstance(node.func, ast.Attribute):
            name, value = "len", _value(node.func.value, frame)
        return _length(value) if name == "len" and value is not None else None
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
    for name, value, is_setting in _named_values(frame):
        _add(length, name, value, is_setting)
    return length


def named_batch(frame: FrameType | None, delivered: Iterable[int] = ()) -> int | None:
    """The rows of what a model has computed for the step, else of what it was given, if a loader has `delivered` so
    many before, or functions from `frame` outwards name a batch of so many; or the number of indices by which it was
    drawn.

    It tells the batch of a step without a loader, such as one from a replay buffer; None if several sizes fit.
    """
    sizes = set(delivered)
    none: set[int] = set()
    indexed, rows, given = set(none), set(none), set(none)
    for name, value, _ in _named_values(frame):
        plain, shape = name.replace("_", "").lower(), getattr(value, "shape", None)
        if type(value) is int and plain.endswith(tuple(NAMES["batch"])):
            sizes.add(value)
        elif shape and hasattr(type(value), "grad_fn"):
            draws = plain in NAMES["index"] and len(shape) == 1
            (rows if value.grad_fn is not None else indexed if draws else given).add(int(shape[0]))
    batches = sizes & rows or indexed & (rows | given) or (set() if rows else sizes & given)
    return batches.pop() if len(batches) == 1 else None


def _named_values(innermost: FrameType | None) -> Iterator[tuple[str, Any, bool]]:
    """What the functions from `innermost` outwards name. Those of a library count until the script is reached, because
    the step is made in it."""
    in_library = True
    for frame in calling_frames(innermost, MAX_FRAMES):
        kind = kind_of_code(frame.f_code.co_filename)
        in_library = in_library and kind != "script"
        if kind == "script" or (in_library and kind == "library"):
            yield from _named_in(frame)


def _named_in(frame: FrameType) -> Iterator[tuple[str, Any, bool]]:
    """Names and values, and whether each is a member of settings or a constant."""
    for variables in (variables_of(frame), frame.f_globals):
        for name, value in list(variables.items()):
            yield name, value, name.isupper()
            if name.strip("_").lower() in NAMES["settings"]:
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
    epochs = NAMES["epochs"] | (NAMES["member_epochs"] if is_setting else frozenset())
    kinds = (("epochs", epochs), ("steps", NAMES["steps"]), ("start", NAMES["start"]))
    for kind, names in kinds:
        if plain in names:
            length.setdefault(kind, int(value))
