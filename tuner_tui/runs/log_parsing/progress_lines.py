"""Parses training progress from output: tqdm bars, dictionaries that Trainer logs, lines of plain loops.

A name decides what a number is: `ms/batch 46.47` is a time and `loss scale 1024` no loss. Whether a loss is one of an
evaluation is decided by its own name (`val_loss`), or else by the last label before it (`Test set: Average loss`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.runs.log_parsing.lines import ANSI, MAX_LINE_CHARACTERS

BARS, LOG = "progress bar", "log lines"


class ProgressRecord(Struct, frozen=True):
    """Progress parsed from one line of output; None where it does not say.

    `elapsed_s` is the training time at `step` as the source reports it. A `bar` may count one epoch only, and the
    counter of a line does if it is `per_epoch`: it starts again in every epoch. `epochs` is the number of epochs.
    `parts` are losses whose names say that they are parts of the training's, and `part` says that `loss` is one.
    `is_mean`: by its name the loss is the mean of several steps. `evaluation` holds the metrics of an evaluation by
    their names.
    """

    source: str
    step: int | None = None
    total_steps: int | None = None
    elapsed_s: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    epoch: float | None = None
    bar: bool = False
    per_epoch: bool = False
    epochs: int | None = None
    evaluating: bool = False
    evaluation: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    part: bool = False
    is_mean: bool = False


def parse_number(value: Any) -> float | None:
    """A number, or text that is one (`nan` too); else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def parse_clock_time(text: str) -> float | None:
    """Seconds from a bar's `1:02:03` or `02:03`; else None."""
    if not text.replace(":", "").isdigit():
        return None
    return float(sum(int(part) * 60**power for power, part in enumerate(reversed(text.split(":")))))


MAX_NAME_CHARACTERS = 300
"""Of the text before a bar."""
_BAR = re.compile(r"\d+%\|[^|\r\n]{0,300}\| *(\d+)/(\d+) \[(\d[\d:]*)<[^,\]\r\n]*, *([^\]\r\n]*)\]")
_TRAINS = re.compile(
    r"\W*(?:(?:global |train(?:ing)? ?)?(?:steps?|iter(?:ation)?s?)|train(?:ing)?|epochs?)\b", re.IGNORECASE
)
_EVALUATES = re.compile(r"\W*(?:eval\w*|valid\w*|test\w*|predict\w*|sanity\w*)\b", re.IGNORECASE)
_KERAS_BAR = re.compile(r"\s*(\d+)/(\d+) (?:\[[=>.]{5,}\]|━{5,}).{0,40}?(?:/step|/epoch|ETA:)")
_EPOCH_LINE = re.compile(r"\s*epochs?\W{0,3}(\d+) ?(?:/|of) ?(\d+)\W{0,5}", re.IGNORECASE)
_TABLE_ROW = re.compile(r"\s*\|\s*(?:train/)?(\w+)\s*\|\s*(\S+)\s*\|\s*")
"""Stable-Baselines3 prints a table with a row for each figure."""
_STEP_RATES = ("it/s", "s/it", "steps/s", "s/step", "batch/s", "s/batch", "batches/s")
_COUNT = re.compile(r"(\d+)/(\d+) \[")
_EPOCHS = re.compile(r"epochs?\W{0,3}\d+ ?(?:/|of) ?(\d+)", re.IGNORECASE)
_LOGGED = re.compile(r"\{'(?:loss|grad_norm|learning_rate|epoch|eval_\w+)': [^{}\r\n]*\}")


LABEL_ALONE = r"(?im)^([ \t]*(?:test|val|valid|validation|eval|evaluation)\b[^\n\d:]{0,20}:[ \t]*)\r?\n(?=[ \t]+\S)"
"""A label whose line ends: it belongs to the indented line after it, as in PyTorch's quickstart."""
_LABEL_ALONE = re.compile(LABEL_ALONE)

MAX_BARS = 2000
"""A bar is drawn ten times a second: of more states of bars than this, as many are parsed."""
MAX_PIECE_CHARACTERS = 64 << 10
"""Of a longer line the end is parsed."""


