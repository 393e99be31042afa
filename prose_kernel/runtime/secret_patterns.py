"""Patterns of secrets in texts: one list for `redaction.py`, which replaces them, and for all that refuse them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

_KEY_MARK: Final = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
PRIVATE_KEY = re.compile(f"-----BEGIN {_KEY_MARK}")
KEY_BLOCK: Final = (
    rf"-----BEGIN {_KEY_MARK}(?:(?:[A-Za-z0-9+/=\s:,.]|-(?!----)){{0,20000}}+-----END {_KEY_MARK}"
    r"|(?:\s+[A-Za-z0-9+/=]{16,128}+)*+)"
)
"""A private key with its content."""


class Find(NamedTuple):
    """A pattern to search for: the expression can only match if one of the fixed texts is present; `word` replaces the
    match.

    `kept` is an expression for what is before it, and stays. Neither has groups. Where the fixed texts are common,
    `around` is an expression that begins with one of them, for a part of each match: it is searched for first.
    """

    fixed: tuple[str, ...]
    expression: str
    word: str
    kept: str = ""
    around: re.Pattern[str] | None = None

    def may_be_in(self, text: str) -> bool:
        """Return whether the fixed texts let the expression match, whatever `kept` says of their case."""
        for fixed in self.fixed:
            if fixed in text:
                return self.around is None or self.around.search(text) is not None
        return False


def _token(name: str, fixed: Iterable[str], rest: str) -> Find:
    """A token that begins with one of the fixed texts, at the beginning of a word."""
    begin = tuple(fixed)
    head = "|".join(map(re.escape, begin))
    return Find(begin, rf"(?<![A-Za-z0-9])(?:{head}){rest}", f"«secret:{name}»")


def _cased(*words: str) -> tuple[str, ...]:
    return tuple(form for word in words for form in (word, word.upper()))


_STATED_AS: Final = r"""\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?"""
"""Also with the escaped quotes of JSON inside a text of JSON."""

_VARIED: Final = r"(?=[^\s\"']{0,200}(?:[0-9=+/]|[a-z][A-Z]))"
_SCHEMES: Final = (
    "Basic|Bearer|Digest|Token|Key|ApiKey|Api-Key|OAuth|Negotiate|NTLM|DPoP|Hawk|SharedKey|SharedAccessSignature"
    "|AWS4-HMAC-SHA256|GoogleLogin|Bot|PrivateToken"
)

# No expression looks at a piece of text more than a few times: what repeats is bounded, or never given back.
SHAPES: Final = (
    Find(("-----BEGIN",), KEY_BLOCK, "«secret:pem»"),
    Find(("://",), r"[^\s/:@?#'\"<>«]{0,256}:[^\s/?#'\"<>«]{1,400}(?=@)", "«secret:url»", r"(?<=://)"),
    Find(
        ("uthorization", "UTHORIZATION"),
        rf"{_VARIED}[A-Za-z0-9._~+/=:,-]{{6,4000}}",
        "«secret:authorization»",
        rf"(?i:authorization){_STATED_AS}(?i:{_SCHEMES})\s{{1,4}}",
    ),
    Find(
        ("earer", "EARER"),
        rf"{_VARIED}[A-Za-z0-9._~+/=-]{{16,4000}}",
        "«secret:bearer»",
        r"(?<![A-Za-z0-9])(?i:bearer)\s{1,4}",
    ),
    Find(
        _cased("secret_access_key", "session_token", "ecretAccessKey", "essionToken"),
        r"[A-Za-z0-9/+=]{40,2000}",
        "«secret:aws»",
        rf"(?i:secret_?access_?key|session_?token){_STATED_AS}",
    ),
    _token("aws", ("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Find(
        ("AccountKey=", "SharedAccessKey="),
        r"[A-Za-z0-9+/=]{30,200}",
        "«secret:azure»",
        r"(?:AccountKey|SharedAccessKey)=",
    ),
    Find(("sig=",), r"[A-Za-z0-9%+/=_-]{40,200}", "«secret:azure»", r"(?<=[?&])sig="),
    Find(("7Q~", "8Q~"), r"(?<![A-Za-z0-9~_.-])[A-Za-z0-9~_.-]{3}[78]Q~[A-Za-z0-9~_.-]{31,34}", "«secret:azure»"),
    _token("api-key", ("sk-",), r"[A-Za-z0-9_-]{16,400}"),  # OpenAI, Anthropic and many others
    _token("api-key", ("gsk_", "xai-", "pplx-", "r8_", "csk-", "fw_", "tgp_v1_"), r"[A-Za-z0-9_-]{20,200}"),
    _token("github", ("ghp_", "ghs_", "gho_", "ghu_", "ghr_"), r"[A-Za-z0-9]{20,255}"),
    _token("github", ("github_pat_",), r"[A-Za-z0-9_]{20,255}"),
    _token(
        "gitlab",
        (
            *("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-", "glagent-", "glimt-"),
            "GR1348941",
        ),
        r"[A-Za-z0-9_.-]{20,300}",
    ),
    _token("slack", ("xox",), r"[abeoprs]-[A-Za-z0-9-]{10,200}"),
    _token("slack", ("xapp-",), r"[A-Za-z0-9-]{10,200}"),
    Find(("hooks.slack.com/",), r"[A-Za-z0-9/_-]{20,200}", "«secret:slack»", r"hooks\.slack\.com/[a-z]{1,20}/"),
    _token("google", ("AIza",), r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _token("google", ("ya29.", "GOCSPX-"), r"[A-Za-z0-9_.-]{20,2000}"),
    _token("google", ("1//0",), r"[A-Za-z0-9_-]{30,200}"),
    _token("huggingface", ("hf_", "api_org_"), r"[A-Za-z0-9]{30,100}"),
    Find(("k_live_", "k_test_"), r"(?<![A-Za-z0-9])[prs]k_(?:live|test)_[A-Za-z0-9]{16,200}", "«secret:stripe»"),
    _token("stripe", ("whsec_",), r"[A-Za-z0-9+/=]{16,200}"),
    _token("twilio", ("SK",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("sendgrid", ("SG.",), r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    _token("mailgun", ("key-",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("digitalocean", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{32,64}"),
    _token("vault", ("hvs.", "hvb.", "hvr."), r"[A-Za-z0-9_-]{20,400}"),
    Find(
        ("s.",),
        r"(?<![A-Za-z0-9_.])s\.(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9])",
        "«secret:vault»",
        around=re.compile(r"s\.[A-Za-z0-9]{24}"),
    ),
    Find((":AA",), r"(?<![A-Za-z0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", "«secret:telegram»"),
    Find(
        (".",),
        r"(?<![A-Za-z0-9_.-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        "«secret:discord»",
        around=re.compile(r"\.[A-Za-z0-9_-]{6}\."),
    ),
    Find(
        ("/api/webhooks/",),
        r"[A-Za-z0-9_-]{20,100}",
        "«secret:discord»",
        r"discord(?:app)?\.com/api/webhooks/[0-9]{1,20}/",
    ),
    _token("npm", ("npm_",), r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _token("pypi", ("pypi-",), r"[A-Za-z0-9_-]{50,400}"),
    _token("databricks", ("dapi",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("shopify", ("shpat_", "shpss_", "shpca_", "shppa_"), r"[0-9a-fA-F]{32}"),
    _token("atlassian", ("ATATT3x", "ATCTT3x"), r"[A-Za-z0-9_=-]{30,400}"),
    _token("grafana", ("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{30,400}"),
    _token("token", ("lin_api_", "ntn_", "sbp_", "PMAK-", "NRAK-", "sntrys_", "dp.pt."), r"[A-Za-z0-9_=-]{20,400}"),
    Find(
        ("eyJ",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4000}+\.eyJ[A-Za-z0-9_-]{2,8000}+\.[A-Za-z0-9_-]{8,2000}",
        "«secret:jwt»",
    ),
)


_HEADS: Final = (fixed for find in SHAPES if not find.kept for fixed in find.fixed if len(fixed) > 2)
QUOTED: Final = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(re.escape(head) for head in _HEADS if head[0].isalnum())})[\w*.-]{{6,400}}"
)
"""A token that a server quotes in part, `sk-abcd***wxyz`: too short for its shape."""


# ---------------------------------------------------------------- values of variables

SHORTEST: Final = 8
"""Characters that the value of a secret-looking variable must have: shorter ones occur in ordinary text."""

PHRASE: Final = 16
LONG: Final = 20
"""Characters from which several words, or one without a break, are taken for a secret."""

_SECRET_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|COOKIE|(?:_|\A)(?:PAT|PASS|PWD)\Z",
    re.IGNORECASE,
)
_NAMES_A_PLACE: Final = re.compile(r"(?:FILE|PATH|DIR|SOCK|SOCKET)\Z|\AXAUTHORITY\Z", re.IGNORECASE)
_IN_URL: Final = re.compile(r"://[^\s/:@?#]{0,256}:([^\s/?#]{4,400})@")


def looks_secret(value: str) -> bool:
    """Whether the value of a secret-looking variable could be a secret, and not an ordinary word, number or path.

    A known token shape is one, and so is a phrase of several words; anything else has several kinds of characters, or
    is long without a break, and its characters vary.
    """
    if len(value) < SHORTEST:
        return False
    if any(value.startswith(fixed) for find in SHAPES for fixed in find.fixed if len(fixed) > 2 and not find.kept):
        return True
    if value[:1] in "/~." or "://" in value[:12]:
        return _IN_URL.search(value) is not None
    words = [word for word in re.split(r"[-_.\s]+", value) if word]
    if len(words) >= 3 and len(value) >= PHRASE:
        return True
    kinds = (str.isupper, str.islower, str.isdigit, lambda c: not c.isalnum() and c not in "-_. ")
    mixed = sum(any(kind(character) for character in value[1:]) for kind in kinds)
    counts = [value.count(character) / len(value) for character in set(value)]
    entropy = -sum(share * math.log2(share) for share in counts)
    return entropy >= (2.5 if mixed > 1 else 3.0 if len(words) == 1 and len(value) >= LONG else math.inf)


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret values of an environment with the names of their variables: values of secret-looking variables, and
    the password of a URL, whatever its variable is called."""
    names: dict[str, str] = {}
    for name, value in sorted(environment.items()):
        if _SECRET_NAME.search(name) and not _NAMES_A_PLACE.search(name) and looks_secret(value):
            names.setdefault(unicodedata.normalize("NFC", value), name)
        for password in {found for each in _IN_URL.findall(value[:4000]) for found in (each, unquote(each))}:
            if len(password) >= SHORTEST or looks_secret(password):
                names.setdefault(unicodedata.normalize("NFC", password), name)
    return names


