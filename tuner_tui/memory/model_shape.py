"""Shapes of models: read from a configuration or known by name, and their number of parameters.

Closed forms exist for four families: BERT, ModernBERT, GPT-2 and Llama, and what is built like them. Another
architecture gets the nearest family, and says so, or no shape at all; then it has to be traced. Nothing is imported to
find out, and no size is guessed from a word such as `base`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui import __file__ as package
from tuner_tui.core.files import read_data_file, read_json
from tuner_tui.settings.job import TEXT_TASKS, BuiltinJob, CommandJob, Job, Task, named_model, names_other_task
from tuner_tui.settings.model import Settings

FILE = Path(__file__).with_name("models.yaml")
BUILT_IN_FILE = Path(package).parent / "trainer" / "built_in.yaml"
FAMILIES_FILE = Path(__file__).with_name("families.yaml")
Family = Literal["bert", "modernbert", "gpt2", "llama"]
FAMILIES: tuple[Family, ...] = get_args(Family)
SCRIPTS: Mapping[Task, re.Pattern[str]] = {
    "classification": re.compile(r"glue|classif|sentiment|(?<![a-z])(?:nli|ner)(?![a-z])"),
    "causal-lm": re.compile(r"[cm]lm|language_model|sft|dpo|grpo"),
}
"""Names of scripts that train a text model for a task, whatever it is usually trained for."""
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
DEBERTA = "deberta-v2"
"""Version 3 has the architecture of version 2."""
FIRST_FAMILIES = "(?:distil)?(?:bert|gpt2|roberta)|xlm|xlnet|albert|camembert|openai-gpt|t5"
LOCAL_FOLDERS = r"(?:check_?points?|ckpts?|models?|weights|outputs?|saved?(?:_\w+)?|runs?|results?|exp\w*|work_dirs?)/"
LOCAL_FOLDERS += r"|.*/(?:original|final|best|last|latest)$"  # in `original` are Meta's own weights
POSITIONS = 8192
SIZE = re.compile(r"(?:(?<![a-z0-9._])([01]_\d)|(?<![a-z0-9.])(?<!\d_)(?:(\d+)x)?(\d+(?:\.\d+)?))([bm])(?![a-z0-9])")
"""A number of parameters in a model's name: `7b`, `1.5b`, `1_8b`, `135m`, `8x7b`. Not the 3 billion that compute in
`30b-a3b`, and not `2_7b`, which may be version 2."""
EXPERTS = re.compile(r"moe|(?<![a-z0-9])\d+e(?![a-z0-9])")
"""What is written in the names of mixtures of experts whose number of parameters may be that of the active ones."""
SHARED_SHARE = 0.22
"""What the experts of an `8x7b` share of each 7 billion: Mixtral's 8x7B and 8x22B are 46.7 and 140.6 billion."""
ROUNDED_NAMES: Mapping[str, float] = {"1b": 1.25e9, "2b": 2.4e9}
"""Names are rounded down: the models of `models.yaml` called 1b have 1.0 to 1.7 billion, those called 2b 2.2 to 2.7."""
LEAST_PARAMETERS = 100e6
"""A smaller number may leave out the embeddings (Prompt-Guard-86M has 279 million) or be a context: `1m` tokens."""
TIMM = re.compile(r"(?:vit|deit|beit|swin|convnext)_|resnet\d")
"""How names of timm begin that has a model of Transformers as well."""
HEAD = 128


class ModelShape(Struct, frozen=True):
    """The sizes of one model, as counts. `head_dim` is the width of one attention head.

    `weight_bytes` is the size of one weight as saved (`loaded_shape` has it as loaded), `labels` the number of outputs
    of a classifier. `qkv_bias` and `query_norm` distinguish relatives of Llama, `dense_head` relatives of BERT: a
    classifier of two layers instead of a pooling layer and one layer, and `relative`: positions are keys and queries of
    their own (DeBERTa), for which there is no fused kernel. `approximates` is the architecture that this
    family stands for; empty for the family itself. `positions` is None where their number is not known and nothing is
    kept for each. `size_only`: of the model only the number of parameters is known. `quantized_bytes` is the size of a
    weight of its blocks' linear layers with its share of a scale, where they are saved quantized.
    """

    name: str
    family: Family
    task: Task
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    positions: int | None
    labels: int = 2
    tied: bool = True
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    qkv_bias: bool = False
    query_norm: bool = False
    dense_head: bool = False
    relative: bool = False
    weight_bytes: int = 4
    approximates: str = ""
    size_only: bool = False
    quantized_bytes: float | None = None

    @property
    def language_model(self) -> bool:
        """True when it computes a logit for every token of the vocabulary at every position."""
        return self.task == "causal-lm"