class Table:
    """The names above the columns of figures that skorch and fastai print, which are in no row itself."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def labelled(self, line: str) -> str:
        """The line, with its names if it is a row of the table."""
        cells = _CELL_GAP.split(ANSI.sub("", line).strip(" \t|"))
        if len(cells) < MIN_COLUMNS:
            return line
        if all(_CELL_NAME.fullmatch(cell) for cell in cells):
            self._names = cells if any("loss" in cell.lower() for cell in cells) else []
        elif len(cells) == len(self._names) and all(_CELL_VALUE.fullmatch(cell) for cell in cells):
            return "  ".join(f"{name}: {cell}" for name, cell in zip(self._names, cells, strict=True))
        return line


MIN_COLUMNS = 3
_CELL_GAP = re.compile(r"\s*\|\s*|\s{2,}|\t")
_CELL_NAME = re.compile(r"[A-Za-z][\w /]*")
_CELL_VALUE = re.compile(r"[-+]?[\d.,:]+(?:e[-+]?\d+)?%?|nan|[-+]?inf|No log|None|-")


def parse_output(text: str, table: Table | None = None) -> Iterator[ProgressRecord]:
    """The progress records in `text`, which consists of whole lines or parts that end with a carriage return.

    Of very many states of bars, records are given at even distances and where a bar ends or begins. `table` keeps the
    names of columns from one call to the next.
    """
    table = table or Table()
    for piece in _thinned(re.split(r"[\r\n]+", _LABEL_ALONE.sub(r"\1 ", text))):
        yield from _parse_piece(table.labelled(piece[-MAX_PIECE_CHARACTERS:]))


def _thinned(pieces: list[str]) -> Iterator[str]:
    """The pieces without most of the states of bars that a later state of the same bar follows."""
    # A day of a bar that is redrawn ten times a second is most of a log, and parsing all of it takes minutes. The
    # states where a bar ends or another one begins are kept whatever the distance: they are what tells epochs,
    # evaluations and the training apart when the records are added up.
    bars = [number for number, piece in enumerate(pieces) if "%|" in piece]
    stride = len(bars) // MAX_BARS
    if stride < 2:
        yield from pieces
        return
    counts = {number: _COUNT.findall(pieces[number][-MAX_PIECE_CHARACTERS:]) for number in bars}
    kept = {
        number
        for index, (number, following) in enumerate(zip(bars, [*bars[1:], None], strict=True))
        if index % stride == 0 or following is None or not _goes_on(counts[number], counts[following])
    }
    yield from (piece for number, piece in enumerate(pieces) if number not in counts or number in kept)


def _goes_on(counts: list[tuple[str, str]], later: list[tuple[str, str]]) -> bool:
    """Whether both are states of one bar, the later one further on."""
    if len(counts) != 1 or len(later) != 1:
        return False
    (done, total), (later_done, later_total) = counts[0], later[0]
    return total == later_total and int(done[-18:]) <= int(later_done[-18:])  # int() refuses thousands of digits


def _parse_piece(piece: str) -> Iterator[ProgressRecord]:
    if "%|" in piece:
        yield from _bars(piece)
        *_, end = 0, *(match.end() for match in _BAR.finditer(piece))
        piece = piece[end:] if end else piece  # what a program prints right behind its bar
    logged = _LOGGED.search(piece)
    if logged is not None:
        yield from _dictionary(logged[0])
    elif "%|" not in piece and "train_runtime" not in piece:
        yield from _printed_line(piece[-MAX_LINE_CHARACTERS:])


def _bars(piece: str) -> Iterator[ProgressRecord]:
    start = 0
    for match in _BAR.finditer(piece):
        name = piece[max(start, match.start() - MAX_NAME_CHARACTERS) : match.start()].rstrip(" :").lstrip()
        start = match.end()
        if _EVALUATES.match(name):
            yield ProgressRecord(BARS, evaluating=True)
            continue
        # The name before a bar and the postfix after it may hold figures: `loss 0.4: 10%|█ | 5/50 [00:01<00:09,
        # 5it/s]`.
        figures = parse_line(f"{name} | {match[4]}" if may_have_figures(name) else match[4])
        if not int(match[1]):  # `loss: 0.00` before the first step
            figures = ProgressRecord(BARS)
        # A bar whose name is its loss, `loss: 0.37: 10%|`, is that of the training.
        trains = not name or _TRAINS.match(name) or _LOSS.match(name.lower())
        if trains and match[4].partition(",")[0].endswith(_STEP_RATES):  # else bytes, examples or files
            epochs = _EPOCHS.search(name)
            yield ProgressRecord(
                BARS,
                int(match[1]),
                int(match[2]),
                parse_clock_time(match[3]),
                bar=True,
                epochs=None if epochs is None else int(epochs[1]),
                loss=figures.loss,
                learning_rate=figures.learning_rate,
                grad_norm=figures.grad_norm,
            )
        elif figures.loss is not None:
            yield ProgressRecord(BARS, loss=figures.loss, learning_rate=figures.learning_rate)


def _dictionary(text: str) -> Iterator[ProgressRecord]:
    values = dict(re.findall(r"'(\w+)': '?([^',}]+)'?", text))  # no literal of Python where a value is nan
    numbers = {name: number for name, value in values.items() if (number := parse_number(value)) is not None}
    evaluated = {name: value for name, value in numbers.items() if name.startswith("eval_")}
    if evaluated:
        yield ProgressRecord(LOG, evaluation=evaluated, epoch=numbers.get("epoch"))
    elif "loss" in numbers:
        figures: dict[str, Any] = {name: numbers.get(name) for name in ("loss", "learning_rate", "grad_norm", "epoch")}
        yield ProgressRecord(LOG, **figures)


def _printed_line(piece: str) -> Iterator[ProgressRecord]:
    if not may_have_figures(piece):
        epoch_line = _EPOCH_LINE.fullmatch(ANSI.sub("", piece)) if "poch" in piece else None
        if epoch_line is not None:
            yield ProgressRecord(LOG, epochs=int(epoch_line[2]))
        return
    text = ANSI.sub("", piece)
    row = _TABLE_ROW.fullmatch(text)
    if row is not None:
        text = "" if row[1].endswith("_loss") else f"{row[1]}: {row[2]}"  # `value_loss` is a part of the loss
    record, bar = parse_line(text), _KERAS_BAR.match(text)
    if bar is not None:
        yield ProgressRecord(BARS, int(bar[1]), int(bar[2]), loss=record.loss, bar=True)
    elif record.loss is not None:
        yield replace(record, evaluation={})
    if record.evaluation:
        yield ProgressRecord(LOG, evaluation=record.evaluation, epoch=record.epoch)


# All patterns are for text in lower case: ignoring the case would take several times as long. Each begins with a plain
# word that must be there, which keeps them linear; `may_have_figures` rejects most lines first.
VALUE = r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[+-]?\d+)?))(?![\w])"
_COUNT_BEFORE_VALUE = r"\d{1,9} (?=(?:nan|[-+]?inf|[-+]?\d+\.\d+(?:e[+-]?\d+)?)(?![\w.%]))"
"""Of `print("loss", step, loss)`."""
ASSIGNED = rf"['\"\])]?\s{{0,3}}(?:[:=]\s{{0,8}}|{_COUNT_BEFORE_VALUE})?['\"(\[]?\s{{0,6}}(?:tensor\()?{VALUE}"
EVALUATION_WORDS = "val|vali|valid|validation|eval|evaluation|test|testing|dev|devel|heldout"
METRICS = (
    r"acc(?:uracy)?(?:@?\d+(?=\s?[:= ]))?|top-?[15](?:[ _]acc(?:uracy)?)?|(?:prec(?:ision)?|recall|ndcg|mrr)(?:@\d+)?"
    r"|(?:hr|hits?)@\d+|f1|ppl|perplexity|bleu|rouge\w*|auc|auroc|dice|m?iou|map|psnr|ssim|r?mse|mae|(?:mean_[as]\w{6,7}_)?error|wer|cer|bp[cb]"
)
_QUALIFIER = r"(?:[ _](?:score|coeff(?:icient)?|index|rate|value))?(?:\s?\([a-z%][^()=:]{0,11}\))?"
"""What a name may have before its value: `Dice score`, `loss (batch)`, `PSNR (dB)`."""
_LOSS = re.compile(rf"(?P<key>(?:loss(?:es)?|\bcost)[a-z_]*)(?: train)?{_QUALIFIER}{ASSIGNED}")
_METRIC = re.compile(
    rf"(?<![A-Za-z0-9])(?P<key>{METRICS})(?:_(?P<of_set>train|{EVALUATION_WORDS}))?{_QUALIFIER}{ASSIGNED}(?:\s{{0,2}}(?P<percent>%)|/(?P<of>\d+))?"
)
_NAME_CHARACTERS = " _./-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAME_LENGTH = 30
_ACCURACY_OF = re.compile(
    r"\baccuracy (?:of|on) (?=[^:=|]{0,90}\b(?:the|all|net(?:work)?|model|images|test|val(?:id(?:ation)?)?)\b)"
    rf"[^:=|]{{1,100}}(?:[:=]\s{{0,4}}|\b(?:images|set|is)\s(?=\d+\.\d+\s?%?$)){VALUE}(?:\s?(?P<percent>%))?"
)
"""Of the network or its test images, not of one class: `Accuracy of plane: 45 %`. Or without a colon at the end."""
_LABEL = re.compile(
    rf"(?<![\w.])(?:(?P<evaluates>{EVALUATION_WORDS})|train(?:ing)?)\b(?!\.py)"
    rf"(?![ _./-]{{0,2}}(?:{METRICS})\b(?!:\s+[a-z]))"
)
_CAMEL_CASE = re.compile(r"(?<=[nltdv])(?=[A-Z])")
"""Where `TrainLoss`, `ValAcc`, `EvalLoss`, `TestAcc`, `ValidLoss` and `DevLoss` begin their second word."""
_THRESHOLDS = "@["
"""`Average Precision (AP) @[ IoU=0.50:0.95 | area=large ] = 0.1`: of a dozen such lines none tells the metric alone."""
_NUMBERED_SET = re.compile(r"(?<=[a-z])_\d+_(?=[a-z])")
_NAMED_BY_LABEL = re.compile(r"(?<![\w.])(?P<key>val|valid|test)[:=]\s?(?P<value>\d+\.\d+)%?(?=[,;|\s]|$)")
"""`Loss: 1.2, Train: 0.9, Val: 0.7, Test: 0.7`, as PyTorch Geometric's examples print."""
_SEPARATORS = re.compile(r"[. _/-]+")
_EVALUATION_POSITION = re.compile(
    rf"(?<![\w.])(?:{EVALUATION_WORDS})(?: \(\w+\))?:?\s{{0,3}}\[\s{{0,4}}(?P<count>\d+)/(?P<total>\d+)\]"
)
"""`Test: [1/4]  Loss 1.7 (1.7)` is progress: the last one has the mean of all batches, in parentheses."""
_AVERAGE = re.compile(r"\s{0,2}\(\s{0,4}(?P<value>\d+\.\d+(?:e[+-]?\d+)?)\)")
_STARRED = re.compile(r"\s*\*+\s")
"""imagenet.py and its many copies print the result of an evaluation after a star."""
_DICTIONARY = re.compile(r"\{'\w+': ")
"""Metrics that are printed as a dictionary without a loss were computed by an evaluation."""
_NO_LOSS = re.compile(
    r"scal|weight|func|fn|coef|type|mask|factor|samples|steps|every|freq|interval|window|alpha|beta|lambda|margin|decay"
)
"""What a setting of the loss is called, after `loss`."""
_PERPLEXITY = frozenset({"ppl", "perplexity"})
_EXPONENTIAL = re.compile(r"(?:exp|ppl|perplexity)\([a-z_ ]*$")
_OF_AVERAGE = re.compile(r"(?:(?!\d\.\d).)*(?<![a-z])ema(?![a-z])")
"""An evaluation of the averaged weights, such as `Test (EMA): loss 1.3`; the model itself is evaluated too."""
_RECORDS = frozenset({"best", "lowest", "min", "minimum", "previous", "prev", "last", "target", "old"})
_LEARNING_RATE = re.compile(rf"(?<![a-z])(?:lr|learning[ _]rate){ASSIGNED}")
_GRAD_NORM = re.compile(rf"(?<![a-z])(?:grad(?:ient)?[ _]?norm|gnorm){ASSIGNED}")
_LINE_COUNT = r"(?P<count>\d[\d,]*)(?![\d.]*[A-Za-z%]|\.\d)"
_STEP = re.compile(
    r"(?<![\w/])(?P<name>global[ _]?step|steps?|it(?:er(?:ation)?)?s?|batch)\b['\"]?[ \t:=#\[(]{0,5}" + _LINE_COUNT
    + r"(?:\s{0,4}(?:/|of)\s{0,4}(?P<total>\d[\d,]*))?",
)  # fmt: skip
_BATCHES = re.compile(r"(?P<count>\d+)\s?/\s{0,6}(?P<total>\d+)\s?(?P<name>batches|steps|iter(?:ation)?s)\b")
_EPOCH_AND_BATCH = re.compile(r"\s*\[(?P<epoch>\d+)/(?P<epochs>\d+)\]\s?\[(?P<count>\d+)/(?P<total>\d+)\]")
"""dcgan's main.py and its many copies print both without a word."""
_EPOCH = re.compile(
    r"(?<![\w/])ep(?:och)?\b['\"]?[ \t:=#\[(]{0,5}(?P<count>\d+(?:\.\d+)?)(?:\s{0,2}(?:/|of)\s{0,2}(?P<total>\d+))?"
)


