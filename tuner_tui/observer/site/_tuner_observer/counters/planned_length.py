"""Guesses the number of epochs or steps of a plain loop, by its loops and the names of its variables.

Looked up once, at the first optimizer step, in the functions that lead to it: the loops around the step that count,
what breaks out of them, and a local or global variable, or an attribute of a settings object, such as `num_epochs` or
`args.max_steps`. About once a second the variables that count are read again: not every iteration makes one step.
"""

from __future__ import annotations

import ast
import linecache
import math
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from .expressions import (
    ENUMERATED,
    addition_lines,
    assigns,
    comparisons,
    count_iterations,
    includes_line,
    is_call_of,
    is_increment,
    is_over_loader,
    is_same,
    last_name,
    names_in,
    truth_of,
    value_of,
)
from .script_variables import MAX_FRAMES, MAX_LENGTH, calling_frames, kind_of_code, named_length

ENGINES = {"ignite.engine.engine": ("self.state.epoch", "self.state.max_epochs")}
"""Libraries that call the script's step, by their module: the epoch that runs and the number of epochs."""
MIN_CHANGES = 10
"""Where an iteration makes several steps, a total is computed after so many changes of the position."""


class Counter(NamedTuple):
    """A variable of the script that counts the iterations of a loop: `first`, and `stride` more in each.

    `done`: how many there were before, of a training that was resumed.
    """

    code: CodeType
    expression: ast.expr
    first: int
    stride: int = 1
    done: int = 0


class Loop(NamedTuple):
    """A loop around the step. `iterations` is how often it runs, None if that is not known.

    `kind` says of such a loop whether it is one of `data`, over a `loader` itself, of an `engine`, or ends when its
    condition says so, like an `episode` of reinforcement learning. `may_stop`: something that is not understood may end
    it earlier.
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
            value = None if counter is None or frame is None else value_of(counter.expression, frame)
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
    `done_epochs` and `done_steps`: those that the process before this one made, by where the outermost loop begins.
    `is_episodic`: how often the innermost loop runs depends on what happens in it.
    """

    def __init__(self, frame: FrameType | None) -> None:
        names = named_length(frame)
        self.epochs, self.steps, self.start = names.get("epochs"), names.get("steps"), names.get("start", 0)
        self.iterations: int | None = None
        self.inner: int | None = None
        self.outer: int | None = None
        self.done_epochs = self.done_steps = 0
        self.has_loops = self.is_episodic = self._breaks = self._ends_by_break = False
        self._limits: list[Limit] = []
        self._nest: Limit | None = None
        self._read_loops(frame)

    def _read_loops(self, frame: FrameType | None) -> None:
        finder = _LoopFinder(frame, self.epochs)
        loops, self._limits, self._breaks = finder.loops, finder.limits, finder.breaks
        if not loops:
            return
        done = 0 if loops[-1].counter is None else loops[-1].counter.done
        self.done_epochs, self.done_steps = (done, 0) if len(loops) > 1 else (0, done)
        if self.steps in [each.iterations for each in loops[:-1]]:
            self.steps = None  # of an episode
        # The early end of the outermost loop ends the training; another one begins again, and may end early again.
        loops[:-1] = [EPISODE if each.may_stop and each.iterations is not None else each for each in loops[:-1]]
        self.is_episodic = len(loops) > 1 and loops[0] is EPISODE
        self._ends_by_break = [loop.kind for loop in loops] == ["episode"]  # `while True:` without data
        if [loop.kind for loop in loops] == ["loader"] and finder.is_whole and self.epochs is None:
            self.outer, self.has_loops = 1, True
            return
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
            self._nest = Limit(loops, last, steady=inner not in ("data", "loader"))

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


