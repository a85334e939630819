"""Hides secrets in environments, command lines and text: tokens, keys, passwords, credentials in URLs.

A secret is found by the name in front of it (`--db_pass X`, `HF_TOKEN=X`, `"apiKey": "X"`), by its place in a known
command (`wandb login X`, `curl -u me:X`), or by its shape: the prefixes that services give their tokens, most of them
from the plugins of detect-secrets (https://github.com/Yelp/detect-secrets), and long words of random characters.

The observer loads this file inside the training's interpreter: standard library only, Python 3.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "[hidden]"

_SURE = re.compile(
    r"(?:passw(?:or)?d|pass_?phrase|passcode|secrets?|credentials?|creds|bearer|jwt|cookies?|netrc|webhook(?:_?url)?"
    r"|connection_?string|authorization|secret_?key_?base"
    r"|(?:api|access|private|secret|license|account|auth|service|client|shared|signing|encryption|master|app|storage"
    r"|subscription|db|database|session|deploy|priv)_?key(?:_?id)?"
    r"|(?:api|auth|access|bearer|refresh|session|hf|hub|id|sas|bot)_?tokens?|(?:^|_)(?:pw|otp|sas|sig|dsn)"
    r"|(?:amz|goog)_(?:signature|credential)|(?:github|gitlab|gh|gl|ext|azure|databricks|snowflake)_?pat)$"
)
_LIKELY = re.compile(
    r"(?:token|(?:^|_)(?:[a-z]{0,12}pwd|key|auth)|(?:^|_)(?:ssh|db|my|sql|mysql|pg|user|key|admin|root)?pass)$"
)
_HARMLESS = re.compile(
    r"(?:^|_)(?:max|min|num|new|pad|eos|bos|unk|sep|cls|mask|per|special|sort|label|text|map|image|video|audio|start"
    r"|end|stop|boi|eoi|begin|forced|prompt|response|instruction|first|last|next|prev|target|tgt|source|src|lang"
    r"|language|extra|additional|added|blank|delimiter|separator|split|group|dict|input|output|column|col|feature"
    r"|field|json|messages?|role|content|caption|query|metric|best|monitor|cache|by|foreign|dataset|question|answer"
    r"|completion|chosen|rejected|forward|backward|single|one|two|second|multi|full|n|all|low|high|band|trigger|sub)_?"
    r"(?:[a-z]+_)*(?:token|key|pass)$"
)
_NO_SECRETS = frozenset({"pwd", "oldpwd"})
_VAGUE = frozenset({"key", "auth", "pass", "pw", "sig"})
"""Names that are only secret as an option or variable: inside a script, `key=…` is a parameter of `sorted`."""
_SWITCH = re.compile(r"-?\d?\.?\d|true|false|none|null|yes|no|on|off|auto|bearer|basic|digest|negotiate", re.IGNORECASE)
"""Values that are no secret whatever the option is called, as in `--use_auth_token true`."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUALIFIER = re.compile(r"(?:_?(?:\d+|prod|dev|staging|backup|primary|secondary|main|b64|base64|pem|header))+$")

_SHAPES = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[^\0]*?(?:-----END [A-Z0-9 ]*-----|(?=\0)|\Z)"
    r"|(?<![A-Za-z0-9_-])(?:"
    r"(?:hf|api_org)_[A-Za-z0-9]{16,}|(?:sk|pk|rk)[-_](?:live_|test_|proj-|ant-|or-)?[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9_]{20,}|github_pat_\w{20,}|gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[\w-]{16,}"
    r"|(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}|xox[a-z](?:-[A-Za-z0-9]+)+|xapp-[A-Za-z0-9-]{10,}"
    r"|eyJ[\w-]{8,}\.[\w=-]{8,}(?:\.[\w-]*)?|eyJ[\w+/=-]{40,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|dckr_pat_[\w-]{20,}"
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|key-[0-9a-f]{32}|dapi[0-9a-f]{32}"
    r"|nvapi-[\w-]{20,}|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}"
    r"|tgp_v1_[\w-]{20,}|wandb_v\d_\w{20,}|local-[0-9a-f]{40}|hv[sbr]\.[\w-]{20,}|dop_v1_[0-9a-f]{40,}|sq0[a-z]{3}-[\w-]{20,}"
    r"|shp(?:at|ss|ca|pa)_[0-9a-fA-F]{20,}|lin_api_\w{20,}|ntn_\w{20,}|AGE-SECRET-KEY-1[0-9A-Z]{20,}|SK[0-9a-f]{32}"
    r"|[0-9a-z]{32}-us\d{1,2}|\d{8,10}:[\w-]{35}|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}|[Bb]earer\s+[\w.~+/=-]{8,})"
)
_RANDOM = re.compile(r"(?<![\w/.@+%-])[A-Za-z0-9+_-]{24,200}={0,2}(?![\w/.+-])")
_RANDOM_CHANGES = 0.4
"""Share of neighbours of different classes (upper case, lower case, digit): 0.62 in random text, 0.3 in camel case."""
_CREDENTIALS = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z0-9][a-z0-9+.-]*://)[^/\s\0]+@", re.IGNORECASE)