def may_have_figures(text: str) -> bool:
    """Whether a line may have a loss or a metric: a quick test."""
    text = text.lower()
    return any(word in text for word in FIGURE_WORDS)


FIGURE_WORDS = (
    *("loss", "cost", "acc", "ppl", "perplexity", "f1", "psnr", "bleu", "bpb", "dice", "iou", "val:"),
    *("auc", "rouge", "recall", "ndcg", "mrr", "hr@", "hit@", "hits@", "mse", "mae", "val=", "valid:", "valid="),
)
_METRIC_WORDS = (*FIGURE_WORDS[2:], *("top", "prec", "map", "ssim", "error", "wer", "cer", "bpc"))
_LABEL_WORDS = ("val", "test", "dev", "heldout", "train")


def parse_line(text: str) -> ProgressRecord:
    text = _NUMBERED_SET.sub("_", _CAMEL_CASE.sub("_", text.partition(_THRESHOLDS)[0]).lower())
    figures = _figures_of(text)
    counters = _EPOCH_AND_BATCH.match(text)
    if counters is None:
        return figures
    return replace(
        figures, step=int(counters["count"]), total_steps=int(counters["total"]), per_epoch=True,
        epoch=float(counters["epoch"]), epochs=int(counters["epochs"]),
    )  # fmt: skip