# The loops around the step are parsed from the source, because the bounds of `range` are in no variable.
class _LoopFinder:
    """Finds the `loops` around a step, the innermost first, and the `limits` at which a statement breaks out of them.

    `is_whole`: they are all the loops up to the script itself. `breaks`: there is a break that is not understood. A
    library's loops count if the step is made in it; those of one that calls the script are not seen, those outside it
    neither, except for `ENGINES`. `epochs` is a named number.
    """

    def __init__(self, innermost: FrameType | None, epochs: int | None) -> None:
        self.loops: list[Loop] = []
        self.limits: list[Limit] = []
        self.breaks = self.is_whole = False
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
                self.is_whole = self.is_whole or frame.f_code.co_name == "<module>"

    def _read_engine(self, frame: FrameType, epoch: str, max_epochs: str) -> None:
        """A loop over batches of unknown number, in one over epochs."""
        counter, last = ast.parse(epoch, mode="eval").body, value_of(ast.parse(max_epochs, mode="eval").body, frame)
        first = value_of(counter, frame)
        if type(first) is int and type(last) is int:
            epochs = Counter(frame.f_code, counter, first, done=max(0, first - 1))
            self.loops += [Loop(None, kind="engine"), Loop(last - first + 1, epochs)]

    def _read(self, frame: FrameType) -> None:
        source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
        first, line = frame.f_code.co_firstlineno, frame.f_lineno
        loops: list[Loop] = []
        self._around.clear()
        limits, self.limits = self.limits, []
        body: list[ast.stmt] = []
        for node in ast.walk(ast.parse(source)):  # outer statements come first
            if isinstance(node, ast.FunctionDef) and includes_line(node, line):
                body = node.body
            if not isinstance(node, (ast.For, ast.While, ast.If)) or not first <= node.lineno:
                continue
            if not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
                continue
            if isinstance(node, ast.If):
                # `if i % n == 0: optimizer.step()`: the loop counts batches or environment steps, not optimizer steps.
                skips = any(isinstance(each, ast.Mod) for each in ast.walk(node.test))
                if skips and loops and loops[-1].counter is None:
                    loops[-1] = Loop(None, kind=loops[-1].kind)
                continue
            if isinstance(node, ast.For) and _is_over_parts(node, frame):
                continue
            loop = self._for(node, frame) if isinstance(node, ast.For) else self._while(node, frame)
            loops.append(self._with_breaks(node, loop, frame))
            self._around.append(node)
        self.loops += loops[::-1]
        if loops:  # what a function that is called in a loop counts in a variable of its own begins again
            self._counted_inside.clear()
            limits = [each for each in limits if not each.is_local]
        self.limits += limits
        for each in body:  # `self.epoch += 1` in a method that a loop outside calls
            target = each.target if isinstance(each, ast.AugAssign) else None
            if isinstance(target, ast.Attribute) and is_increment(each, target):
                self._counted_inside.append((target, value_of(target.value, frame), each.lineno < line))

    def _for(self, node: ast.For, frame: FrameType) -> Loop:
        """The loop of a `for` statement; an episode if its bounds depend on the iteration of a loop around it."""
        count, bounds = count_iterations(node.iter, frame)
        kind = "loader" if is_over_loader(node.iter, frame) else "data"
        if bounds is None:
            return Loop(count, kind=kind)
        outer = [each.target for each in self._around if isinstance(each, ast.For)]
        if any(names_in(each) & names_in(node.iter) for each in outer):
            return EPISODE
        if bounds is ENUMERATED and count is None:
            return Loop(None, kind=kind)
        counter = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        return Loop(count, Counter(frame.f_code, counter, *bounds))

    def _while(self, node: ast.While, frame: FrameType) -> Loop:
        """The loop of `while epoch < epochs:` whose body counts with `epoch += 1`; a limit if something else counts.

        Of `while True:` the loop over the named number of epochs, if its body counts a variable with that name.
        """
        for counter, end in comparisons(node.test, (ast.Lt, ast.LtE), frame, runs=True):
            value = value_of(counter, frame)
            counted = [each.lineno < frame.f_lineno for each in node.body if is_increment(each, counter)]
            counted += self._counted_by_calls(counter, node, frame)
            if counted:
                may_stop = isinstance(node.test, ast.BoolOp)
                return Loop(end - value + counted[0], Counter(frame.f_code, counter, value), may_stop=may_stop)
            grows_here = any(isinstance(each, ast.AugAssign) and is_same(each.target, counter) for each in node.body)
            if not self._is_set_back(counter):
                self._add_limit(counter, end - 1, frame, steady=False, by_rollouts=not grows_here)
        for each in node.body:
            if isinstance(each, ast.AugAssign) and "epoch" in last_name(each.target):
                value = value_of(each.target, frame) if is_increment(each, each.target) else None
                if type(value) is int and value < (self._epochs or 0):
                    iterations = (self._epochs or 0) - value + (each.lineno < frame.f_lineno)
                    return Loop(iterations, Counter(frame.f_code, each.target, value))
        return EPISODE

    def _counted_by_calls(self, counter: ast.expr, loop: ast.While, frame: FrameType) -> list[bool]:
        """Whether functions that lead from a loop to the step, and count this attribute once in each iteration, do so
        before the step; one answer of each function."""
        owner = value_of(counter.value, frame) if isinstance(counter, ast.Attribute) else None
        inner = [each for each in ast.walk(loop) if isinstance(each, (ast.For, ast.While)) and each is not loop]
        if owner is None or any(includes_line(each, frame.f_lineno) for each in inner):
            return []
        return [ahead for target, each, ahead in self._counted_inside if each is owner and is_same(target, counter)]

    def _add_limit(
        self, counter: ast.expr, last: int, frame: FrameType, steady: bool, by_rollouts: bool = False
    ) -> None:
        loop = Loop(None, Counter(frame.f_code, counter, value_of(counter, frame)))
        self.limits.append(Limit([loop], last - value_of(counter, frame), steady, by_rollouts))

    def _is_set_back(self, counter: ast.expr) -> bool:
        """Whether a loop further out sets this variable."""
        return any(assigns(each, counter) for loop in self._around for each in ast.walk(loop))

    def _with_breaks(self, node: ast.For | ast.While, loop: Loop, frame: FrameType) -> Loop:
        """The loop as far as its breaks let it run."""
        step = frame.f_lineno
        for test in _break_tests(node.body):
            tested = test.lineno
            understood = _is_switched_off(test, node, frame)
            for counter, end in comparisons(test, (ast.Gt, ast.GtE, ast.Eq), frame):
                counted = loop.counter
                at_top = counted is not None and is_same(counter, counted.expression)
                additions = addition_lines(node, counter)
                if any(assigns(each, counter) for each in ast.walk(node)) or not (at_top or additions):
                    continue  # what is set back, such as the epochs without improvement, is no position
                understood = True
                # It may change from the step on, even in its line, to the next test, in this iteration or the next.
                last = end
                for line in additions or [node.lineno]:
                    last -= step <= line < tested if step < tested else line >= step or line < tested
                if counted is not None and at_top:
                    stop = (last - counted.first) // counted.stride + 1
                    loop = loop._replace(iterations=stop if loop.iterations is None else min(stop, loop.iterations))
                elif self._is_set_back(counter):
                    loop = EPISODE
                else:
                    steady = any(is_increment(each, counter) for each in node.body)
                    self._add_limit(counter, last, frame, steady)
            if not understood:
                self.breaks, loop = True, loop._replace(may_stop=True)
        return loop