class FamilyForm(Struct, frozen=True, kw_only=True):
    """What a model of a family consists of, a row of `families.yaml`, which explains the fields."""

    types: Sequence[str]
    layers: Sequence[tuple[str, str]]
    roles: Sequence[str]
    norms: int
    kept: Mapping[str, Mapping[str, float]]
    ends: Mapping[str, float]
    mlp_backward: Mapping[str, float]
    widest: int
    biased: int = 0
    positions: bool = False
    vectors: int = 0
    dense_head: bool = False
    final_norm: bool = False


@cache
def family_form(family: Family) -> FamilyForm:
    return FamilyForm(**read_data_file(FAMILIES_FILE)[family])


def loaded_shape(shape: ModelShape, settings: Settings) -> ModelShape:
    """The shape with `weight_bytes` as the weights are loaded: fp32 where all train, as saved under an adapter.

    The built-in job loads them by the same rule (`trainer/models.py`, `weights_dtype`).
    """
    by_rule = shape.weight_bytes if settings.peft_method != "none" else 4
    size = {"auto": by_rule, "saved": shape.weight_bytes, "fp32": 4, "bf16": 2}[settings.weights_dtype]
    return shape if size == shape.weight_bytes else replace(shape, weight_bytes=size)


@cache
def built_in_shape(name: str, task: Task) -> ModelShape | None:
    """The shape of a model of the built-in job; None for another name, and for a task that it does not have."""
    config = read_data_file(BUILT_IN_FILE).get(name, {}).get(task)
    return None if config is None else shape_from_config(config, name, task)


def known_shape(model: str, task: Task) -> ModelShape | None:
    """The shape of a built-in name, a local folder, or a Hub id: downloaded before, well known or with a size in it.

    None for an architecture or a task without a closed form, and where not even the size is known. Reads at most one
    small file, cached while it is unchanged.
    """
    built_in = built_in_shape(model, task)
    if built_in is not None or not model or task not in TEXT_TASKS:
        return built_in
    config = read_config(model)
    if config_path(model) is not None:
        return None if config is None else shape_from_config(config, model, task)
    plain, bytes_each = _without_quantization(model)
    if config is not None:
        shape = shape_from_config(config, plain, task)
    else:
        name = plain.rstrip("/").rpartition("/")[2].lower()
        sizes = _sizes_in(name)
        if len(sizes) != 1 or EXPERTS.search(name) is not None or names_other_task(plain):
            return None  # no size, or it may be another number
        shape = _decoder_of_size(sizes.pop(), plain, task)
    return None if shape is None else replace(shape, name=model, quantized_bytes=bytes_each)


def read_config(model: str) -> Mapping[str, Any] | None:
    """The configuration of a model, of its `config.json` or, without one, by its name; None where there is neither."""
    if (built_in := read_data_file(BUILT_IN_FILE).get(model)) is not None:
        config: Mapping[str, Any] = next(iter(built_in.values()))
        return config
    path = config_path(model)
    if path is None:
        return known_config(_without_quantization(model)[0])
    try:
        return _read_json(path, path.stat().st_mtime_ns)
    except OSError:
        return None


def _without_quantization(model: str) -> tuple[str, float | None]:
    """The name without its suffix for quantized weights, and the bytes per weight that the suffix means, or None."""
    name = model.replace("___", ".")  # as ModelScope writes it in the paths of its cache
    sizes = set()
    for word, size in read_data_file(FILE)["quantized"].items():
        shorter = re.sub(rf"(?i)[-_.]{word}(?=[-_.]|$)", "", name)
        if shorter != name:
            sizes.add(size)
        name = shorter
    return name, max(sizes, default=None)


