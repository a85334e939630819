"""What is said about errors that no row of the table explains, and what of a message is read for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.advice.crash.outputs import read, read_yaml
from tuner_tui.advice.crash.crash_words import FACTS, FILE, facts_in, meaning_of

PACKAGES = "/opt/env/lib/python3.11/site-packages/"
HEAD = "Traceback (most recent call last):\n"


def frames(*places: str) -> str:
    """A traceback of `file:function|statement`, outermost first; a file of a package begins with @."""
    lines = []
    for frame_text in places:
        file, _, rest = frame_text.partition(":")
        function, _, statement = rest.partition("|")
        lines += [f'  File "{file.replace("@", PACKAGES)}", line 7, in {function}', f"    {statement or 'call()'}"]
    return HEAD + "\n".join(lines) + "\n"


def listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


TQDM = "Epoch {}:  10%|#  | {}/60 [00:02<00:09, 1.1it/s, loss=0.8]"
RICH = "Epoch 0/9 ━━━━╸━━━ {}/60 0:00:05 • 0:00:10 19.5it/s train_loss: 0.8"
PROGRAM = "/home/ann/train.py:<module>|main()"


@pytest.mark.parametrize(
    ("places", "error", "cause"),
    [
        (("@spam/model.py:build|raise ValueError(text)",), "ValueError: depth is 7", "bad-arguments"),
        (("@spam/model.py:build|return table[key]",), "ValueError: depth is 7", "program-error"),
        (("@spam/model.py:build|raise SpamError(text)",), "spam.SpamError: depth is 7", "unknown"),
        (("@spam/model.py:build|raise RuntimeError(",), "RuntimeError: depth must be odd", "bad-arguments"),
        (("@spam/model.py:build|raise RuntimeError(",), "RuntimeError: the plate broke", "unknown"),
        (("@spam/model.py:build|return plates[name]",), "KeyError: 'large'", "program-error"),
        (("@spam/model.py:inner|raise ValueError(text)",), "ValueError: depth is 7", "bad-arguments"),
        (("@torch/_dynamo/side_effects.py:store|assert a is b",), "AssertionError: cell is lost", "compile-failed"),
        (("@bitsandbytes/nn.py:forward|raise RuntimeError(",), "RuntimeError: rows must be even", "bad-arguments"),
        (("@transformers/modeling_utils.py:from_pretrained|raise ValueError(",), "ValueError: no", "bad-arguments"),
        (("@spam/io.py:load_checkpoint|raise Exception(",), "Exception: strange keys", "checkpoint-io"),
        (("/src/megatron/core/utils.py:ensure|assert a == b",), "AssertionError: 3 is odd", "bad-arguments"),
        (("torch/jit/plates.py:build|raise ValueError(text)",), "ValueError: depth is 7", "bad-arguments"),
        (
            ("@torchmetrics/plate.py:__new__|raise ValueError(",),
            "ValueError: arg `n` must be of type int",
            "bad-arguments",
        ),
        (("_plates.pyx:spam.Plates.build",), "ValueError: depth is 7", "bad-arguments"),
        (("@datasets/load.py:load|raise ValueError(",), "ValueError: Undefined plate 'a'", "bad-arguments"),
        (("@deepspeed/runtime/zero/stage3.py:step|raise ValueError(",), "ValueError: a plate is bent", "bad-arguments"),
    ],
)
def test_an_error_of_a_package_is_named_by_what_its_code_does(places: tuple[str, ...], error: str, cause: str) -> None:
    (finding,) = read(frames(PROGRAM, *places) + error)
    assert finding.cause == cause
    assert finding.evidence[0] == error


def test_what_a_package_says_comes_before_what_is_known_of_its_part() -> None:
    error = "ValueError: the plates of rank 2 are of two sizes"
    (refused,) = read(frames(PROGRAM, "@torchmetrics/plate.py:update|raise ValueError(") + error)
    assert refused.remedies[0].why.startswith("the plates of rank 2 are of two sizes")
    (broken,) = read(frames(PROGRAM, "@torchmetrics/plate.py:update|return a[b]") + "IndexError: 9")
    assert "predictions and labels" in broken.remedies[0].title


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("@spam/optim/bake.py:load_state_dict|read(plate)", "ValueError: the plate of slot 4 is bent"),
        ("@deepspeed/runtime/zero/stage3.py:step|bake(plate)", "RuntimeError: the plate of slot 4 is bent"),
        ("@unsloth/models/plates.py:bake|plate.rim", "AttributeError: the plate has no rim"),
    ],
)
def test_where_an_error_was_raised_is_no_reason_so_its_words_are_shown(place: str, error: str) -> None:
    (finding,) = read(frames(PROGRAM, place) + error)
    assert finding.sentence.endswith(f": {error}")


def test_code_that_hands_an_error_on_is_not_what_to_check() -> None:
    (finding,) = read(frames(PROGRAM, "@joblib/parallel.py:retrieve|return future.get()") + "SpamError: no plate")
    assert "joblib" not in finding.remedies[0].title


@pytest.mark.parametrize(
    ("name", "kind"),
    [("PlateDataset", True), ("list", True), ("PlateProcessor", True), ("PlateCache", False), ("PlateConfig", False)],
)
def test_a_wrong_kind_of_object_is_no_matter_of_releases(name: str, kind: bool) -> None:
    error = f"AttributeError: '{name}' object has no attribute 'rim'"
    (finding,) = read(frames(PROGRAM, "@spam/plate.py:load|turn(plate)") + error)
    assert (finding.remedies[0].name == "kind-of-object") is kind or name == "list"
    assert (finding.cause == "program-error") is kind


@pytest.mark.parametrize(
    ("file", "name", "remedies"),
    [
        ("/home/ann/bake.py", "rims", ["package-or-module"]),
        ("/home/ann/bake.py", "rims.oven", ["submodule"]),
        ("/home/ann/bake.py", "train_rims", ["own-module"]),
        ("/home/ann/rims.py", "rims", ["own-module"]),
        ("/home/ann/bake.py", "peft", ["install-package"]),
        ("/home/ann/bake.py", "sklearn", ["install-package"]),
        ("/opt/env/lib/python3.11/site-packages/oven/bake.py", "rims", ["install-package"]),
    ],
)
def test_a_module_that_may_be_a_file_of_the_program_is_not_only_installed(
    file: str, name: str, remedies: list[str]
) -> None:
    (finding,) = read(
        f"""Traceback (most recent call last):
  File "/home/ann/start.py", line 3, in <module>
    import bake
  File "{file}", line 7, in <module>
    import {name}
