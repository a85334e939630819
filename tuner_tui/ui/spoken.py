"""Errors of the program as one sentence for the screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuner_tui.ui.services import NameTaken, ServiceError


@contextmanager
def spoken() -> Iterator[None]:
    """What goes wrong inside becomes a `ServiceError`; a mistake of the program stays what it is."""
    from tuner_tui.runs.launch.command import LaunchError
    from tuner_tui.runs.store.record import RecordError
    from tuner_tui.settings.errors import PresetExistsError, SettingsError

    try:
        yield
    except PresetExistsError as error:
        raise NameTaken(f"{error}.") from error
    except (SettingsError, LaunchError, RecordError) as error:
        raise ServiceError(str(error)) from error
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise ServiceError(f"{error.strerror or error}{place}.") from error
