"""Hides secrets in environments, command lines and text: tokens, keys, passwords, credentials in URLs.

A secret is found by its shape, such as the prefixes that services give their tokens; by its place in a known command
(`wandb login X`, `curl -u me:X`); by the name in front of it (`--db_pass X`, `HF_TOKEN=X`, `"apiKey": "X"`); or because
it is a long word of random characters. What is known of services, commands and names is in redaction.yaml.

The observer loads this file inside the training's interpreter: standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

HIDDEN = "[hidden]"
FILE = os.path.join(os.path.dirname(__file__), "redaction.yaml")  # noqa: PTH118, PTH120  pathlib would cost the observer

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[^\0]*?(?:-----END [A-Z0-9 ]*-----|(?=\0)|\Z)"
)
_CREDENTIALS = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z0-9][a-z0-9+.-]*://)[^/\s\0]+@", re.IGNORECASE)
_COOKIE = re.compile(r"(?P<scheme>\b(?:set-)?cookie:\s*)[^\s\"'\0\[][^\"'\0\n\[]*", re.IGNORECASE)
_ENCODED = re.compile("%([2-7][0-9A-Fa-f])")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\xad]")
_DISGUISED = re.compile(
    rf"(?P<name>[\w.-]{{0,60}}(?:{_ENCODED.pattern.replace('(', '(?:')}|{_INVISIBLE.pattern})"
    rf"(?:[\w.%-]|{_INVISIBLE.pattern}){{0,60}})(?P<sign>\s?[:=]\s?[\"']?)(?P<value>[^\s\0\"'&;,\[]+)"
)
"""A name with letters written as %70, or with invisible characters in between."""
_RANDOM = re.compile(r"(?<![\w/.@+%-])(?:[A-Za-z0-9+_-]{24,200}={0,2}|[A-Za-z0-9+/]{40})(?![\w/.+-])")
_RUN = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_RANDOM_RUN = 2.6
"""Characters to a run of one class, such as `Qwen` or `3`, in random words at most; camel case has 3.5."""

# Names and what stands between a name and its value. `\0` stands between the words of a command.
_HINT = re.compile(
    "pass|pwd|pw|pswd|token|key|secret|cred|auth|bearer|jwt|cookie|netrc|hook|connection|sas|sig|dsn|otp|pat"
)
"""A part of every name that can hold a secret; names without one are not looked at."""
_LOWER = {
    ord(capital): ord(capital) + 32 for capital in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
}  # keeps the length, unlike lower()
_LONGEST_NAME = 60
_NAME = re.compile(r"[\w.-]+")
_QUOTE = r"(?P<quote>\\?[\"'`])"
_ASSIGNED = re.compile(
    rf"(?:\[\d*\])?\\?[\"'`]?(?:\s?\])?\s{{0,2}}(?P<sign>:=|[!=]={{1,2}}|=>|<<<|[:=])(?!=)\s{{0,2}}@?{_QUOTE}?"
)
_NO_OPTION = r"(?!--[A-Za-z]|-[A-Za-z]{1,3}(?![^\s\0=]))"
_NEXT_WORD = re.compile(rf"\0{_NO_OPTION}|\s+{_NO_OPTION}(?P<quote>[\"'])?")
_NEXT_ITEM = re.compile(rf"\\?[\"']\s?,\s?{_QUOTE}|(?:\.\w+)?\({_QUOTE.replace('quote', 'call')}")
_SENTENCE = re.compile(
    r"[\"'`]?:?(?: [a-z]{1,12},?){0,6}(?<! for)(?<! in)(?<! of)(?<! from)(?<! to):? (?P<quote>[\"'])"
    r"|[\"'`]?\n\s+[^\n]{0,200}?\binput_value=(?P<input>[\"'])"
)
_PROSE = re.compile(
    r"(?: [a-z]{1,12}){0,2}:? (?=[^\s\0\"'`]{0,60}\d)(?=[^\s\0\"'`]{0,60}[A-Za-z])(?=[^\s\0\"'`\[]{8,})"
)
_SETTING = re.compile(r"\b(?:set|config|configure|modify)\b[^|;&\n]{0,60}[\s\0]\Z")
_SET = re.compile(r"[\s\0]+(?![-=&|])")
_BEFORE = re.compile(
    r"(?P<quote>[\"'])(?P<value>[^\"'\n]{1,200})(?P=quote)(?:\s?[!=]==?\s?[\"']?|[^\n]{0,100}\n\s+full_key: )\Z"
)
"""A value in front of its name: a comparison, and an error of Hydra."""
_TWO_WORDS = re.compile(r"\b(?:api|access|secret|private) \Z", re.IGNORECASE)
_CALL = re.compile(r"[a-z_][\w.]*[(\[]")
_UNQUOTED = re.compile(r"""(?!\[hidden)[^\s\0"',;&|<>`]+""")
_TRAILING = ")]}.:"
_QUOTED = {quote: re.compile(rf"(?:[^{quote}\\\0\n]|\\[^\0\n])+") for quote in "\"'`"}
_ESCAPED = re.compile(r"[^\\\0\n]+")
_WORD = re.compile(r"[^\0]+")
_BLANK_ENDED = re.compile(r"[^\s\0\"'\[][^\s\0\"']*")

_SWITCH = re.compile(
    r"-?\d?\.?\d|true|false|none|null|yes|no|on|off|auto|bearer|basic|digest|negotiate"
    r"|\$[A-Z_]{3,}|\$?\{+[\w.:-]*\}*|\$\{.*|\$\(.*|%[A-Z_]{3,}%|%s|<[\w -]*>"
    r"|(?:os\.)?(?:environ|getenv).*|(?:self|\w*args|config|cfg|inputs|settings|options)\.\w+"
    r"|(?:~|\.{1,2})/.*|(?:/[\w.-]+){2,}\.(?:json|pem|pub|txt)|str|int|bool|float|(?:Optional|Union|Literal)\b.*",
    re.IGNORECASE,
)
"""Values that are no secret whatever the option is called, as in `--use_auth_token true` or `--token $HF_TOKEN`."""
_HARMLESS_VALUE = re.compile(
    r"(?:/|~/|\.{1,2}/)[^=]*|[\w./-]+\.(?:json|ya?ml|txt|toml|pem|pub|key|crt|db|sqlite|ini|cfg|py)|\[?(?:\d{1,4}|-?\d*\.\d+)|\*.*"
    r"|\d+e-?\d+|[<\[].*[>\]]|<\S*|[a-z]+(?:_[a-z]+)+|[a-z_]+(?:\.[a-z_]+)+"
)
_PLAIN = re.compile(r"[A-Z]?[a-z]*(?:[_/ .-][a-z]+)*|[A-Z_ ]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUALIFIER = re.compile(
    r"(?:_?(?:\d|prod|dev|staging|backup|primary|secondary|main|b64|base64|pem|header|value|read|write|rw|ro|old|new))+$"
)
_NAMED_MORE = re.compile(
    r"(?:^|_)(?:passw(?:or)?d|secret|(?:api|private|access)_?key|db_pass)_(?:\w+_)?(?!(?:file|path|dir|folder|names?|length|len|min|max"
    r"|size|policy|prompt|stdin|type|store|manager|env|var|url|uri|host|port|field|column|ids?|version|timeout|hint|required"
    r"|enabled|mode|list|count|agent|ring|format|source|provider|class|helper|less|error)$)[a-z]+$"
)
"""A strong word that is not the last one, as in `OPENAI_API_KEY_EU`."""


class _Rules(NamedTuple):
    shape: re.Pattern[str]
    context: re.Pattern[str]
    sure: re.Pattern[str]
    likely: re.Pattern[str]
    vague: re.Pattern[str]
    harmless: re.Pattern[str]


@lru_cache(maxsize=None)  # noqa: UP033  Python 3.8
def _rules() -> _Rules:
    """The rules of redaction.yaml, compiled when they are first needed, which takes some 30 ms."""
    with open(FILE, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    joined = {
        kind: "|".join(pattern.replace("''", "'") for pattern in re.findall(rf"^- {kind}: '(.*)'$", text, re.MULTILINE))
        for kind in _Rules._fields
    }
    contexts = joined["context"].replace("SEP?", r"""(?:["'],\s?["']|[\s\0]*)""")
    contexts = contexts.replace("SEP", r"""(?:[\s\0]+|["'],\s?["'])""").replace("GAP", r"""[^|;&\n]{0,200}?[\s\0"']""")
    return _Rules(
        shape=re.compile(rf"(?<![A-Za-z0-9_-])(?=[^\s\0]{{10}}|[Bb]earer)(?:{joined['shape']})"),
        context=re.compile(rf"(?P<head>{contexts})(?P<value>(?!\[|\$\w|\$\{{|<)[^\s\0\"'&|;<>][^\s\0\"']*)"),
        **{kind: re.compile(rf"(?:{joined[kind]})$") for kind in ("sure", "likely", "vague", "harmless")},
    )


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of secrets hidden; names are kept."""
    return {
        name: HIDDEN if _hides(name, value) else redact_text(f"{name}={value}").partition("=")[2]
        for name, value in env.items()
    }


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with secrets hidden, written as `--token X`, `--token=X`, `token=X` or `https://user:X@host`.

    A word may itself be a command with several: `bash -c 'HF_TOKEN=X python train.py --token Y'`.
    """
    return _redact_words(tuple(argv))


@lru_cache(maxsize=2048)  # screens ask each second about the commands that they show
def _redact_words(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        return ()
    return tuple(redact_text("\0".join(_redact_assignment(word.replace("\0", " ")) for word in words)).split("\0"))


def redact_text(text: str) -> str:
    # From the surest to the vaguest: known shapes and places first, so that the rules by name find [hidden] where they
    # could have cut a secret in half; words that only look random last, as they may be part of what is hidden already.
    rules = _rules()
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = rules.shape.sub(HIDDEN, text)
    for start in (_CREDENTIALS, _COOKIE):
        text = start.sub(lambda match: match["scheme"] + HIDDEN + ("@" if match[0].endswith("@") else ""), text)
    text = rules.context.sub(rf"\g<head>{HIDDEN}", text)
    text = _DISGUISED.sub(_hide_disguised, text)
    text = _hide_values(text)
    return _RANDOM.sub(lambda match: HIDDEN if _looks_random(match[0]) else match[0], text)


@lru_cache(maxsize=4096)
def _certainty(name: str) -> str | None:
    """How surely something of this name is secret: `sure`, `likely`, `vague` or None."""
    rules = _rules()
    flat = _CAMEL.sub("_", name.strip("-+~.")).lower().replace("-", "_").rsplit(".", 1)[-1]
    flat = _QUALIFIER.sub("", flat) or flat
    if rules.vague.search(flat):
        return "vague"
    if rules.sure.search(flat) or _NAMED_MORE.search(flat):
        return "sure"
    return "likely" if rules.likely.search(flat) and not rules.harmless.search(flat) else None


def _hides(name: str, value: str) -> bool:
    certainty = _certainty(name)
    if not value or certainty is None or value == HIDDEN or _SWITCH.fullmatch(value):
        return False
    if certainty == "sure":
        return True
    names_column = certainty == "likely" and name.lower().endswith("key") and re.fullmatch("[a-z]+", value)
    return not (names_column or _HARMLESS_VALUE.fullmatch(value))


def _redact_assignment(word: str) -> str:
    """A word `name=value`; the whole value is hidden, blanks included, if `name` is the name of a secret."""
    name, equals, value = word.partition("=")
    hidden = equals and re.fullmatch(r"[\w.+-]+", name) and _hides(name, value)
    return f"{name}={HIDDEN}" if hidden else word


def _hide_disguised(match: re.Match[str]) -> str:
    name = _ENCODED.sub(lambda code: chr(int(code[1], 16)), _INVISIBLE.sub("", match["name"]))
    return f"{match['name']}{match['sign']}{HIDDEN}" if _hides(name, match["value"]) else match[0]


def _hide_values(text: str) -> str:
    """`text` without the values that follow the names of secrets."""
    # Looking for parts of names first leaves few places to look at, and each character is looked at a bounded number of
    # times. All of it is read before anything is replaced: a replacement would move what comes after it.
    pieces, shown_to, name_end = [], 0, 0
    for hint in _HINT.finditer(text.translate(_LOWER)):
        if hint.start() < max(shown_to, name_end):
            continue
        start = hint.start()
        while start > max(shown_to, hint.start() - _LONGEST_NAME) and (
            text[start - 1].isalnum() or text[start - 1] in "_.-"
        ):
            start -= 1
        name = _NAME.match(text, start)
        name_end = name.end() if name else hint.end()
        span = _value(text, start, name_end)
        if span is not None and span[0] >= shown_to:
            pieces += [text[shown_to : span[0]], HIDDEN]
            shown_to = span[1]
    return "".join([*pieces, text[shown_to:]])


def _value(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the secret lies that follows the name between `start` and `end`, or stands before it; None if none does."""
    name = text[start:end]
    certainty = _certainty(name)
    if certainty is None:
        return None
    if _TWO_WORDS.search(text, max(0, start - 10), start):
        certainty = "sure"
    before = text[start - 1 : start]
    quoted, option, strict = before in ("'", '"', "`"), name.startswith("-"), certainty != "sure"
    sentence = _SENTENCE.match(text, end)
    span, plain = None, not option  # plain: a word of plain letters is not the value of a name that is not sure
    if (match := _ASSIGNED.match(text, end)) and not (sentence and match["sign"] == ":" and not match["quote"]):
        span = _span(match, _UNQUOTED)
        value = text[slice(*span)] if span else ""
        looks_like_key = re.fullmatch(r"[0-9a-f]{32,}", value) is not None or _looks_random(value)
        if certainty == "vague" and not option and before not in ("?", "&") and not looks_like_key:
            return None
        if not match["quote"] and (_CALL.match(value) or value.lower().endswith(name.lower())):
            return None  # code, such as `token=get_token()` and `token=hub_token`
        plain = match["sign"] == ":" and not match["quote"] and not quoted
    elif option and (match := _NEXT_WORD.match(text, end)):
        span = _span(match, _WORD if match[0] == "\0" else _BLANK_ENDED)
    elif quoted and (match := _NEXT_ITEM.match(text, end)) and match["quote"]:
        span = _span(match, _UNQUOTED)
    elif not strict and (match := _NEXT_ITEM.match(text, end)) and match["call"]:
        span = _span(match, _UNQUOTED, "call")
    elif sentence:
        span = _span(sentence, _UNQUOTED, "quote" if sentence["quote"] else "input")
        strict = strict or not (option or quoted or sentence["input"])
    elif (not strict or name.lower() == "token") and (match := _PROSE.match(text, end)):
        span = _span(match, _UNQUOTED, None)
    elif (match := _SET.match(text, end)) and _SETTING.search(text, max(0, start - 80), start):
        span, strict = _span(match, _BLANK_ENDED, None), strict or text[end] == " "
    elif (not strict or name.lower() == "token") and (match := _BEFORE.search(text, max(0, start - 320), start)):
        span = match.span("value")
    value = text[slice(*span)] if span else ""
    hidden = re.search(r"\w", value) and _hides(name, value) and not (strict and plain and _PLAIN.fullmatch(value))
    return span if hidden else None


def _span(match: re.Match[str], unquoted: re.Pattern[str], group: str | None = "quote") -> tuple[int, int] | None:
    """Where the value lies that begins after `match`: to the closing quote if there is an opening one."""
    quote = match[group] if group else None
    pattern = unquoted if not quote else _ESCAPED if quote[0] == "\\" else _QUOTED[quote]
    value = pattern.match(match.string, match.end())
    if value is None:
        return None
    end = value.end()
    if pattern is _UNQUOTED:
        end = match.end() + len(value[0] if _SWITCH.fullmatch(value[0]) else value[0].rstrip(_TRAILING))
    return match.end(), end


def _looks_random(word: str) -> bool:
    """Whether upper case, lower case and digits alternate as only chance makes them do."""
    mixed = all(re.search(characters, word) for characters in ("[g-z]", "[A-Z]", "[0-9]"))
    return len(word) >= 24 and mixed and len(word) <= _RANDOM_RUN * len(_RUN.findall(word))