def _figures_of(text: str) -> ProgressRecord:
    labels = _labels(text)
    trained, evaluation = _losses(text, labels)
    name, parts = _whole_and_parts(trained)
    loss = None if name is None else trained[name]
    evaluates = loss is None and (bool(evaluation) or _DICTIONARY.search(text) is not None)
    if labels or any(word in text for word in _METRIC_WORDS):
        evaluation.update(_metrics(text, labels, evaluates))
    position = _EVALUATION_POSITION.search(text) if labels else None
    if position is not None and int(position["count"]) + 1 < int(position["total"]):  # some count from 0
        evaluation.clear()
    if evaluation and not trained and _OF_AVERAGE.match(text):
        evaluation = {f"eval_ema_{key.removeprefix('eval_')}": value for key, value in evaluation.items()}
    count = _BATCHES.search(text) or _STEP.search(text)
    epoch = _EPOCH.search(text)
    total = None if count is None else count["total"]
    return ProgressRecord(
        LOG,
        step=None if count is None else _whole(count["count"]),
        total_steps=None if total is None else _whole(total),
        per_epoch=count is not None
        and (count["name"].lower().startswith("batch") or (epoch is not None and total is not None)),
        loss=loss,
        parts=parts,
        part=name in parts,
        is_mean=name is not None and not _MEANS.isdisjoint(name.split("_")),
        learning_rate=_value(_LEARNING_RATE.search(text)),
        grad_norm=_value(_GRAD_NORM.search(text)),
        epoch=None if epoch is None else float(epoch["count"]),
        epochs=None if epoch is None or epoch["total"] is None else int(epoch["total"]),
        evaluation=evaluation,
    )


