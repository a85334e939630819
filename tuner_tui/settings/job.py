"""What trains: the built-in job, or a command and how settings reach it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tuner_tui.settings.fields import spec_of

ApplyMode = Literal["placeholders", "hf-args", "hydra", "yaml", "inject", "none"]
Launcher = Literal["plain", "torchrun", "accelerate"]


class BuiltinJob(BaseModel):
    """The built-in training: text classification or causal language modelling by the Hugging Face Trainer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["builtin"] = "builtin"
    task: Literal["classification", "causal-lm"] = "classification"
    model: str = Field("tiny", description="Hub id, local path, or a shape: tiny, bert-base, gpt2, llama-1b")
    data: str = Field("stdlib", description="A CSV, JSONL or Parquet file, a Hub dataset, or stdlib")
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    max_samples: int | None = Field(None, ge=1, description="Use at most this many training samples")
    trust_remote_code: bool = False
    interpreter: str | None = Field(None, description="The Python that trains; empty: the shell's")


class CommandJob(BaseModel):
    """Anybody's training command, run as it is, and the way settings reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["command"] = "command"
    command: tuple[str, ...] = Field(min_length=1)
    apply: ApplyMode = "none"
    dialect: str = Field("hf", description="Whose names hf-args, hydra and yaml write: hf, trl, axolotl, ...")
    aliases: dict[str, str] = Field(default_factory=dict, description="Settings name to the command's key")
    cwd: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    launcher: Launcher = "plain"
    processes: int = Field(1, ge=1)
    interpreter: str | None = Field(None, description="The Python whose packages train; it runs the launcher")

    @field_validator("aliases")
    @classmethod
    def _of_settings(cls, aliases: dict[str, str]) -> dict[str, str]:
        for name in aliases:
            spec_of(name)
        return aliases


Job = Annotated[BuiltinJob | CommandJob, Field(discriminator="kind")]