ModuleNotFoundError: No module named '{name}'
"""
    )
    assert [remedy.name for remedy in finding.remedies] == remedies


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("train.py: error: argument --size: invalid choice: 'largo' (choose from 'small', 'large')", "write large for"),
        ("train.py: error: unrecognized arguments: --lerning-rate 3", "write learning_rate for lerning-rate"),
        (
            "plates:\n  max_plates: 9\nCould not override 'kitchen.max_plate'.\nKey 'max_plate' is not in struct",
            "write max_p",
        ),
        ("train.py: error: unrecognized arguments: --ovens 3", "correct the argument or setting"),
        (
            "TypeError: bake() got an unexpected keyword argument 'per_device_train_batch_size'",
            "bring the packages",
        ),
    ],
)
def test_a_name_that_is_near_is_offered(text: str, title: str) -> None:
    (finding,) = read(text)
    assert finding.remedies[0].title.startswith(title)


@pytest.mark.parametrize(
    ("end", "sentences"),
    [
        ("2026-03-01 10:00:02 ERROR no plate has the column 'rim'", ["no plate has the column 'rim'"]),
        ("2026-03-01 10:00:02 ERROR no plate has the column 'rim'\nINFO going on", []),
        ("Training completed.\n2026-03-01 10:00:02 ERROR no plate has the column 'rim'", []),
        ("2026-03-01 10:00:02 WARNING no plate has the column 'rim'", []),
        ("2026-03-01 10:00:02 ERROR no plate has a rim\nexit status 1", ["no plate has a rim"]),
        ("2026-03-01 10:00:02 ERROR no plate has a rim\nepoch 3 loss 0.31", []),
        ("Fatal: plates of version 7 are bent", ["Fatal: plates of version 7 are bent"]),
        ("2026-03-01 10:00:02 ERROR no plate was sent, will retry later", []),
        ("The training failed plates: 0, rims: 3", []),
        ("The training aborted: early stopping, the plates are round", []),
        (
            "The training failed after 3 plates: the oven is cold",
            ["The training failed after 3 plates: the oven is cold"],
        ),
    ],
)
def test_an_error_that_ends_the_output_is_told(end: str, sentences: list[str]) -> None:
    findings = read("2026-03-01 10:00:01 INFO start\n" + end)
    assert [finding.sentence.partition("ended: ")[2] for finding in findings] == sentences


@pytest.mark.parametrize(
    "line",
    [
        "n1:12:34 [0] rims.cc:70 NCCL WARN Rims : no plate interface left",
        "[1700000000.123456] [n1:12 :0] rim.c:9 UCX ERROR plate 3 is bent",
        "[W1201 10:00:00.000 socket.cpp:697] [c10d] The IPv6 network addresses of (oven, 29500) cannot be retrieved",
        "2026-03-01 10:00:01.000001: E external/plates/rim.cc:12] failed call to turnRim",
        'time="2026-03-01T10:00:00Z" level=error msg="no plate for the rim"',
        "[error] no plate for the rim",
        "[ 1234.567890] plates 0000:1c:00.0: uncorrectable rim detected",
        "rim.o: undefined reference to `turn_plate'",
        "rsync: plate closed unexpectedly (0 rims)",
        "\u2718 the plate has no rim",
        "Could not open the plate of the rim",
    ],
)
def test_an_output_never_ends_with_an_error_in_silence(line: str) -> None:
    (finding,) = read(f"loading the plates\n{line}\nthe rim\n")
    assert finding.confidence in ("possible", "likely")
    assert finding.evidence[0] in line
    for end in ("epoch 3 loss 0.31", "INFO going on", "Training completed."):
        assert not read(f"loading the plates\n{line}\nthe rim\n{end}\n")


def test_of_errors_that_stand_together_at_the_end_the_first_is_shown() -> None:
    lines = [f"n1:12:34 [0] rims.cc:70 NCCL WARN Rims : no plate {number}" for number in (1, 2, 3)]
    (finding,) = read("\n".join(("[ERROR] plate 0 is bent", *("turning",) * 4, *lines)))
    assert finding.sentence == f"The output ends with an error: {lines[0]}"


def test_an_error_is_shown_by_its_heading_or_by_the_line_that_it_announces() -> None:
    (finding,) = read("loading the plates\nPlate validation error\n" + "plates -> rim   extra rims not permitted\n" * 5)
    assert finding.sentence == "The output ends with an error: Plate validation error"
    (finding,) = read(
        "loading\nF external/plates/rim.cc:9] Non-OK-status: turn.status()\nStatus: INTERNAL: rim 3 is bent"
    )
    assert "rim 3 is bent" in finding.sentence


@pytest.mark.parametrize("line", ["test error: 0.31", "Unable to turn the rim, using plates instead", "no plate error"])
def test_other_words_at_the_end_are_no_error(line: str) -> None:
    assert not read(f"loading the plates\n{line}\n")


@pytest.mark.parametrize(
    ("places", "part"),
    [
        (("@spam/plate.py:turn|raise SpamError(text)",), "A check in spam failed"),
        (("@spam/plate.py:turn|return core.turn(plate)",), "A call into spam failed"),
        (("/home/ann/rim.py:turn|core.turn(plate)",), "A line of the program failed"),
        (("/home/ann/rim.py:__getitem__|self.rims.take(9)", "@spam/rim.py:take|raise SpamError(text)"), "The data set"),
        (
            ("@spam/__init__.py:<module>|TABLE = fill()", "@spam/rim.py:fill|raise SpamError(text)"),
            "A module could not",
        ),
    ],
)
def test_an_error_that_nothing_explains_is_named_by_the_code_that_failed(places: tuple[str, ...], part: str) -> None:
    (finding,) = read(frames(PROGRAM, *places) + "spam.SpamError: the plate broke")
    assert finding.sentence.startswith(part)
    assert finding.sentence.endswith(": spam.SpamError: the plate broke")


def test_starts_that_end_alike_are_counted() -> None:
    def start(plate: int, error: str) -> str:
        begin = f"=== plate {plate} ===\nLoading the rims of plate {plate}\nThe oven has 3 plates\nepoch 1 loss 0.9\n"
        return begin + frames(PROGRAM, "/home/ann/train.py:main|rim = rims[plate]") + error + "\n"

    alike = "".join(start(number, "KeyError: 'round'") for number in (1, 2, 3))
    (finding,) = read(alike)
    assert finding.evidence[-1].startswith("this message stands 3 times in the log")
    (other,) = read(alike + start(4, "ZeroDivisionError: division by zero"))
    assert not any("times in the log" in text for text in other.evidence)


def test_a_package_run_from_a_clone_is_named() -> None:
    places = ("/home/ann/spam/spam/train.py:<module>|main()", "/home/ann/ham/ham/base.py:setup|return target(**kwargs)")
    (finding,) = read(frames(*places) + "TypeError: __init__() got an unexpected keyword argument 'rim'")
    assert finding.remedies[0].title.startswith("install the release of ham")


@pytest.mark.parametrize(
    ("statement", "error", "title"),
    [
        ("raise ImportError(", "ImportError: `pool` requires `ham-lib>=0.6`.", "install ham-lib"),
        ("raise RuntimeError(", "RuntimeError: Eggs is not installed, so no plate", "install Eggs"),
        ("raise ImportError(", "ImportError: this release has no plate", "install the package named in the error"),
        ("import ham.plate", "ModuleNotFoundError: No module named 'ham.plate'", "bring ham"),
    ],
)
def test_a_package_that_misses_another_is_not_named_itself(statement: str, error: str, title: str) -> None:
    (finding,) = read(frames(PROGRAM, f"@spam/plate.py:build|{statement}") + error)
    assert finding.cause == "missing-package"
    assert finding.remedies[0].title.startswith(title)


def test_the_package_to_install_is_not_the_class_that_is_not_available() -> None:
    error = "ImportError: PlateLoader is not available. Please install eggs version 0.8 or higher to use it."
    (finding,) = read(frames(PROGRAM, "@spam/plate.py:build|raise ImportError(") + error)
    assert finding.remedies[1].title == "install eggs"


def test_the_interrupt_of_a_library_without_threads_is_no_wish_of_a_user() -> None:
    thread = "OpenBLAS blas_thread_init: pthread_create failed for thread 5 of 64: Resource temporarily unavailable\n"
    (finding,) = read(thread + frames(PROGRAM, "@numpy/core/__init__.py:<module>|import umath") + "KeyboardInterrupt")
    assert "processes and threads" in finding.sentence


def test_the_cell_of_a_notebook_is_a_line_of_the_program() -> None:
    cell = "[<ipython-input-3-596e2e7dce1c>](https://localhost:8080/#) in <cell line: 2>()\n----> 2 oven.turn()\n\n"
    error = "AttributeError: 'Oven' object has no attribute 'turn'"
    (finding,) = read(f"AttributeError     Traceback (most recent call last)\n{cell}{error}")
    assert "in <cell line: 2> (<ipython-input-3-596e2e7dce1c>): `oven.turn()`" in finding.evidence
    assert "Python" not in finding.sentence


def test_the_package_that_lacks_a_name_is_one_of_those_that_do_not_fit() -> None:
    stack = frames(PROGRAM, "@transformers/rims.py:<module>|from torch.rims import Rim")
    (finding,) = read(f"{stack}ImportError: cannot import name 'Rim' from 'torch.rims' ({PACKAGES}torch/rims.py)")
    assert finding.remedies[0].title.startswith("bring torch, transformers to")


def test_the_caller_of_a_package_is_one_of_those_that_do_not_fit() -> None:
    stack = frames(PROGRAM, "@setfit/trainer.py:__init__|rims(oven)", "@transformers/rims.py:call|oven=self.oven")
    (finding,) = read(f"{stack}AttributeError: 'RimTrainer' object has no attribute 'oven'")
    assert "transformers, setfit" in " ".join(remedy.title for remedy in finding.remedies)


def test_a_package_that_is_not_passed_an_argument_is_of_another_release() -> None:
    stack = frames(
        PROGRAM, "@transformers/oven.py:turn|rim.on_turn(**rims)", "@spam/rim.py:on_turn|rim = kwargs['rim']"
    )
    (finding,) = read(f"{stack}KeyError: 'rim'")
    assert finding.remedies[0].title.startswith("bring spam and the package that calls it to releases that fit")


def test_a_program_run_from_its_source_tree_is_a_package() -> None:
    (finding,) = read(frames("/src/verl/verl/trainer/fit.py:fit|rows[9]") + "IndexError: list index out of range")
    assert "program's own code" not in finding.sentence
    assert any("verl's fit" in remedy.title for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("frame", "is_own"),
    [("/home/ann/rows.py:read|total = count + name", True), ("@spam/rows.py:read|total = count + name", False)],
)
def test_only_a_line_of_the_program_is_to_be_changed(frame: str, is_own: bool) -> None:
    (finding,) = read(frames(PROGRAM, frame) + "TypeError: can only concatenate list (not 'str') to list")
    assert finding.remedies[0].title.startswith("print the type of each value in the line") == is_own
    assert finding.remedies[0].title.startswith("print the types of what your call passes to spam") != is_own


def test_a_check_does_not_repeat_the_message() -> None:
    error = "RuntimeError: ring is broken at slot 4, please report a bug to Spam."
    (finding,) = read(frames(PROGRAM, "@spam/ring.py:turn|turn(4)") + error)
    assert finding.remedies[0].why.startswith("`turn(4)` in spam failed")


@pytest.mark.parametrize("row", read_yaml(FILE)["refusals"], ids=lambda row: row["example"])
def test_what_a_refusal_asks_for_is_one_of_the_first_remedies(row: dict[str, Any]) -> None:
    title = re.sub(r"\\{\w+\\}", ".+", re.escape(row["why"]))
    assert any(re.fullmatch(title, each) for each in refused(row["example"])[:2])
    for other in listed(row.get("counter_example", "ValueError: no")):
        assert not any(re.fullmatch(title, each) for each in refused(other))


def test_a_refusal_is_named_by_what_its_words_say_is_wrong() -> None:
    for error, say in (
        ("ValueError: plate_size must be specified", "Something that is needed here was not given"),
        ("ValueError: pixel_values must be provided", "The model lacks an input that it needs"),
        ("ValueError: plates*rims (7) exceeds the number of ovens (4)", "A length or number exceeds its limit"),
        ("ValueError: the plate broke", "A value is refused"),
    ):
        (finding,) = read(frames(PROGRAM, "/home/ann/train.py:main|raise ValueError(text)") + error)
        assert finding.sentence.startswith(f"{say}: ")


def refused(example: str) -> list[str]:
    """The titles of the remedies for an exception that a package raises, with the statement below it if it has one."""
    error, _, statement = example.partition("\n")
    (finding,) = read(frames(PROGRAM, f"@spam/model.py:build|{statement or 'raise ValueError(text)'}") + error)
    return [remedy.title for remedy in finding.remedies]


@pytest.mark.parametrize("row", read_yaml(FILE)["faults"].values(), ids=lambda row: row["say"])
def test_a_message_is_read_as_a_thing_and_what_is_wrong_with_it(row: dict[str, str]) -> None:
    assert meaning_of(row["example"])[0].endswith(f" {row['say']}")
    assert meaning_of(row["counter_example"]) == ("", ())


def test_what_is_read_from_a_message_is_said_and_comes_before_where_to_look() -> None:
    error = "AssertionError: label 9 of the plates is out of range"
    (finding,) = read(frames(PROGRAM, "@spam/model.py:build|turn(plate)") + error)
    assert finding.sentence.startswith("A check in spam failed")
    (finding,) = read(frames(PROGRAM, "@spam/model.py:build|turn(plate)") + error.replace(" of the plates", ""))
    assert finding.sentence == "A label or class is out of range: AssertionError: label 9 is out of range"
    assert finding.remedies[0].title.startswith("make labels and model agree")
    assert finding.remedies[1].title == "check what reaches spam's build"


@pytest.mark.parametrize("rest", ["1" * 60, "=a" * 40, "and a " * 40, "'a' " * 40])
def test_a_long_message_is_read_in_time(rest: str) -> None:
    assert meaning_of(f"ValueError: label {rest} broke") == ("", ())


def test_each_reading_is_of_things_and_faults_that_there_are() -> None:
    document, earlier = read_yaml(FILE), set[tuple[str, str]]()
    for row in document["readings"]:
        assert set(row["of"]) <= set(document["things"])
        assert set(row["is"]) <= set(document["faults"])
        pairs = {(thing, fault) for thing in row["of"] for fault in row["is"]}
        assert pairs - earlier, row["fix"][0]
        earlier |= pairs


@pytest.mark.parametrize("row", read_yaml(FACTS), ids=lambda row: row["title"][:60])
def test_the_numbers_and_names_of_a_message_make_a_remedy(row: dict[str, Any]) -> None:
    title = re.sub(r"\\{\w+\\}", ".+", re.escape(row["title"]))
    for example in listed(row["example"]):
        (fact,) = facts_in(example)
        assert re.fullmatch(title, fact.title)
        assert not re.search(r"\{\w+\}", f"{fact.title} {fact.why}")
    for other in listed(row.get("counter_example", [])):
        assert not any(re.fullmatch(title, each.title) for each in facts_in(other))


def test_no_argument_is_to_be_checked_where_a_package_lacks_a_name() -> None:
    def titles(error: str) -> list[str]:
        (finding,) = read(frames(PROGRAM, "/home/ann/axolotl/src/axolotl/bake.py:bake|return tail[0]") + error)
        return [offer.title for offer in finding.remedies if offer.title.startswith("check what reaches")]

    assert titles("IndexError: list index out of range")
    assert titles("NameError: name 'tail' is not defined") == []


@pytest.mark.parametrize(
    "error",
    [
        "AttributeError: 'Plate' object has no attribute 'trun'. Did you mean: 'turn'?",
        "NameError: name 'trun' is not defined. Did you mean: 'turn'?",
        "TypeError: turn() got an unexpected keyword argument 'trun'. Did you mean 'turn'?",
    ],
)
def test_the_nearest_name_is_advice_only_for_a_line_of_the_users_own_code(error: str) -> None:
    def offers(file: str) -> str:
        (finding,) = read(frames(PROGRAM, f"{file}:bake|trun()") + error)
        return "\n".join(offer.title for offer in finding.remedies)

    assert "write `turn` for `trun`" in offers("/home/ann/bake.py")
    remote = "/home/ann/.cache/huggingface/modules/transformers_modules/ann/plate/modeling_plate.py"
    for file in ("@plates/bake.py", "/home/ann/axolotl/src/axolotl/bake.py", remote, "<string>"):
        assert not re.search("write `turn`|as the message says", offers(file)), file


def test_an_error_without_message_takes_the_one_that_was_logged_above_it() -> None:
    program = frames(PROGRAM, "@spam/plate.py:load|raise FileNotFoundError()") + "FileNotFoundError"
    (logged,) = read("ERROR:spam.plate:No plate at '/data/plate-7'\n" + program)
    assert "No plate at '/data/plate-7'" in logged.evidence
    (silent,) = read("INFO:spam.plate:No plate at '/data/plate-7'\n" + program)
    assert silent.remedies[0].title == "check what reaches spam's load"


@pytest.mark.parametrize(
    ("error", "names_release"),
    [
        ("RuntimeError: the plate is too hot", False),
        ("AttributeError: 'Plate' object has no attribute 'rim'", True),
        ("AttributeError: 'NoneType' object has no attribute 'rim'", False),
    ],
)
def test_a_release_is_suspected_only_where_the_error_points_at_it(error: str, names_release: bool) -> None:
    (finding,) = read(frames(PROGRAM, "@spam/plate.py:load|turn(plate)") + error)
    assert any("release" in offer.title for offer in finding.remedies) is names_release


def test_a_condition_in_a_message_is_quoted() -> None:
    error = "ValueError: The option `deep_sync` requires that all spam is on one plate"
    (finding,) = read(frames(PROGRAM, "@spam/model.py:build|raise ValueError(") + error)
    assert finding.remedies[0].title.startswith("`deep_sync` requires that all spam is on one plate")


def test_a_refused_setting_is_named_in_the_remedy() -> None:
    error = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Plate\nsize\n  Input should be a number"
    )
    (finding,) = read(frames(PROGRAM, "@pydantic/main.py:__init__") + error)
    assert "size Input should be a number" in finding.remedies[0].why


def test_what_a_worker_forwards_is_explained_as_itself() -> None:
    inner = frames("@torch/utils/data/_utils/worker.py:_worker_loop", "/home/ann/rows.py:__getitem__|return rows[i]")
    text = frames(PROGRAM, "@torch/_utils.py:reraise|raise exception") + (
        "IndexError: Caught IndexError in DataLoader worker process 0.\nOriginal " + inner + "IndexError: 9 of 4 rows"
    )
    (finding,) = read(text)
    assert finding.cause == "program-error"
    assert finding.evidence[0] == "IndexError: 9 of 4 rows"
    assert "workers 0" not in finding.remedies[0].title


def test_a_native_crash_is_placed_by_the_stack_of_python() -> None:
    stack = (
        "Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 3 in wait\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        f'  File "{PACKAGES}spam/reader.py", line 9 in get_batch\n  File "/home/ann/train.py", line 7 in main\n'
    )
    (finding,) = read(stack)
    assert "spam's get_batch" in finding.remedies[0].title
    assert not any("PYTHONFAULTHANDLER" in offer.title for offer in finding.remedies)


def test_what_a_program_logged_before_its_launcher_failed_is_quoted() -> None:
    text = "ERROR - train - No rows found. Please check `train_rows`.\n" + (
        frames("/env/bin/accelerate:<module>|main()")
        + "subprocess.CalledProcessError: Command '['/env/bin/python', 'a.py']' returned non-zero exit status 1."
    )
    (finding,) = read(text)
    assert "No rows found" in finding.sentence
    assert "check `train_rows`" in finding.remedies[0].why


def test_a_message_in_the_box_of_a_parser_is_read_whole() -> None:
    (finding,) = read("╭─ Error ───────────╮\n│ No such option: --depht │\n│ Perhaps --depth? │\n╰────────────╯\n")
    assert finding.cause == "bad-arguments"
    assert "--depht Perhaps --depth?" in finding.remedies[0].why


CUT_OFF = '  File "/src/a.py", line 9, in turn\n    raise {0}(n)\n{0}: rim 4'


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("Error in call to target 'src.plates':\nPlateError('no plate of size 9')", "PlateError: no plate of size 9"),
        (CUT_OFF.format("Bent"), "Bent: rim 4"),
        (CUT_OFF.format("Exception"), "Exception: rim 4"),
        (HEAD + '  File "<generated>", line 9, in turn\nPlateViolation: no list', "PlateViolation: no list"),
        ("7.1s\t1\t" + (HEAD + CUT_OFF).format("KeyError").replace("\n", "\n7.2s\t2\t"), "KeyError: rim 4"),
    ],
)
def test_an_exception_is_read_in_any_form(text: str, headline: str) -> None:
    (finding,) = read(text)
    assert finding.evidence[0] == headline


@pytest.mark.parametrize(
    ("above", "is_shown"),
    [
        ("train: WARNING no labels found in /data/plates", True),
        ("WARNING: labels not found, nonexistent paths: /data/plates", True),
        ("WARNING: FutureWarning: a missing argument is deprecated", False),
        ("step 3 of 9", False),
        ("Oven setup failed: libplates.so is missing", True),
        ("oven: 12 of 12 samples were skipped", True),
        ("oven: 3 of 12 samples were skipped", False),
    ],
)
def test_a_warning_above_an_error_of_python_is_looked_at_first(above: str, is_shown: bool) -> None:
    error = "ValueError: not enough values to unpack (expected 3, got 0)"
    (finding,) = read(f"{above}\n" + frames(PROGRAM, "@spam/plate.py:load|a, b, c = zip(*plates)") + error)
    assert (finding.remedies[0].name == "logged-before") is is_shown
    assert (above in finding.evidence) is is_shown


def test_a_module_that_refuses_is_named_with_its_message() -> None:
    places = (PROGRAM, "@transformers/quantizers/plates.py:set_up|raise ValueError(")
    (finding,) = read(frames(*places) + "ValueError: plates of 3 bits. Use `bits=4` instead.")
    assert finding.sentence.endswith("ValueError: plates of 3 bits. Use `bits=4` instead.")
    assert [offer.name for offer in finding.remedies] == ["do-as-it-says", ""]
    (finding,) = read(frames(*places) + "ValueError: plates of 3 bits")
    assert finding.remedies[0].name == "quantization-setup"
    assert "plates of 3 bits" in finding.remedies[0].why


def test_a_part_is_no_hint_where_a_package_says_what_it_refuses() -> None:
    places = (PROGRAM, "@spam/stack.py:collate_plates|raise ValueError(")
    (refused,) = read(frames(*places) + "ValueError: the plates are hot")
    (failed,) = read(frames(PROGRAM, "@spam/stack.py:collate_plates|stack(a)") + "spam.HeatError: plates are hot")
    assert "columns" not in [offer.name for offer in refused.remedies]
    assert "columns" in [offer.name for offer in failed.remedies]


def test_the_line_of_a_clone_that_called_a_package_is_shown() -> None:
    places = (PROGRAM, "/home/ann/src/llamafactory/plates.py:step|loss, plates = super().step(batch)")
    (finding,) = read(frames(*places, "@spam/model.py:split|return plates.halve()") + "TypeError: half a plate")
    assert any(text.startswith("in step (/home/ann/src/llamafactory/plates.py") for text in finding.evidence)
    assert any("called by `loss, plates = super().step(batch)`" in remedy.why for remedy in finding.remedies)


@pytest.mark.parametrize(("ran", "is_said"), [(600_100, False), (7_200_000, True)])
def test_a_wait_far_beyond_its_limit_is_said(ran: int, is_said: bool) -> None:
    line = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, "
    (finding,) = read(f"{line}Timeout(ms)=600000) ran for {ran} milliseconds before timing out.")
    assert any("stood still" in text for text in finding.evidence) is is_said


@pytest.mark.parametrize(("steps", "causes"), [(1, ["gpu-oom"]), (9, [])])
def test_a_rank_that_failed_is_not_cleared_by_the_last_step_of_another(steps: int, causes: list[str]) -> None:
    error = frames(PROGRAM, "@torch/nn/functional.py:linear") + "torch.OutOfMemoryError: CUDA out of memory."
    of_rank = "\n".join(f"[rank3]: {line}" for line in error.split("\n"))
    before = "".join(f"{{'loss': 2.0, 'epoch': 0.{step}}}\n" for step in range(1, 5))
    after = "".join(f"{{'loss': 1.0, 'epoch': 1.{step}}}\n" for step in range(1, steps + 1))
    assert [finding.cause for finding in read(f"{before}{of_rank}\n{after}")] == causes


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [
        (TQDM.format(0, 12), TQDM.format(0, 12), True),
        (TQDM.format(0, 12), TQDM.format(0, 14), False),
        (TQDM.format(0, 12), TQDM.format(0, 14) + "\nsrun: error: n1: task 0: Exited with exit code 1", True),
        (TQDM.format(0, 60), TQDM.format(1, 2), False),
        (TQDM.format(0, 12), "Plates: 100%|##| 4/4 [00:02<00:00, 2.0it/s, loss=0.5]", True),
        (RICH.format(12), RICH.format(12), True),
        (RICH.format(12), RICH.format(14), False),
        ("{'loss': 2.0, 'epoch': 1}", "Training finished", True),
    ],
)
def test_only_the_count_of_the_same_bar_shows_that_the_training_went_on(before: str, after: str, failed: bool) -> None:
    error = frames("/home/ann/train.py:<module>|train()") + "ValueError: no plate"
    assert bool(read(f"{before}\n{error}\n{after}")) is failed


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [("", "", True), ("", "\nINFO step 12", False), ("\nTraining completed.", "", False)],
)
def test_the_end_of_a_thread_is_that_of_the_training_where_nothing_follows(
    before: str, after: str, failed: bool
) -> None:
    error = "Exception in thread Thread-4:\n" + frames("@threading.py:run|self._target()") + "RuntimeError: no plate"
    assert bool(read(f"step 11{before}\n{error}{after}")) is failed


def test_a_notebook_names_an_exception_of_any_class_in_its_header() -> None:
    text = "PlatePool    Traceback (most recent call last)\nCell In[3], line 41\n---> 41 turn()\n\nPlatePool: it broke"
    (finding,) = read(text)
    assert "PlatePool: it broke" in finding.sentence


def test_what_a_job_system_cancels_comes_after_what_failed() -> None:
    cancelled = "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-03-01T10:00:00 ***"
    lost = frames("/home/ann/train.py:<module>|train()") + "ConnectionResetError: [Errno 104] Connection reset by peer"
    assert [finding.cause == "interrupted" for finding in read(cancelled)] == [True]
    assert [finding.cause == "interrupted" for finding in read(f"{cancelled}\n{lost}")] == [False]


@pytest.mark.parametrize(("rest", "failed"), [("plate 3 done\n" * 4, False), ("", True)])
def test_an_error_that_is_announced_as_skipped_is_a_note(rest: str, failed: bool) -> None:
    error = frames("@plates/fit.py:fit|turn()") + "MemoryError: no room for a plate"
    assert bool(read(f"plate 1 done\nWarning: plate 2 failed ... Skipping this plate.\n{error}\n\n{rest}")) is failed


def test_a_compiler_comes_before_the_import_of_what_it_did_not_build() -> None:
    built = "fatal error: cuda_runtime.h: No such file or directory\ncompilation terminated.\n"
    (finding,) = read(
        built + frames("/home/ann/train.py:<module>|import rims") + "ModuleNotFoundError: No module named 'rims'"
    )
    assert finding.cause == "compile-failed"


def test_the_error_of_a_cancelled_task_is_the_cause() -> None:
    task = frames("@spam/loop.py:run|await plate") + "asyncio.exceptions.CancelledError"
    raised = frames("@spam/loop.py:sync|raise PlateTimeoutError") + "spam.PlateTimeoutError"
    (finding,) = read(f"{task}\n\nThe above exception was the direct cause of the following exception:\n\n{raised}")
    assert finding.evidence[0] == "spam.PlateTimeoutError"


def test_words_below_the_first_line_come_before_what_is_known_of_the_part() -> None:
    places = (PROGRAM, "@monai/transforms/io/plate.py:turn|raise RuntimeError(")
    (finding,) = read(frames(*places) + "RuntimeError: no reader for a.plate\n    Please install the reader libraries.")
    assert (finding.cause, finding.remedies[0].why) == ("missing-package", "Please install the reader libraries")


def test_a_certain_error_of_the_program_comes_before_an_unsure_one_below_it() -> None:
    certain = "RuntimeError: The size of tensor a (6) must match the size of tensor b (7) at non-singleton dimension 3"
    unsure = "ValueError: Batch size 32 must be divisible by the number of plates 3."
    (finding,) = read(frames(PROGRAM) + certain + "\n" + frames(PROGRAM) + unsure)
    assert finding.evidence[0] == certain


SPAM = "@spam/loop.py:fit|self.step(batch)"
ZERO = "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("places", "is_offered"),
    [
        ((PROGRAM, "/home/ann/train.py:step|plate.rim"), True),
        ((PROGRAM, SPAM, "/home/ann/train.py:step|plate.rim"), True),
        ((PROGRAM, "@numpy/core.py:turn|plate.rim"), True),
        ((PROGRAM, SPAM), False),
        ((PROGRAM, SPAM, "@numpy/core.py:turn|plate.rim"), False),
    ],
)
def test_only_the_author_of_a_line_is_asked_to_look_at_its_values(places: tuple[str, ...], is_offered: bool) -> None:
    (finding,) = read(frames(*places) + ZERO)
    assert any("what it is computed from" in offer.title for offer in finding.remedies) is is_offered


@pytest.mark.parametrize(("places", "title"), [((PROGRAM,), "reshape"), ((PROGRAM, SPAM), "release of spam")])
def test_a_package_whose_line_failed_can_be_replaced_only(places: tuple[str, ...], title: str) -> None:
    error = (
        "RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans)"
    )
    (finding,) = read(frames(*places) + error)
    assert title in finding.remedies[0].title


@pytest.mark.parametrize(
    ("places", "is_passed_on"),
    [((PROGRAM, SPAM, "@torch/rim.py:turn|raise ValueError(text)"), False), ((PROGRAM, SPAM), True)],
)
def test_what_a_tool_tells_its_caller_is_not_advice_for_the_user(places: tuple[str, ...], is_passed_on: bool) -> None:
    (finding,) = read(frames(*places) + "ValueError: the rim is bent. Use turn_plate(rim) to bend it back.")
    assert any("turn_plate(rim)" in offer.why for offer in finding.remedies) is is_passed_on


@pytest.mark.parametrize("word", ["Done.", "All done!", "finished"])
def test_the_last_word_of_a_script_is_no_progress(word: str) -> None:
    excerpt = frames("@spam/rim.py:turn|raise ValueError(text)").removeprefix(HEAD)
    assert [finding.cause for finding in read(f"{excerpt}ValueError: a rim is bent\n{word}")] == ["bad-arguments"]
