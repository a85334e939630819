"""What is offered where only a log is known."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.advice.crash.outputs import CUDA_27, CUDA_113, HEALTHY_END, HEALTHY_START, read, read_yaml, trace
from tests.fakes.situations import box, make_gpu
from tuner_tui.advice.crash.failed_operation import FILE as FAILED_OPERATIONS
from tuner_tui.advice.crash.failed_operation import Explanation, explain
from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Raised
from tuner_tui.runs.log_parsing.failures import find_exceptions
from tuner_tui.runs.log_parsing.lines import parse_lines

STEP = ("main", "train", "loop", "step")


def remedies(text: str) -> tuple[Remedy, ...]:
    (finding,) = read(text)
    return finding.remedies


@pytest.mark.parametrize(
    ("frames", "first", "never"),
    [
        (STEP, "halve the micro batch", "evaluation"),
        (("main", "train", "loop", "evaluate", "evaluation", "predict"), "halve the evaluation batch", "accumulation"),
        (("main", "train", "loop", "adam"), "8-bit optimizer", "evaluation"),
        (("main", "pretrained"), "16 bits", "micro batch"),
        (("main", "train", "loop", "save", "torch-save"), "gather the checkpoint on the host", "evaluation"),
    ],
)
def test_the_ladder_belongs_to_where_memory_ran_out(frames: tuple[str, ...], first: str, never: str) -> None:
    titles = [remedy.title for remedy in remedies(trace(CUDA_27, *frames))]
    assert first in next(title for title in titles if "PYTORCH_ALLOC_CONF" not in title)
    assert not any(never in title for title in titles)


def test_evaluation_is_told_of_predictions_and_metrics() -> None:
    offered = " ".join(f"{remedy.title} {remedy.why}" for remedy in remedies(trace(CUDA_27, "main", "evaluate")))
    assert "eval_accumulation_steps" in offered
    assert "preprocess_logits_for_metrics" in offered


def test_results_of_an_evaluation_that_fill_the_host_are_not_kept() -> None:
    error = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 3865470566 bytes."
    assert remedies(trace(error, "main", "evaluate", "evaluation"))[0].name == "metrics-in-parts"


@pytest.mark.parametrize(("given", "is_offered"), [("[20]", False), ("[5, 2]", True)])
def test_a_shape_that_lacks_a_dimension_is_no_multiple(given: str, is_offered: bool) -> None:
    names = {remedy.name for remedy in remedies(f"RuntimeError: shape mismatch: plates of [20, 2], rims of {given}")}
    assert ("multiple-size" in names) is is_offered


FULL = "CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.90 GiB total capacity; {} already allocated; 51.75 MiB free; {} reserved in total by PyTorch)"  # noqa: E501


@pytest.mark.parametrize(
    ("message", "closes"),
    [
        (CUDA_27.replace("Including", "Process 811 has 9.50 GiB memory in use. Including"), True),
        (CUDA_27, False),
        (CUDA_27.replace("23.46 GiB memory in use", "9.20 GiB memory in use"), True),
        (CUDA_113, False),
        ("RuntimeError: " + FULL.format("2.1 GiB", "2.4 GiB"), True),
        ("RuntimeError: " + FULL.format("14.1 GiB", "14.9 GiB"), False),
        (CUDA_27.replace("Including", "Process 811 has 17179869184.00 GiB memory in use. Including"), False),
    ],
)
def test_another_process_on_the_gpu_is_closed_first(message: str, closes: bool) -> None:
    assert remedies(trace(message, *STEP))[0].title.startswith("end the other process") is closes


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("ValueError: The split is empty. Try to lower `max_length`. It was 8", "Try to lower `max_length`"),
        ("KeyError: metric not logged. HINT: Did you call self.log('acc')?", "HINT: Did you call self.log('acc')"),
        (
            "ValueError: 'a' is used twice. Provide another. Call `plates.clear()` first.",
            "Provide another; Call `plates.clear()` first",
        ),
    ],
)
def test_a_message_that_says_what_to_do_is_followed(message: str, advice: str) -> None:
    assert remedies(trace(message, "main", "launch"))[0].why == advice


@pytest.mark.parametrize(
    ("message", "position"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", 1),
        ("RuntimeError: CUDA out of memory. Please lower --max-num-seqs.", 0),
        ("RuntimeError: CUDA out of memory. Please try again.", None),  # it names nothing to change
        ("RuntimeError: CUDA out of memory. Please check the size of the samples and try again.", None),
        ("RuntimeError: CUDA out of memory. Please check `max_plates`.", 0),
        ("RuntimeError: CUDA out of memory. Set CUDA_LAUNCH_BLOCKING=1 to see the line.", None),
        ("ValueError: Asking to pad but the tokenizer does not have a padding token. Use `tokenizer.add_pad`.", 1),
    ],
)
def test_what_the_message_says_comes_before_what_is_said_for_the_cause(message: str, position: int | None) -> None:
    titles = [remedy.title for remedy in remedies(trace(message, *STEP))]
    assert len(titles) > 1 or position is None
    assert (titles.index("do as the message says") if "do as the message says" in titles else None) == position


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (("main", "launch"), ("call_1()", "/home/ann/train.py, line 11")),
        (("main", "launch", "train", "loop"), ("transformers", "_inner_training_loop", "/home/ann/train.py")),
    ],
)
def test_an_unknown_error_names_the_call_to_check(frames: tuple[str, ...], named: tuple[str, ...]) -> None:
    for message in (
        "RuntimeError: the 7th shard is short",
        "RuntimeError: bad. Please report a bug to the developers.",
    ):
        (remedy,) = remedies(trace(message, *frames))
        assert all(name in f"{remedy.title} {remedy.why}" for name in named)


OWN_CODE = """Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/transformers/trainer.py", line 8, in train
    batch = next(batches)
  File "/home/ann/rows.py", line 31, in select
    {statement}
{error}"""


@pytest.mark.parametrize(
    ("raised_by", "is_of_torch"),
    [("jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: ", False), ("RuntimeError: ", True)],
)
def test_remedies_that_speak_of_torch_are_for_torch(raised_by: str, is_of_torch: bool) -> None:
    (finding,) = read(trace(f"{raised_by}DNN library initialization failed.", "main"))
    assert any("torch" in remedy.title for remedy in finding.remedies) == is_of_torch


OPERATIONS = read_yaml(FAILED_OPERATIONS)


def explanation_of(text: str, package: str) -> Explanation | None:
    """What is said of a source line and the error below it."""
    statement, error = text.split("\n")
    (failure,) = find_exceptions(parse_lines(OWN_CODE.format(statement=statement, error=error).split("\n")))
    return explain(failure, package)


def shown(explanation: Explanation) -> str:
    return f"{explanation.sentence}; {explanation.remedies[0].title}"


@pytest.mark.parametrize("row", OPERATIONS["rows"], ids=lambda row: row["example"].replace("\n", " "))
def test_an_error_of_python_is_explained_by_its_line_and_message(row: dict[str, Any]) -> None:
    package = "spam" if row.get("foreign") else ""
    form = re.sub(r"\\{\w+\\}", ".*", re.escape(f"{row['say']}; {row['fix'][0][0]}"))
    explanation, counter_explanation = (explanation_of(row[name], package) for name in ("example", "counter_example"))
    assert explanation is not None
    assert re.fullmatch(form, shown(explanation), re.IGNORECASE)
    assert counter_explanation is None or not re.fullmatch(form, shown(counter_explanation), re.IGNORECASE)
    assert len(explanation.remedies) == len(row["fix"])
    assert "{" not in str([(remedy.title, remedy.why) for remedy in explanation.remedies]).replace("{key: type", "")


# What any code may raise, in Python's own words.
PLAIN_ERRORS = (
    "KeyError: 'rim'",
    "KeyError: '/rims/9.png'",
    "AttributeError: 'Plate' object has no attribute 'rim'",
    "AttributeError: 'dict' object has no attribute 'rim'",
    "AttributeError: 'list' object has no attribute 'rim'",
    "AttributeError: 'str' object has no attribute 'rim'",
    "AttributeError: 'Tensor' object has no attribute 'rim'",
    "AttributeError: 'float' object has no attribute 'rim'",
    "AttributeError: 'NoneType' object has no attribute 'rim'",
    "AttributeError: module 'plates' has no attribute 'rim'",
    "IndexError: list index out of range",
    "IndexError: index 9 is out of bounds for axis 0 with size 3",
    "IndexError: index 0 is out of bounds for axis 0 with size 0",
    "ValueError: not enough values to unpack (expected 2, got 1)",
    "ValueError: not enough values to unpack (expected 2, got 0)",
    "TypeError: 'NoneType' object is not subscriptable",
    "TypeError: 'int' object is not callable",
    "TypeError: string indices must be integers",
    "TypeError: bake() got an unexpected keyword argument 'rim'",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
    "UnboundLocalError: local variable 'rim' referenced before assignment",
    "NameError: name 'rim' is not defined",
    "ZeroDivisionError: division by zero",
    "AssertionError",
    "StopIteration",
    "NotImplementedError",
    "RuntimeError: plate",
    "ValueError: plate",
    "TypeError: plate",
)
DIAGNOSIS = re.compile(r"(?:print|look|compare|check|read|find|search|if)\b")


@pytest.mark.parametrize("row", OPERATIONS["rows"], ids=lambda row: row["example"].replace("\n", " "))
def test_a_reason_rests_on_more_than_the_class_of_an_exception(row: dict[str, Any]) -> None:
    if "code" not in row and any(re.search(row["error"], error) for error in PLAIN_ERRORS):
        assert [fix[0] for fix in row["fix"] if not DIAGNOSIS.match(fix[0])] == []


def test_an_explanation_heads_the_finding_and_names_the_line() -> None:
    (finding,) = read(OWN_CODE.format(statement="return batch['tail']", error="KeyError: 'tail'"))
    assert finding.sentence == "There is no `tail` in `batch`"
    assert "`return batch['tail']` in /home/ann/rows.py, line 31" in finding.remedies[0].why


def test_a_setting_that_was_passed_on_is_named_as_its_caller_does() -> None:
    text = OWN_CODE.format(statement="with open(path) as file:", error="TypeError: expected str, not NoneType")
    (finding,) = read(text.replace("batch = next(batches)", "select(args.path)"))
    assert finding.sentence == "`args.path` is None"


@pytest.mark.parametrize(
    ("statement", "marks", "name"),
    [
        ("total = left['rim'] + right['rim']", "                     ~~~~~^^^^^^^", "`right`"),
        ("total = left['rim'] + right['rim']", "", "`left` or `right`"),
        ("for plate, rim in zip(plates, rims[0]):", "", "`plates` or `rims[0]`"),
        ("plates=self.stack(rims['rim'],", "", "`rims`"),
        ("elif rims['rim'] > 3:", "", "`rims`"),
        ("rim: list[int] = rims['rim']", "", "`rims`"),
        ("rim = rims.pop('rim')", "", "`rims`"),
        ("table[number]['rim'] = rims", "", "`table[number]`"),
    ],
)
def test_the_object_is_read_from_the_marked_part_or_the_line(statement: str, marks: str, name: str) -> None:
    error = "TypeError: 'NoneType' object is not iterable" if "zip" in statement else "KeyError: 'rim'"
    (finding,) = read(OWN_CODE.format(statement=statement, error=f"    {marks}\n{error}" if marks else error))
    assert name in finding.sentence


@pytest.mark.parametrize(
    ("statement", "error", "cause"),
    [
        (
            "total = left @ right",
            "RuntimeError: the native code gave up",
            "unknown",
        ),  # no statement of Python raised it
        ("raise ValueError(text)", "ValueError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu-oom"),
    ],
)
def test_another_cause_is_not_taken_for_an_error_of_the_own_code(statement: str, error: str, cause: str) -> None:
    assert [finding.cause for finding in read(OWN_CODE.format(statement=statement, error=error))] == [cause]


def test_what_a_package_refuses_names_its_check_and_the_line_that_called_it() -> None:
    first, second = remedies(
        'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in <module>\n    fit(rows)\n'
        '  File "/opt/env/lib/python3.11/site-packages/trl/trainer.py", line 9, in _check_rows\n'
        "    raise ValueError(text)\nValueError: row 7 has no reward"
    )
    assert first.title == "look at what the call passes to it"
    assert "_check_rows" in second.title
    assert "`fit(rows)` in /home/ann/train.py, line 3" in second.why


def test_the_output_shows_where_the_exception_that_was_observed_was_raised() -> None:
    state = RunState(raised=Raised(t=2.0, rank=0, type="KeyError", message="'tail'"))
    log = OWN_CODE.format(statement="return batch['tail']", error="KeyError: 'tail'").split("\n")
    (finding,) = crash_findings(Situation(state, 3.0, log=tuple(log)))
    assert finding.cause == "program-error"


def test_an_assertion_without_a_message_is_given_with_its_statement() -> None:
    (finding,) = read(
        'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in <module>\n'
        "    assert world_size == 4\n           ^^^^^^^^^^^^^^^\nAssertionError\n"
    )
    assert "`world_size == 4` does not hold" in finding.sentence


def test_an_error_in_a_loader_process_is_given_as_it_was_raised() -> None:
    (finding,) = read(
        trace("KeyError: Caught KeyError in DataLoader worker process 0.", "main", "loader")
        + '\nOriginal Traceback (most recent call last):\n  File "/home/ann/data.py", line 9, in __getitem__\n'
        "    return self.rows[index]\nKeyError: 'row-7'\n"
    )
    assert finding.cause == "program-error"
    assert finding.evidence[0] == "KeyError: 'row-7'"


def test_a_renamed_argument_comes_before_other_releases() -> None:
    error = "TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'"
    first, second = remedies(trace(error, *STEP))
    assert "num_items_in_batch →" in first.title
    assert "releases that fit together" in second.title


BF16 = "ValueError: Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train on CPU."


@pytest.mark.parametrize(
    ("capability", "wanted"), [((7, 5), "fp16"), ((7, 0), "fp16"), ((8, 6), "fp16"), ((3, 7), "fp32"), (None, "fp16")]
)
def test_bf16_gives_way_to_fp16_where_the_gpu_has_it(capability: tuple[int, int] | None, wanted: str) -> None:
    inventory = None if capability is None else box(make_gpu(capability=capability))
    log = tuple(trace(BF16, "main", "arguments").split("\n"))
    (finding,) = crash_findings(Situation(RunState(), 0.0, inventory=inventory, log=log))
    assert finding.remedies[0].change == {"precision": wanted}


def test_weights_in_fp16_are_not_answered_with_fp32_training() -> None:
    first = remedies(trace("ValueError: Attempting to unscale FP16 gradients.", *STEP))[0]
    assert "dtype=torch.float32" in first.title
    assert "precision" not in first.change


WARNING = (
    "/opt/env/torch/utils/data/dataloader.py:627: UserWarning: This DataLoader will create 8 worker processes in total."
    " Our suggested max number of worker in current system is 2, which is smaller than what this DataLoader is going to"
    " create."
)


def test_pytorch_warning_of_too_many_workers_is_a_hint() -> None:
    log = (HEALTHY_START + WARNING + "\n" + HEALTHY_END).split("\n")
    (finding,) = diagnose(Situation(RunState(), 0.0, log=tuple(log)))
    assert (finding.cause, finding.severity) == ("too-many-workers", "hint")
    assert "8 loader workers share 2 cores" in finding.sentence
    assert finding.remedies


def test_advice_in_a_later_paragraph_belongs_to_the_message() -> None:
    error = "datasets.exceptions.DatasetGenerationCastError: no table\n\nPlease give `rows.csv` a header (see docs)\n"
    assert "Please give `rows.csv` a header" in remedies(trace(error, "main"))[1].why
    counter_explanation = remedies(trace(f"{error.partition('Please')[0]}Please wait = 4\n", "main"))
    assert not any("Please" in remedy.why for remedy in counter_explanation)


def test_words_about_kernels_fit_the_maker_of_the_gpu() -> None:
    (first, *_) = remedies("Memory access fault by GPU node-2 (Agent handle: 0x5) on address 0x7f. Reason: Unknown.")
    assert "AMD_SERIALIZE_KERNEL=3" in first.why
    error = trace("RuntimeError: CUDA error: an illegal memory access was encountered", "main")
    (first, *others) = remedies(error)
    assert "CUDA_LAUNCH_BLOCKING=1" in first.title
    assert not any("compile" in each.title for each in others)
    assert any("compile" in each.title for each in remedies(f"torch._inductor is on\n{error}"))


def test_a_single_remedy_that_is_not_certain_is_followed_by_the_call_that_failed() -> None:
    error = "ValueError: plates option is not compatible with round tables"
    assert any("train.py" in remedy.why for remedy in remedies(trace(error, "main"))[:2])


def test_the_marked_line_of_a_drawn_traceback_is_shown() -> None:
    (finding,) = read(
        "----\nKeyError                 Traceback (most recent call last)\n/home/ann/rows.py in pick(rows)\n"
        "      8     names = {}\n----> 9     return names['tail']\n\nKeyError: 'tail'\n"
    )
    assert "`return names['tail']` in /home/ann/rows.py" in finding.remedies[0].why


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:5, unhandled error\nLast error:\n",
            "no such device",
        ),
        (
            "RuntimeError: FATAL ERROR :: MODULE:PT_BRIDGE Exception in Launch thread\n",
            "Plate failed. synStatus 7 [Bent].",
        ),
    ],
)
def test_the_line_that_says_more_is_shown(error: str, line: str) -> None:
    (finding,) = read(trace(f"{error}{line}", "main"))
    assert line in finding.evidence


def test_a_colon_announces_the_rest_of_the_message() -> None:
    error = "InvalidArgumentError: Graph execution error:\n\nlogits and labels must have the same first dimension\n"
    assert [finding.cause for finding in read(trace(error, "main"))] == ["program-error"]


def test_what_a_spawned_process_raised_is_the_cause() -> None:
    spawned = trace("Exception:\n\n-- Process 1 terminated with the following error:", "main")
    (finding,) = read(f"{spawned}\n{trace('ValueError: rows=0 of table 7', 'main')}")
    assert "rows=0 of table 7" in finding.evidence[0]


def in_frame(file: str, message: str, statement: str = "call_1()") -> str:
    return (
        'Traceback (most recent call last):\n  File "/home/ann/train.py", line 7, in <module>\n    main()\n'
        f'  File "{file}", line 9, in turn\n    {statement}\n{message}'
    )


@pytest.mark.parametrize(
    ("before", "package", "first", "never"),
    [
        ("mode=train, batch=4, imgsz=640\n", "ultralytics", "(`batch=`)", "LoRA|8-bit|checkpointing"),
        ("mode=train, batch=1, imgsz=640\n", "ultralytics", "smaller images (`imgsz=`", "halve"),
        ("train_batch_size: 1\n", "transformers", "checkpointing", "halve"),
        ("train_batch_size: 16\neval_batch_size: 1\n", "transformers", "halve", "autocast"),
        ("trainable params: 9 || trainable%: 0.2\n", "transformers", "halve", "LoRA$"),
    ],
)
def test_memory_remedies_are_those_of_the_program(before: str, package: str, first: str, never: str) -> None:
    full = CUDA_27.replace("988.41", "88.41")
    log = before + in_frame(f"/opt/env/lib/python3.11/site-packages/{package}/plate.py", full)
    titles = [remedy.title for remedy in remedies(log)]
    assert first in titles[0]
    assert not any(re.search(never, title) for title in titles)


@pytest.mark.parametrize(
    ("message", "first"),
    [
        ("The size of tensor a (66) must match the size of tensor b (67) at non-singleton dimension 3", "one more"),
        ("The size of tensor a (6) must match the size of tensor b (7) at non-singleton dimension 3", "3 is 6"),
        ("The size of tensor a (257) must match the size of tensor b (1025) at non-singleton dimension 1", "spectro"),
        ("The size of tensor a (0) must match the size of tensor b (9) at non-singleton dimension 1", "empty"),
        ("The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0", "0 is 4"),
        ("could not broadcast input array from shape (1,56,0) into shape (1,56,192)", "empty"),
    ],
)
def test_the_sizes_of_a_message_choose_the_remedy(message: str, first: str) -> None:
    offers = remedies(in_frame("/home/ann/plate.py", f"RuntimeError: {message}"))
    assert first in " ".join(offer.title for offer in offers[:2])


def test_sizes_of_three_and_four_in_a_sample_are_channels() -> None:
    message = "RuntimeError: The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0"
    file = "/opt/env/lib/python3.11/site-packages/torchvision/transforms/functional.py"
    assert "another number of channels" in remedies(in_frame(file, message))[0].title


def test_lines_of_a_tracker_are_no_advice() -> None:
    offered = remedies(
        "ValueError: no plate\nwandb: Waiting.\nwandb: You can sync this run by running:\nwandb: wandb sync x"
    )
    assert not any("sync" in remedy.why for remedy in offered)


@pytest.mark.parametrize(
    ("module", "title", "command"),
    [
        ("google.protobuf.text_format", "install protobuf", "pip install protobuf;"),
        ("yaml", "install pyyaml", "pip install pyyaml;"),
        ("clip", "install clip", "pip install git+https://github.com/openai/CLIP;"),
    ],
)
def test_a_module_is_installed_by_the_name_that_pip_has_for_it(module: str, title: str, command: str) -> None:
    first = remedies(trace(f"ModuleNotFoundError: No module named '{module}'", "main"))[0]
    assert first.title == title
    assert command in first.why


@pytest.mark.parametrize(
    ("before", "never"),
    [
        ("gradient_checkpointing: true\n", "^gradient checkpointing on$"),
        ("max_length: 128\n", "shorter sequences"),
        ("--load_in_4bit --lora\n", "4 bits"),
    ],
)
def test_what_the_output_shows_to_be_so_is_not_offered(before: str, never: str) -> None:
    log = trace(CUDA_27.replace("988.41", "88.41"), *STEP)
    assert any(re.search(never, remedy.title) for remedy in remedies(log))
    assert not any(re.search(never, remedy.title) for remedy in remedies(before + log))


def test_a_tracker_that_ends_the_training_itself_is_asked_for_advice() -> None:
    error = "wandb.errors.Error: Try `wandb.turn(plate=True)` before the plates are counted"
    assert any("wandb.turn" in each.why for each in remedies(trace(error, "main"))[:2])
    assert not any(
        "wandb.turn" in each.why
        for each in remedies(f"{trace('ValueError: bent', 'main')}\nwandb: Try `wandb.turn(plate=True)`")
    )


@pytest.mark.parametrize(
    ("lines", "named", "never"),
    [
        ("=>> PBS: job killed: walltime 3617 exceeded limit 3600", "-l walltime", "sbatch"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "bsub -W", "sbatch"),
        (
            "slurmstepd: error: *** JOB 81 ON n3 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***",
            "sbatch",
            "qsub",
        ),
        ("  Warning  Preempted  3s  default-scheduler  Preempted by pod 91 on node n7", "priorityClassName", "--qos"),
        ("TERM_PREEMPT: job killed after preemption.", "bqueues", "--qos"),
        ("Spot instance i-0a will be terminated in 2 minutes", "not spot", "--qos"),
    ],
)
def test_remedies_name_the_commands_of_the_job_system_that_the_log_shows(lines: str, named: str, never: str) -> None:
    words = " ".join(f"{remedy.title} {remedy.why}" for remedy in remedies(f"step 5 loss 1.2\n{lines}"))
    assert named in words
    assert never not in words


def test_a_frame_that_rich_broke_at_the_width_of_the_window_has_its_whole_path() -> None:
    box = (
        "╭──────── Traceback (most recent call last) ────────╮\n"
        "│ /opt/env/lib/python3.11/site-packages/plates/tur │\n│ ning.py:9 in turn                                 │\n"
        "│                                                   │\n│ ❱ 9 │   return rims[name]                        │\n"
        "│ /opt/env/lib/python3.11/site-packages/plates.py:7 in │\n│ bake                                           │\n"
        "│ ❱ 7 │   return plates[name]                      │\n╰───────────────────────────────────────────────────╯\n"
    )
    failure = find_exceptions(parse_lines([*box.split("\n"), "KeyError: 'tail'"]))[0]
    files = [frame.name for frame in failure.frames]
    assert files == [
        "/opt/env/lib/python3.11/site-packages/plates/turning.py:turn",
        "/opt/env/lib/python3.11/site-packages/plates.py:bake",
    ]


@pytest.mark.parametrize(
    ("error", "shown", "said"),
    [
        ("TypeError: Turner.turn() takes 2 positional arguments but 3 were given", "", "signature"),
        ("ImportError: cannot import name 'turn' from 'plates' (/opt/env/plates/__init__.py)", "", ""),
        ("ImportError: cannot import name 'turn' from 'plates' (/opt/env/plates/__init__.py)", "Unsloth", "cache"),
    ],
)
def test_releases_that_do_not_fit_are_told_with_what_the_log_shows(error: str, shown: str, said: str) -> None:
    offers = remedies(f"{shown}\n" + trace(error, "main", "train"))
    words = " ".join(offer.why for offer in offers if offer.name == "matching-releases")
    assert words
    assert [word for word in ("signature", "cache") if word in words] == [said][: bool(said)]


@pytest.mark.parametrize(
    ("start", "is_offered"), [("using ZeRO stage 3", True), ("wrapping the oven with FSDP", False)]
)
def test_a_stage_of_zero_is_offered_where_the_log_shows_no_other_way_to_split(start: str, is_offered: bool) -> None:
    titles = [remedy.title for remedy in remedies(f"{start}\nRuntimeError: 'weight' must be 2-D")]
    assert any("ZeRO stage 2" in title for title in titles) is is_offered