def holds_private_key(text: str) -> bool:
    return "-----BEGIN" in text and PRIVATE_KEY.search(text) is not None


# ---------------------------------------------------------------- a value after a telling name

NAME: Final = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
"""The end of a name that says so: `GITHUB_TOKEN`, `db-password`."""

_NAMED: Final = ("token", "secret", "passw", "passphrase", "key", "credential")
"""What such a name holds."""


def folded(text: str) -> str:
    """Return a text in small letters: what `(?i)` takes for a letter is that letter."""
    lower = text.lower()
    return lower if text.isascii() else lower.translate(_FOLDED)


_FOLDED: Final = {ord("\N{LATIN SMALL LETTER DOTLESS I}"): "i", ord("\N{LATIN SMALL LETTER LONG S}"): "s", 0x307: ""}
"""The dot is what `lower` leaves of a capital I with a dot."""


def has_name(small: str) -> bool:
    """Return whether `NAME` may match in a text, which is `folded`."""
    return any(name in small for name in _NAMED)


VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s'";&|<>()]+)"""
ASSIGNED: Final = re.compile(rf"(?i)({NAME}[A-Za-z0-9_-]{{0,64}}\s*=\s*){VALUE}")
BEARER: Final = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_TOKENS: Final = tuple(find for find in SHAPES if find.expression is not KEY_BLOCK)
_IN_ANY_CASE: Final = frozenset(number for number, find in enumerate(_TOKENS) if "(?i" in find.kept)
"""Tokens whose fixed texts match in more ways than they are written."""