def _break_tests(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The tests of those `if` statements of a loop that leave it."""
    for node in body:
        if isinstance(node, ast.If):
            if any(isinstance(each, (ast.Break, ast.Return)) for each in node.body):
                yield node.test
            yield from _break_tests([*node.body, *node.orelse])
        elif isinstance(node, (ast.With, ast.Try)):
            yield from _break_tests(node.body)


def _is_switched_off(test: ast.expr, loop: ast.stmt, frame: FrameType) -> bool:
    """Whether a condition needs a setting that is false or None, such as `eval_only`, which the loop does not set."""
    nodes = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    parts = [list(ast.walk(node)) for node in nodes if truth_of(node, frame) is False]
    statements = list(ast.walk(loop))
    return any(not any(assigns(each, part) for each in statements for part in variables) for variables in parts)


def _is_over_parts(loop: ast.For, frame: FrameType) -> bool:
    """Whether one of what a loop is over trains: of such as `["train", "val"]`, or of callbacks that it calls in turn.

    Or whether it is over the optimizers of a step, or over parameters of which each has its own, as in Pyro.
    """
    node = loop.iter
    if isinstance(node, (ast.List, ast.Tuple)):
        return not all(isinstance(value_of(each, frame), (int, float)) for each in node.elts)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        node = node.value
    if isinstance(node, ast.Call) and last_name(node.func) in ("values", "items") and not node.args:
        owner = value_of(node.func.value, frame) if isinstance(node.func, ast.Attribute) else None
        items = list(owner.values()) if isinstance(owner, dict) else None
    else:
        items = value_of(node, frame)
    target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
    if not isinstance(items, (list, tuple, set)):
        return False
    # Of several of one class, such as agents, each makes its steps.
    is_mixed = len(items) == 1 or len({type(each) for each in items}) > 1
    if is_mixed and any(is_call_of(each, target) for each in loop.body if includes_line(each, frame.f_lineno)):
        return True
    return all(
        isinstance(each, str) or hasattr(each, "param_groups") or getattr(each, "requires_grad", False) is True
        for each in items
    )