_Labels = list[tuple[int, bool]]


def _labels(text: str) -> _Labels:
    """Where the labels of a line are, and whether each is that of an evaluation."""
    # Lines such as `Train: loss 0.4 acc 0.9 | Val: loss 0.5 acc 0.8` name the set once for several figures: a label
    # counts for all that follows until the next one. `val acc 0.8` is no label, it names one metric only: that is
    # judged by the words of its own name, which count more than labels (see `_is_evaluation`).
    if not any(word in text for word in _LABEL_WORDS):
        return []
    return [(label.start(), label["evaluates"] is not None) for label in _LABEL.finditer(text)]


def _losses(text: str, labels: _Labels) -> tuple[dict[str, float], dict[str, float]]:
    """The losses of the training by their names, and that of an evaluation."""
    trained: dict[str, float] = {}
    evaluated: dict[str, float] = {}
    for match in _LOSS.finditer(text):
        name, value = _name(match), _value(match)
        words = {*name.split("_"), *re.findall(r"[a-z]+", match[0])}
        before, is_share = text[max(0, match.start() - _NAME_LENGTH) : match.start()], text[match.end() :][:1] == "%"
        # Shares are those of a profiler's table, such as of `aten::nll_loss`.
        if value is None or is_share or words & (_RECORDS | _PERPLEXITY):
            continue
        if _NO_LOSS.search(match["key"]) or _EXPONENTIAL.search(before):
            continue
        if _is_evaluation(words, labels, match.start()):
            evaluated.setdefault("eval_loss", _mean_of(text, match, value))
        else:
            trained.setdefault(name, value)
    return trained, evaluated