_NEVER: Final = "(?!)"
"""An expression that nothing matches: an empty one matches everywhere."""
_WORDS_OF_THEM: Final = ("authorization", "bearer", "access", "session")


def tokens_in(text: str) -> re.Pattern[str]:
    """Return the expression for all tokens that can be in the text: those with one of their fixed texts in it.

    The expression for all of them takes 10 microseconds a character.
    """
    small = folded(text)
    in_any_case = _IN_ANY_CASE if any(word in small for word in _WORDS_OF_THEM) else ()
    return _expression(
        tuple(number for number, find in enumerate(_TOKENS) if number in in_any_case or find.may_be_in(text))
    )


@lru_cache(128)
def _expression(numbers: tuple[int, ...]) -> re.Pattern[str]:
    parts = (f"(?:{_TOKENS[number].kept}{_TOKENS[number].expression})" for number in numbers)
    return re.compile("|".join(parts) or _NEVER)


_COUNTED: Final = re.compile(r"(?i)tokens\s*=\s*\d{1,8}\.?")
"""`max_tokens = 512` isn't a secret."""

_STATED: Final = re.compile(
    rf"""(?i){NAME}["'`*]{{0,3}}\s{{0,8}}(?::=?|=>)\s{{0,8}}"""
    r"""(?:["'`*]{0,3}(?=\S{0,200}[0-9!@#$%^&+/\\?~])[^\s"'`,;]{6,}|(["'`])[^\s"'`]{6,400}\1)"""
)
"""`password: hunter2-x`, `"token": "correcthorse"`: after a colon, which words may follow too, only texts that aren't
words, or are written as literals."""


def secret_in(text: str) -> str | None:
    """Return the kind of secret in a text, in a word; None if it holds no known one."""
    if holds_private_key(text):
        return "private-key"
    small = folded(text)
    if "bearer" in small and BEARER.search(text):
        return "bearer-token"
    if tokens_in(text).search(text):
        return "token"
    if not has_name(small):
        return None
    assigned = any(_COUNTED.fullmatch(found[0]) is None for found in ASSIGNED.finditer(text))
    return "assignment" if assigned or _STATED.search(text) else None
