"""Post-import hooks: call a function right after the training has imported a module."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without torch should not import `typing`
    from collections.abc import Callable, Mapping
    from types import FrameType, ModuleType
    from typing import Any

    Hook = Callable[[ModuleType], None]


class PostImportFinder:
    """First entry of `sys.meta_path`. Delegates to the other finders and wraps the loaders of hooked modules."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        hook = self._hooks.get(name)
        if hook is None or name in self._searching:
            return None
        self._searching.add(name)
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        try:
            specs = (finder.find_spec(name, path, target) for finder in others)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._searching.discard(name)
        if spec is not None and spec.loader is not None:
            _call_after_exec(spec.loader, name, hook)
        return spec


def _call_after_exec(loader: Any, name: str, hook: Hook) -> None:
    """Shadow `exec_module` on this loader instance; the shadow removes itself before the module is executed."""
    original = getattr(loader, "exec_module", None)
    if original is None or isinstance(loader, type):
        return

    # The loader's own method, not the loader, is replaced: `module.__loader__` stays what other tools expect, and
    # source, resources and pickles are found as without the observer.
    def exec_module(module: ModuleType) -> None:
        if module.__name__ == name:
            loader.__dict__.pop("exec_module", None)
        original(module)
        if module.__name__ == name:
            call_safely(hook, module)

    try:
        loader.exec_module = _not_blamed(exec_module)
    except AttributeError:
        return


def outer_frame() -> FrameType:
    """The innermost frame outside of the observer."""
    frame, package = sys._getframe(1), __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame = frame.f_back
    return frame


def call_safely(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call `function`, returning None if it raises: an error of the observer must never reach the training."""
    try:
        return function(*args, **kwargs)
    except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
        return None


def call_before(owner: Any, name: str, before: Callable[..., Any]) -> None:
    """Hook a function or method: `before` is called with the arguments of each call, safely."""
    call_around(owner, name, before, lambda *_: None)


def call_after(owner: Any, name: str, after: Callable[..., Any]) -> None:
    """Hook a function or method: `after` is called with the result and the arguments of each call, safely.

    Not if the call raises, which passes through.
    """

    def leave(arguments: Any, result: Any, error: BaseException | None) -> None:
        if error is None:
            after(result, *arguments[0], **arguments[1])

    call_around(owner, name, lambda *args, **kwargs: (args, kwargs), leave)


def call_around(owner: Any, name: str, enter: Callable[..., Any], leave: Callable[..., None]) -> None:
    """Hook a function or method: `enter` is called safely with the arguments of each call, and after the call `leave`
    with what `enter` returned, the result, and the exception that the call raised or None."""
    original = getattr(owner, name)

    def hooked(*args: Any, **kwargs: Any) -> Any:
        entered = call_safely(enter, *args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            call_safely(leave, entered, None, error)
            raise
        call_safely(leave, entered, result, None)
        return result

    replacing(owner, name)(hooked)


def is_compiling_function() -> Callable[[], bool]:
    """torch's test for a trace in progress: a traced optimizer step must not contain the hooks."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        test: Callable[[], bool] | None = getattr(compiler, name, None)
        if test is not None:
            return test
    return lambda: False


def around_module_calls(
    torch: Any, enter: Callable[[Any], Any], leave: Callable[[Any, Any], None]
) -> Callable[[], None]:
    """Call `enter` safely before each call of a module, with the module; and unless it returned None, `leave` after the
    call, with what it returned and the result (None of a call that raised). Not while torch compiles. Returns what
    undoes it.
    """
    # At the class: hooks of each module would be pickled and copied with the model.
    module_class = torch.nn.Module
    original = module_class.__call__
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

    def hooked(module: Any, *args: Any, **kwargs: Any) -> Any:
        entered = None if is_compiling() else call_safely(enter, module)
        if entered is None:
            return original(module, *args, **kwargs)
        result = None
        try:
            result = original(module, *args, **kwargs)
        finally:
            call_safely(leave, entered, result)
        return result

    replacing(module_class, "__call__")(hooked)
    return lambda: setattr(module_class, "__call__", original)


def replacing(owner: Any, name: str) -> Callable[[Any], Any]:
    """Decorate a function that takes the place of `owner.name`, with the name and the documentation of that."""
    from functools import wraps  # a process that hooks nothing should not import it

    def replace(hooked: Any) -> Any:
        setattr(owner, name, wraps(getattr(owner, name))(_not_blamed(hooked)))
        return hooked

    return replace


def _not_blamed(function: Any) -> Any:
    """Keep `warnings` from taking `function` for the place of a warning about its caller."""
    # With `stacklevel` it passes over frames of the import system, which it tells by these words in their file.
    # `skip_file_prefixes` would be the warning's own, and is of Python 3.12.
    code = function.__code__
    function.__code__ = code.replace(co_filename=code.co_filename + " (importlib, as _bootstrap)")
    return function


def install_import_hooks(hooks: Mapping[str, Hook]) -> None:
    """Call `hooks[name](module)` once the module `name` was imported; at once if it already is."""
    for name, hook in hooks.items():
        module = sys.modules.get(name)
        if module is not None:
            call_safely(hook, module)
    sys.meta_path.insert(0, PostImportFinder(hooks))
