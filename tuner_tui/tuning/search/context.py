"""What every part of a search works on: the start, the search space, and the trials so far."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.results import SearchResults, SettingsResult
from tuner_tui.tuning.search.space import SearchSpace
from tuner_tui.tuning.trial import CompletedTrial


@dataclass(frozen=True)
class SearchContext:
    """A search from the settings `requested` within `space`, after `trials`."""

    requested: Settings
    space: SearchSpace
    trials: tuple[CompletedTrial, ...] = ()

    @cached_property
    def start(self) -> Settings:
        """The requested settings, with a smaller micro batch if the dataset cannot fill the requested one."""
        return self.space.within_data(self.requested)

    @cached_property
    def results(self) -> SearchResults:
        """The results of all trials whose micro batch the dataset can fill (its size is learned from the first one)."""
        trials = (one for one in self.trials if one.trial.settings.per_device_train_batch_size <= self.space.max_micro)
        return SearchResults.of(trials, self.space.limit_bytes, self.space.whole_job)

    @property
    def best(self) -> SettingsResult | None:
        """The fastest settings that fit; None if none ran."""
        return self.results.best

    @property
    def start_result(self) -> SettingsResult | None:
        """The result of the start; None before its first trial."""
        return self.results.get(self.start)