def _saved_quantized_bytes(config: Mapping[str, Any]) -> float | None:
    """The bytes per weight that a `config.json` says, by the bits of its quantization; None where it says none."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    by_switch = 4 if quantization.get("load_in_4bit") else 8 if quantization.get("load_in_8bit") else None
    bits = quantization.get("bits") or quantization.get("w_bit") or by_switch
    size: float | None = read_data_file(FILE)["quantized"].get(f"int{bits}")
    return size


def usual_task(model: str) -> Task | None:
    """What a model is usually fine-tuned for, by its configuration.

    None where no configuration can be read, and for an architecture or a class that is not covered.
    """
    config = read_config(model)
    if config is None:
        return None
    keys = read_data_file(FAMILIES_FILE)["config"]
    classes = [str(name) for name in config.get("architectures") or ()]
    by_class: dict[Task, list[str]] = keys["heads"]
    by_type: dict[Task, list[str]] = keys["tasks"]
    for task, endings in by_class.items():
        if any(name.endswith(tuple(endings)) for name in classes):
            return task
    for task, types in by_type.items():
        if config.get("model_type") in types:
            return task
    return None if shape_from_config(config, model, "causal-lm") is None else "causal-lm"


def unknown_task(model: str) -> str:
    """Why `usual_task` is None, and what to do, in sentences."""
    config, tasks = read_config(model), ", ".join(get_args(Task))
    if config is None:
        download = f", or get the configuration: {hint}" if (hint := download_hint(model)) else ""
        return (
            f"The task of {model} is unknown: its name is not in the list of known models, and its configuration is "
            f"not on this machine. Name the task (--task {tasks}){download}."
        )
    kind = next(iter(config.get("architectures") or ()), config.get("model_type") or "model of an unnamed architecture")
    return (
        f"{model} is a {kind}, a class without a known task. Name one of {tasks} (--task), or run the "
        "training for a few steps to measure its memory."
    )


def download_hint(model: str) -> str:
    """The command that gets the configuration of a model on the Hub; empty for a path, which no Hub has.

    Without an owner only the first families have models there.
    """
    is_id = re.fullmatch(rf"(?!{LOCAL_FOLDERS})([\w-][\w.-]*/|{FIRST_FAMILIES})[\w.-]*(?<!\.pt|pkl|pth|bin)", model)
    return f"hf download {model} config.json" if is_id else ""


def modelled_job(job: Job | None) -> BuiltinJob | None:
    """The built-in job that takes the same memory as `job`: itself, or one for the model that a command trains.

    None where the task of a command is not known, or not covered.
    """
    if not isinstance(job, CommandJob):
        return job
    model = named_model(job)
    if model is None or job.task == "other" or model.endswith((".pth", ".ckpt", ".pkl")):  # weights of any network
        return None
    usual = usual_task(model)
    # The name of a script says the task of a text model, and of one that is not known.
    is_of_text = usual in TEXT_TASKS or read_config(model) is None
    task = job.task or (is_of_text and _task_of_script(job.command)) or usual
    if task is None or (task in TEXT_TASKS and names_other_task(model, job.command)):
        return None
    return BuiltinJob(task=task, model=model)


def _task_of_script(command: Sequence[str]) -> Task | None:
    script = next((word for word in command if word.endswith(".py")), "")
    return next((task for task, pattern in SCRIPTS.items() if pattern.search(script)), None)


def assumes_task(job: Job) -> bool:
    """Whether only the family of its model says what a command trains: an encoder may get any head."""
    modelled = modelled_job(job)
    if modelled is None or not isinstance(job, CommandJob) or job.task or _task_of_script(job.command):
        return False
    by_family = modelled.task in ("classification", "image-classification")
    return by_family and not (read_config(modelled.model) or {}).get("architectures")


def task_text(job: BuiltinJob, assumed: bool = False) -> str:
    """The task for a reader, such as `masked language modelling` where an encoder computes the loss of its tokens."""
    if job.task == "causal-lm":
        return f"{'masked' if usual_task(job.model) == 'classification' else 'causal'} language modelling"
    return f"an unstated task, planned as {job.task}," if assumed else job.task


def trains_other_task(job: Job) -> bool:
    """Whether something else than a classifier or a causal language model of text is trained, by task and names."""
    modelled = modelled_job(job)
    if modelled is not None and modelled.task not in TEXT_TASKS:
        return True
    command = job.command if isinstance(job, CommandJob) else ()
    return job.task == "other" or names_other_task(named_model(job) or "", command)


def config_to_trace(model: str, task: Task) -> Mapping[str, Any] | None:
    """The configuration of a model that is known by its name alone, where its closed form is not exact."""
    shape = known_shape(model, task)
    if (shape is not None and not shape.approximates) or config_path(model) is not None:
        return None
    config = known_config(model)
    return config if config is not None and "model_type" in config else None


def known_config(model: str) -> Mapping[str, Any] | None:
    """The configuration of a well-known model, such as `Qwen/Qwen2.5-7B-Instruct`; `size` is its only key for some.

    None for others.
    """
    name = model.rstrip("/").rpartition("/")[2].lower()
    if TIMM.match(name):  # `vit_base_patch16_224.augreg_in21k`, `resnet50`
        name = re.sub(r"^resnet(?=\d)", "resnet-", name.partition(".")[0].replace("_", "-"))
    parts = re.split(r"(?<=[a-z0-9])(?=[-_])", name)
    for count in range(len(parts), 0, -1):
        config = known_configs().get("".join(parts[:count]))
        rest = "".join(parts[count:])
        if config is not None:
            resized = set(re.split("[-_]", rest)) & set(read_data_file(FILE)["other-sizes"])
            return None if resized or _sizes_in(rest) else config
    return None


@cache
def known_configs() -> Mapping[str, Mapping[str, Any]]:
    """The configurations of well-known models by their names; `size` alone where there is no closed form."""
    data = read_data_file(FILE)
    configs = {
        names: {**group.get("defaults", {}), **dict(zip(group["columns"], row, strict=False))}
        for group in data["shapes"]
        for names, row in group["models"].items()
    }
    sizes = {names: {"size": size} for group in data["sizes"] for names, size in group["models"].items()}
    return {name: config for names, config in (configs | sizes).items() for name in names.split()}


def _sizes_in(name: str) -> set[float]:
    sizes = set()
    for match in SIZE.finditer(name):
        decimal, experts, number, unit = match.groups()
        count = float((decimal or number).replace("_", ".")) * (1e9 if unit == "b" else 1e6)
        copies = SHARED_SHARE + (1 - SHARED_SHARE) * int(experts) if experts else 1
        sizes.add(ROUNDED_NAMES.get(match[0], copies * count))
    return {size for size in sizes if size >= LEAST_PARAMETERS}


@lru_cache(maxsize=64)
def _decoder_of_size(parameters: float, model: str, task: Task) -> ModelShape:
    """A decoder with so many parameters, in the proportions of Llama."""
    vocab = 128_256 if parameters >= 4e8 else 50_257
    # Decoders that carry their size in their names are saved in 16 bit. They have as many heads of 128 as layers.
    shape = ModelShape(model, "llama", task, 1, HEAD, 1, 1, HEAD, 4 * HEAD, vocab, None, weight_bytes=2, size_only=True)
    # A block of hidden size h has about 15 h² parameters with an MLP four times as wide: in all a cube of the layers.
    while (total := count_parameters(shape, Settings()).total) < parameters:
        layers, hidden = shape.layers + 1, shape.hidden + HEAD
        shape = replace(
            shape, layers=layers, hidden=hidden, heads=layers, kv_heads=max(1, layers // 4), intermediate=4 * hidden
        )
    surplus = (total - parameters) / (3 * shape.hidden * shape.layers)
    return replace(shape, intermediate=max(HEAD, round(shape.intermediate - surplus)))


def config_path(model: str) -> Path | None:
    """The model's `config.json`: in its folder, else the newest one in the Hub's cache; None without one."""
    local = Path(model).expanduser() / "config.json"
    if local.is_file():
        return local
    snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    configs = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    return configs[-1] if configs else None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder in which huggingface_hub caches downloads."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    home = environment.get("HF_HOME") or Path(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


@lru_cache(maxsize=32)
def _read_json(path: Path, stamp: int) -> Mapping[str, Any] | None:
    return read_json(path, follow_links=True) or None


def shape_from_config(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The shape described by a `config.json`; None for an architecture near no family or an invalid file."""
    try:
        return _read_shape(config, model, task)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _read_shape(config: Mapping[str, Any], model: str, task: Task) -> ModelShape | None:
    """The sizes of `config` in its family or the nearest one. Raises `KeyError` for a missing size.

    What a family's own configuration leaves out has the default of its class in Transformers. For another architecture
    positions and the width of the MLP are guessed, as they change the estimate less than its uncertainty.
    """
    if "size" in config:
        return _decoder_of_size(config["size"] * 1e6, model, task)
    kind = str(config.get("model_type"))
    family = _family_of(kind, config)
    approximates = "" if family else kind
    keys = read_data_file(FAMILIES_FILE)["config"]
    if any(not str(name).endswith(tuple(keys["classes"])) for name in config.get("architectures") or ()):
        return None
    if family is None:
        if config.get("is_encoder_decoder") or any(word in key for key in config for word in keys["unsupported"]):
            return None
        # Decoders with grouped keys have gated MLPs like Llama; older ones are like GPT-2.
        family = "llama" if "num_key_value_heads" in config else "gpt2" if task == "causal-lm" else "bert"
    llama = family_form("llama")
    hidden, heads = int(_read_size(config, "hidden")), int(_read_size(config, "heads"))
    form = family_form(family)
    positions = None
    if form.positions or any(config.get(name) for name in keys["sizes"]["positions"]):
        positions = int(_read_size(config, "positions", POSITIONS if approximates else None))
    dropout = 0.1 if family == "bert" or kind == "gpt2" else 0.0
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return ModelShape(
        model, family, task, int(_read_size(config, "layers")), hidden, heads,
        int(config.get("num_key_value_heads") or heads), int(config.get("head_dim") or hidden // heads),
        int(_read_size(config, "inner", 4 * hidden if approximates or kind == "gpt2" else None)),
        int(config["vocab_size"]), positions,
        len(config.get("id2label") or "ab"), tied=bool(config.get("tie_word_embeddings", kind not in llama.types)),
        attention_dropout=float(_read_size(config, "attention_dropout", dropout)),
        hidden_dropout=float(_read_size(config, "hidden_dropout", dropout)),
        qkv_bias=kind == "qwen2" or (kind in llama.types and bool(config.get("attention_bias", False))),
        query_norm=kind == "qwen3", relative=kind == DEBERTA,
        dense_head=family == "bert" and kind not in ("bert", DEBERTA) and not approximates,
        weight_bytes=DTYPE_BYTES.get(dtype, 4), approximates=approximates,
        quantized_bytes=_saved_quantized_bytes(config),
    )  # fmt: skip


def _family_of(kind: str, config: Mapping[str, Any]) -> Family | None:
    """The family whose closed form is counted from this architecture's own code; None for any other."""
    if config.get("embedding_size") not in (None, config.get("hidden_size")):
        return None  # ELECTRA's small models project their embeddings to the hidden size
    if kind == DEBERTA and not (
        config.get("share_att_key")
        and "conv_kernel_size" not in config
        and 2 * config.get("position_buckets", 0) == config.get("max_position_embeddings")
    ):
        return None  # as in version 2
    return next((family for family in FAMILIES if kind in family_form(family).types), None)


def _read_size(config: Mapping[str, Any], size: str, otherwise: float | None = None) -> float:
    names = read_data_file(FAMILIES_FILE)["config"]["sizes"][size]
    value = next((config[name] for name in names if config.get(name) is not None), otherwise)
    if value is None:
        raise KeyError(size)
    return float(value)


class LinearLayer(Struct, frozen=True):
    """The input and output width of a linear layer, and whether it has a bias."""

    inputs: int
    outputs: int
    bias: bool = True

    @property
    def weights(self) -> int:
        """The number of weights, without biases."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """The number of weights and biases."""
        return self.weights + (self.outputs if self.bias else 0)


class ParameterCounts(Struct, frozen=True):
    """Parameter counts of a model and of its parts; `layer…` counts are of one layer."""

    total: int
    trainable: int
    layer_linear: int
    layer_trainable: int
    embedding: int
    adapter: int


def linear_layers(shape: ModelShape) -> tuple[LinearLayer, ...]:
    form, widths = family_form(shape.family), block_widths(shape)
    biased = 3 if shape.qkv_bias else form.biased
    sizes = ((widths[inputs], sum(widths[name] for name in outputs.split(" + "))) for inputs, outputs in form.layers)
    return tuple(LinearLayer(*size, number < biased) for number, size in enumerate(sizes))


def adapted_layers(shape: ModelShape, roles: Sequence[str] = ()) -> tuple[LinearLayer, ...]:
    """The linear layers of one block with adapters: those with `roles`, all without any."""
    layers = zip(linear_layers(shape), family_form(shape.family).roles, strict=True)
    return tuple(layer for layer, role in layers if not roles or role in roles)


def block_widths(shape: ModelShape) -> Mapping[str, int]:
    """The widths in a block by the names of `families.yaml`."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {"hidden": shape.hidden, "inner": shape.intermediate, "queries": queries, "keys": keys}


def position_parameters(shape: ModelShape) -> int:
    """Parameters of position embeddings and what belongs to them: in no block, word embedding or head."""
    form = family_form(shape.family)
    return (form.vectors + (shape.positions or 0 if form.positions else 0)) * shape.hidden


def head_parameters(shape: ModelShape) -> int:
    """Parameters after the last block: its normalisation where there is one, pooling, and the output."""
    form, hidden = family_form(shape.family), shape.hidden
    if form.dense_head:
        return LinearLayer(hidden, hidden).parameters + LinearLayer(hidden, shape.labels).parameters
    final = hidden if form.final_norm else 0
    if not shape.language_model:
        return final + hidden * shape.labels
    return final + (0 if shape.tied else shape.vocab * hidden)


def adapter_parameters(layers: Iterable[LinearLayer], settings: Settings) -> int:
    """Parameters of the adapters of linear layers: two matrices each, and DoRA's magnitudes."""
    if settings.peft_method == "none":
        return 0
    magnitudes = settings.peft_method == "dora"
    return sum(settings.lora_r * (layer.inputs + layer.outputs) + magnitudes * layer.outputs for layer in layers)


def trainable_head_parameters(shape: ModelShape, settings: Settings) -> int:
    """Parameters that train after the last block: the new classifier, and adapters of the dense layer before it."""
    if shape.language_model:
        return 0
    if shape.dense_head:
        return head_parameters(shape)
    has_dense = family_form(shape.family).dense_head
    dense = [LinearLayer(shape.hidden, shape.hidden)] if has_dense else []
    return LinearLayer(shape.hidden, shape.labels, has_dense).parameters + adapter_parameters(dense, settings)


def count_parameters(shape: ModelShape, settings: Settings, adapted: Sequence[str] = ()) -> ParameterCounts:
    """The parameters of `shape` trained with `settings`, and with adapters on the layers of roles `adapted`."""
    matrices = sum(layer.parameters for layer in linear_layers(shape))
    norms = family_form(shape.family).norms * shape.hidden + (2 * shape.head_dim if shape.query_norm else 0)
    layer = matrices + norms
    embedding = shape.vocab * shape.hidden
    ends = embedding + position_parameters(shape) + head_parameters(shape)
    total = ends + shape.layers * layer
    if settings.peft_method == "none":
        return ParameterCounts(total, total, matrices, layer, embedding, 0)
    adapter = adapter_parameters(adapted_layers(shape, adapted), settings)
    trainable = shape.layers * adapter + trainable_head_parameters(shape, settings)
    return ParameterCounts(total + trainable, trainable, matrices, adapter, embedding, adapter)
