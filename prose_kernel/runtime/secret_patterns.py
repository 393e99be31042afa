"""Patterns of secrets in texts: one list for `redaction.py`, which replaces them, and for all checks that refuse
them."""

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
    rf"-----BEGIN {_KEY_MARK}(?:(?>(?:[A-Za-z0-9+/=\s:,.]|-(?!----)){{0,20000}})-----END {_KEY_MARK}"
    r"|(?>(?:\s+[A-Za-z0-9+/=]{16,128}+)*))"
)
"""A private key with its content."""


class Find(NamedTuple):
    """A pattern to search for. The expression can only match if one of the fixed texts is present; `word` replaces the
    match.

    `kept` is an expression for the text before the match, which stays. Neither expression has groups. If the fixed
    texts are common, `prefilter` matches a part of each match that begins with one of them, and is searched first.
    """

    fixed: tuple[str, ...]
    expression: str
    word: str
    kept: str = ""
    prefilter: re.Pattern[str] | None = None

    def may_be_in(self, text: str) -> bool:
        """Return whether the fixed texts permit a match, ignoring that `kept` may match them in other cases."""
        for fixed in self.fixed:
            if fixed in text:
                return self.prefilter is None or self.prefilter.search(text) is not None
        return False


def _token(name: str, fixed: Iterable[str], rest: str) -> Find:
    """Return a `Find` for a token that starts with one of the fixed texts, at the beginning of a word."""
    begin = tuple(fixed)
    head = "|".join(map(re.escape, begin))
    return Find(begin, rf"(?<![A-Za-z0-9])(?:{head}){rest}", f"«secret:{name}»")


def _cased(*words: str) -> tuple[str, ...]:
    return tuple(form for word in words for form in (word, word.upper()))


_STATED_AS: Final = r"""\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?"""
"""The text between a name and its value, including escaped quotes of JSON inside a JSON text."""

_VARIED: Final = r"(?=[^\s\"']{0,200}(?:[0-9=+/]|[a-z][A-Z]))"
_SCHEMES: Final = (
    "Basic|Bearer|Digest|Token|Key|ApiKey|Api-Key|OAuth|Negotiate|NTLM|DPoP|Hawk|SharedKey|SharedAccessSignature"
    "|AWS4-HMAC-SHA256|GoogleLogin|Bot|PrivateToken"
)

# No expression reads a part of the text more than a few times: repetitions are bounded or possessive.
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
        prefilter=re.compile(r"s\.[A-Za-z0-9]{24}"),
    ),
    Find((":AA",), r"(?<![A-Za-z0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", "«secret:telegram»"),
    Find(
        (".",),
        r"(?<![A-Za-z0-9_.-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        "«secret:discord»",
        prefilter=re.compile(r"\.[A-Za-z0-9_-]{6}\."),
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
"""Matches a token that a server quotes in part, `sk-abcd***wxyz`: too short for the token's own pattern."""


# ---------------------------------------------------------------- values of variables

SHORTEST: Final = 8
"""The minimum length of a secret in a variable with a secret-looking name: shorter values occur in ordinary text."""

PHRASE: Final = 16
LONG: Final = 20
"""The minimum lengths of a secret that consists of several words, or of one without a break."""

_SECRET_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|COOKIE|(?:_|\A)(?:PAT|PASS|PWD)\Z",
    re.IGNORECASE,
)
_NAMES_A_PLACE: Final = re.compile(r"(?:FILE|PATH|DIR|SOCK|SOCKET)\Z|\AXAUTHORITY\Z", re.IGNORECASE)
_IN_URL: Final = re.compile(r"://[^\s/:@?#]{0,256}:([^\s/?#]{4,400})@")


def looks_secret(value: str) -> bool:
    """Return whether the value of a secret-looking variable could be a secret, rather than a word, number or path.

    Values with a known token prefix or of several words are secrets. Other values must mix kinds of characters, or be
    long without a break, and have enough entropy.
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
    """Return the secret values of an environment with the names of their variables: values of secret-looking variables,
    and the password in a URL, whatever the name of its variable."""
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


# ---------------------------------------------------------------- values after secret-looking names

NAME: Final = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
"""Matches the end of a name of a secret: `GITHUB_TOKEN`, `db-password`."""

_NAMED: Final = ("token", "secret", "passw", "passphrase", "key", "credential")
"""Every match of `NAME` contains one of these."""


def folded(text: str) -> str:
    """Return a text in lower case, including letters that `(?i)` treats as ASCII letters."""
    lower = text.lower()
    return lower if text.isascii() else lower.translate(_FOLDED)


_FOLDED: Final = {ord("\N{LATIN SMALL LETTER DOTLESS I}"): "i", ord("\N{LATIN SMALL LETTER LONG S}"): "s", 0x307: ""}
"""The code 0x307 is the dot that `lower` leaves of a capital I with a dot."""


def has_name(small: str) -> bool:
    """Return whether `NAME` may match in a text, which must be `folded`."""
    return any(name in small for name in _NAMED)


VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s'";&|<>()]+)"""
ASSIGNED: Final = re.compile(rf"(?i)({NAME}[A-Za-z0-9_-]{{0,64}}\s*=\s*){VALUE}")
BEARER: Final = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_TOKENS: Final = tuple(find for find in SHAPES if find.expression is not KEY_BLOCK)
_IN_ANY_CASE: Final = frozenset(number for number, find in enumerate(_TOKENS) if "(?i" in find.kept)
"""Tokens whose fixed texts also match in other cases."""


_NEVER: Final = "(?!)"
"""An expression that never matches, because an empty one matches everywhere."""
_CASELESS_WORDS: Final = ("authorization", "bearer", "access", "session")


def tokens_in(text: str) -> re.Pattern[str]:
    """Return the expression for all tokens that may be in the text, because one of their fixed texts is.

    An expression for all tokens would take 10 microseconds for each character.
    """
    small = folded(text)
    in_any_case = _IN_ANY_CASE if any(word in small for word in _CASELESS_WORDS) else ()
    return _expression(
        tuple(number for number, find in enumerate(_TOKENS) if number in in_any_case or find.may_be_in(text))
    )


@lru_cache(128)
def _expression(numbers: tuple[int, ...]) -> re.Pattern[str]:
    parts = (f"(?:{_TOKENS[number].kept}{_TOKENS[number].expression})" for number in numbers)
    return re.compile("|".join(parts) or _NEVER)


_COUNTED: Final = re.compile(r"(?i)tokens\s*=\s*\d{1,8}\.?")
"""Matches `max_tokens = 512`, which isn't a secret."""

_STATED: Final = re.compile(
    rf"""(?i){NAME}["'`*]{{0,3}}\s{{0,8}}(?::=?|=>)\s{{0,8}}"""
    r"""(?:["'`*]{0,3}(?=\S{0,200}[0-9!@#$%^&+/\\?~])[^\s"'`,;]{6,}|(["'`])[^\s"'`]{6,400}\1)"""
)
"""Matches `password: hunter2-x` and `"token": "correcthorse"`. A colon may also be followed by ordinary words, so only
values that aren't words, or are written as literals, match."""


def secret_in(text: str) -> str | None:
    """Return the kind of secret in a text, in a word; None if no pattern matches."""
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