def _mean_of(text: str, match: re.Match[str], value: float) -> float:
    """The mean in parentheses after a value of the last batch."""
    mean = _AVERAGE.match(text, match.end())
    return value if mean is None else float(mean["value"])


def _whole_and_parts(losses: Mapping[str, float]) -> tuple[str | None, dict[str, float]]:
    """The name of the loss of the training, and those losses that are parts of it."""
    # Of `loss_ce 1.2 loss_kl 0.1 total_loss 1.3` the sum is what the optimizer minimizes. Without a sum the first loss
    # is taken, which nearly every script prints before its parts, unless that of `backward()` is known: `reconst_loss`
    # may be a part, and `mlm_loss` all that there is.
    totals = [name for name in losses if "total" in name or _WHOLE_WORDS.issuperset(name.split("_"))]
    parts = {name: value for name, value in losses.items() if name not in totals}
    plain = [name for name in totals if name in ("loss", "train_loss") or "total" in name]
    return next(iter([*plain, *totals, *losses]), None), parts


def _metrics(text: str, labels: _Labels, evaluates: bool) -> dict[str, float]:
    """The metrics of an evaluation. `evaluates`: all metrics of the line are."""
    metrics: dict[str, float] = {}
    for match in _METRIC.finditer(text):
        words, value = {*_name(match).split("_"), match["of_set"] or ""}, _value(match)
        if value is None or words & (_RECORDS | _TRAINING):
            continue
        if evaluates or _STARRED.match(text) or _is_evaluation(words, labels, match.start()):
            value = value / float(match["of"]) if match["of"] and float(match["of"]) else value
            metrics.setdefault("eval_" + match["key"].lower().replace(" ", "_"), _mean_of(text, match, value))
    for match in _NAMED_BY_LABEL.finditer(text):
        metrics["eval_" + match["key"]] = float(match["value"])
    sentence = _ACCURACY_OF.search(text)
    if sentence is not None and (value := _value(sentence)) is not None and not re.search(r"\btrain", sentence[0]):
        metrics["eval_accuracy"] = value
    return metrics


def _is_evaluation(words: set[str], labels: _Labels, start: int) -> bool:
    if words & (_TRAINING | _EVALUATION):
        return not words & _TRAINING
    return next((evaluates for label_start, evaluates in reversed(labels) if label_start < start), False)


_EVALUATION = frozenset(EVALUATION_WORDS.split("|"))
_TRAINING = frozenset({"train", "training"})
_MEANS = frozenset({"epoch", "mean", "avg", "average"})
_WHOLE_WORDS = frozenset({"loss", "losses", "cost", "batch", "running", "step", "iter", "current"}) | _MEANS | _TRAINING


def _name(match: re.Match[str]) -> str:
    # Patterns begin at `loss` or `acc`; what stands before it without a separator such as `:` or `=` belongs to the
    # name.
    before = match.string[max(0, match.start() - _NAME_LENGTH) : match.start()]
    words = before[len(before.rstrip(_NAME_CHARACTERS)) :] + match["key"]
    return _SEPARATORS.sub("_", words.lower()).strip("_")


def _value(match: re.Match[str] | None) -> float | None:
    return None if match is None else parse_number(match["value"].rstrip("."))  # 1.2.3 is a version or an address


def _whole(text: str) -> int:
    return int(text.replace(",", ""))