# Heads, and the values that follow them. `\0` stands between the words of a command.
_ASSIGNED = re.compile(r"""(?<![\w.-])-{0,2}(?P<name>[A-Za-z_][\w.-]*)\\?["']?\s?[:=]\s?(?P<quote>\\?["'])?""")
_OPTION = re.compile(
    r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)(?:(?P<word>\0)|\s+)(?!--[A-Za-z]|-[A-Za-z]{1,3}(?![^\s\0=]))"
)
_SET = re.compile(r"\bset[\s\0]+(?P<name>[A-Za-z][\w.-]*)[\s\0]+")
_UNQUOTED = re.compile(r"""(?!\[hidden)[^\s\0"',;&|<>(){}\[\]]+""")
_QUOTED = re.compile(r"""[^"'\\\0\n]+""")
_WORD = re.compile(r"[^\0]+")
_BLANK_ENDED = re.compile(r"""["']?(?P<value>[^\s\0"'\[][^\s\0"']*)""")
_GAP = r"[^|;&\n]{0,200}?[\s\0]"
_PLACES = re.compile(
    r"(?P<head>"
    r"(?:authorization\s*[:=]\s*(?:(?:bearer|basic|token|digest|negotiate)\s+)?)(?!(?:bearer|basic|token|digest|negotiate)\s)(?=[^\s\0\"'\[])"
    r"|\bmachine[\s\0]+[^\s\0]+[\s\0]+login[\s\0]+[^\s\0]+[\s\0]+password[\s\0]+"
    r"|\blogin(?:[\s\0]+--?[\w-]+(?:[=\s\0]https?://[^\s\0]+)?){0,4}[\s\0]+(?=[\w-]{20})"
    r"|(?<![\w-])(?:-u|-U|--user|--proxy-user|--userpwd)[\s\0=]+[\"']?(?!\d+:\d)[^\s\0:/\"'$-][^\s\0:/\"'$]*[:%](?=[^\s\0\"'])"
    rf"|\b(?:mysql|mysqldump|mysqladmin|mariadb|7za?){_GAP}-p(?=[^\s\0])"
    rf"|\b(?:sshpass|mongo(?:sh|dump)?|(?:docker|podman|az|oc){_GAP}login)\b{_GAP}-p[\s\0]*(?=[^\s\0])"
    rf"|\bredis-cli\b{_GAP}-a[\s\0]+|\b(?:un)?zip\b{_GAP}-P[\s\0]*(?=[^\s\0])|(?<!\w)pass:"
    r"|https?://(?:hooks\.[^\s\0/\"']{1,100}|[^\s\0/\"']{1,100}(?:/[\w.-]{1,60}){0,5}?/(?:web)?hook(?:s|b2)?)/"
    r"|\b(?:tgram|discord|slack|msteams|pover|pbul|join|ifttt|ntfys?|gotifys?|matrixs?|rocket|twilio|webex|feishu|dingtalk):/{2,3}(?!/)"
    r")[^\s\0\"'\[][^\s\0\"']*",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"(?P<head>\b(?:set-)?cookie:\s*)[^\s\"'\0\[][^\"'\0\n\[]*", re.IGNORECASE)
