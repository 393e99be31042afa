"""Tokens in published formats. None is real; they are composed here, so that scanners do not report them."""

from __future__ import annotations

import itertools
import re

_HEX = "0123456789abcdef"
_LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7"
_made = itertools.count(1)


def made(head: str, size: int, letters: str = _LETTERS) -> str:
    """Return a token; all are different."""
    at = 5 * next(_made) % len(letters)
    turned = letters[at:] + letters[:at]
    number = f"{next(_made):02x}".upper() if letters != _HEX else f"{next(_made):02x}"
    return head + ((turned[:11] + number) * (size // 13 + 1))[:size]


_PEM = "-----{} RSA PRIVATE" + " KEY-----"

PUBLISHED = {
    "aws": [made("AKIA", 16, "A1B2C3D4"), made("ASIA", 16, "A1B2C3D4"), "aws_secret_access_key = " + made("", 40), '"SecretAccessKey": "' + made("", 40) + '"'],
    "azure": ["AccountKey=" + made("", 86) + "==", made("abc8Q~", 34), "https://x.blob/y?sv=1&sig=" + made("", 43) + "%3D"],
    "google": [made("AIza", 35), made("ya29.", 60), made("GOCSPX-", 28), made("1//0", 60)],
    "github": [made("ghp_", 36), made("gho_", 36), made("ghs_", 36), made("github_pat_", 60)],
    "gitlab": [made("glpat-", 20), made("gldt-", 20), made("glrt-", 20)],
    "slack": [made("xoxb-", 40), made("xoxp-", 40), made("xapp-", 40), "https://hooks.slack.com/services/T0/B0/" + made("", 24)],
    "stripe": [made("sk_live_", 24), made("rk_test_", 24), made("whsec_", 32)],
    "twilio": [made("SK", 32, _HEX)],
    "sendgrid": [made("SG.", 22) + "." + made("", 43)],
    "mailgun": [made("key-", 32, _HEX)],
    "digitalocean": [made("dop_v1_", 64, _HEX), made("doo_v1_", 64, _HEX)],
    "vault": [made("hvs.", 90), made("hvb.", 90), made("s.", 24)],
    "telegram": [made("123456789:AA", 33)],
    "discord": [made("M", 23) + "." + made("", 6) + "." + made("", 38), "https://discord.com/api/webhooks/12345/" + made("", 68)],
    "npm": [made("npm_", 36)],
    "pypi": [made("pypi-AgE", 80)],
    "huggingface": [made("hf_", 34), made("api_org_", 34)],
    "openai": [made("sk-", 48), made("sk-proj-", 100)],
    "anthropic": [made("sk-ant-api03-", 95)],
    "others": [
        made("gsk_", 52), made("xai-", 80), made("dapi", 32, _HEX), made("shpat_", 32, _HEX), made("ATATT3x", 60),
        made("glsa_", 40), made("lin_api_", 40), made("eyJ", 30) + "." + made("eyJ", 40) + "." + made("", 43),
    ],
    "url": ["postgresql://me:pa55w0rd!@db.example:5432/x", "redis://:hunter2@cache", "https://user:t0p%40x@example.org/a"],
    "authorization": [
        "Authorization: Basic dXNlcjpwYXNzd29yZA==", '{"authorization": "Token abc123def456"}', "AUTHORIZATION=Bearer abc123def456",
    ],
    "bearer": ["curl -H 'X-Auth: bearer " + made("", 40) + "'"],
    "pem": [_PEM.format("BEGIN") + "\n" + made("MIIE", 60) + "\n" + _PEM.format("END")],
}  # fmt: skip
_PART = re.compile(r"pa55w0rd|hunter2|t0p%40x|dXNlcjpwYXNzd29yZA|abc123def456|[a-zA-Z0-9]{14}")


def secret_part(token: str) -> str:
    """Return the part of a token that must not be in any file."""
    return str(_PART.findall(token)[-1])