_PROSE = re.compile(
    r"(?P<head>\b(?:password|passphrase|(?:api|access|secret|private)[ _-]?key|token|secret|credentials?)\b"
    r"(?: [a-z]{1,12}){0,2}:? [\"'`]?)(?=[^\s\0\"'`]{0,60}\d)(?=[^\s\0\"'`]{0,60}[A-Za-z])[^\s\0\"'`\[]{8,}",
    re.IGNORECASE,
)


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of secrets hidden; names are kept."""
    return {name: HIDDEN if _hides(name, value) else redact_text(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with secrets hidden, written as `--token X`, `--token=X`, `token=X` or `https://user:X@host`.

    A word may itself be a command with several: `bash -c 'HF_TOKEN=X python train.py --token Y'`.
    """
    if not argv:
        return ()
    return tuple(redact_text("\0".join(_redact_assignment(word.replace("\0", " ")) for word in argv)).split("\0"))


def redact_text(text: str) -> str:
    """Free text or a command without secrets."""
    # From the surest to the vaguest: known shapes and places first, so that the rules by name find [hidden] where they
    # could have cut a secret in half; words that only look random last, as they may be part of what is hidden already.
    text = _SHAPES.sub(HIDDEN, text)
    text = _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", text)
    for places in (_PLACES, _COOKIE):
        text = places.sub(rf"\g<head>{HIDDEN}", text)
    text = _hide_values(text)
    text = _PROSE.sub(rf"\g<head>{HIDDEN}", text)
    return _RANDOM.sub(lambda match: HIDDEN if _looks_random(match[0]) else match[0], text)


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a secret; `max_tokens` and `tokenizer` do not."""
    flat = _CAMEL.sub("_", name.strip("-+~")).lower().replace("-", "_").rsplit(".", 1)[-1]
    flat = _QUALIFIER.sub("", flat) or flat
    if _SURE.search(flat):
        return True
    return flat not in _NO_SECRETS and not _HARMLESS.search(flat) and _LIKELY.search(flat) is not None


def _hides(name: str, value: str) -> bool:
    return bool(value) and _SWITCH.fullmatch(value) is None and is_secret_name(name)


def _redact_assignment(word: str) -> str:
    """A word `name=value` with the whole value hidden, blanks included, where the name is that of a secret."""
    name, equals, value = word.partition("=")
    hidden = equals and not any(map(str.isspace, name)) and _hides(name, value)
    return f"{name}={HIDDEN}" if hidden else word


def _hide_values(text: str) -> str:
    # All heads are searched in the same text before anything is replaced: a replacement would move what the others
    # found. Of two spans that overlap the one that begins first counts.
    spans = [span for heads in (_ASSIGNED, _OPTION, _SET) for head in heads.finditer(text) if (span := _value(head))]
    pieces, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            pieces += [text[at:start], HIDDEN]
            at = end
    return "".join([*pieces, text[at:]])


def _value(head: re.Match[str]) -> tuple[int, int] | None:
    """Where the secret lies that follows a head; None if none does."""
    name, text = head["name"], head.string
    if not is_secret_name(name) and name.lower() not in _VAGUE:
        return None
    if head.re is _ASSIGNED:
        match = (_QUOTED if head["quote"] else _UNQUOTED).match(text, head.end())
        span = match and match.span()
    elif head.re is _OPTION and head["word"]:
        match = _WORD.match(text, head.end())
        span = match and match.span()
    else:
        match = _BLANK_ENDED.match(text, head.end())
        span = match and match.span("value")
    if span is None:
        return None
    value = text[span[0] : span[1]]
    if value == HIDDEN or _SWITCH.fullmatch(value):
        return None
    vague = head.re is _ASSIGNED and name.lower() in _VAGUE and not text[: head.start()].endswith(("?", "&"))
    return span if not vague or _looks_like_key(value) else None


def _looks_like_key(value: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{32,}", value) is not None or _looks_random(value)


def _looks_random(word: str) -> bool:
    """Whether upper case, lower case and digits alternate as only chance makes them do."""
    classes = [("a" if c.islower() else "A" if c.isupper() else "0" if c.isdigit() else "") for c in word]
    if len(word) < 24 or not {"a", "A", "0"} <= set(classes):
        return False
    neighbours = zip(classes, classes[1:])  # noqa: B905, RUF007  Python 3.8
    changes = sum(left != right for left, right in neighbours if left and right)
    return changes >= _RANDOM_CHANGES * len(word)
