"""The masking rule, case by case: what must not be shown, and what must stay readable."""

from __future__ import annotations

import time

import pytest

from kernel_runtime.core.masking import MASK, is_secret_name, mask_argv, mask_environment, mask_text


@pytest.mark.parametrize(
    "argv, shown",
    [
        (["env", "DB_PASS=a b", "cmd"], ["env", "DB_PASS=***", "cmd"]),
        (["cmd", "--password", "pw", "x"], ["cmd", "--password", "***", "x"]),
        (["cmd", "--password=pw", "x"], ["cmd", "--password=***", "x"]),
        (["cmd", "--api-key", "pw"], ["cmd", "--api-key", "***"]),
        (["cmd", "--token", "--verbose"], ["cmd", "--token", "--verbose"]),
        (["cmd", "--password-file", "f"], ["cmd", "--password-file", "f"]),
        (["docker", "login", "--password-stdin", "host"], ["docker", "login", "--password-stdin", "host"]),
        (["/usr/bin/mysql", "-ppw", "-u", "root"], ["/usr/bin/mysql", "-p***", "-u", "root"]),
        (["sshpass", "-p", "pw", "ssh", "h"], ["sshpass", "-p", "***", "ssh", "h"]),
        (["curl", "-u", "bob:pw", "h"], ["curl", "-u", "bob:***", "h"]),
        (["curl", "--user=bob:pw", "h"], ["curl", "--user=bob:***", "h"]),
        (["curl", "-H", "Authorization: Bearer abcdef123"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["curl", "-H", "X-Api-Key: abc"], ["curl", "-H", "X-Api-Key: ***"]),
        (["git", "clone", "https://u:p@w@h/x"], ["git", "clone", "https://u:***@h/x"]),
        (["sh", "-c", "export TOKEN='a b'; run"], ["sh", "-c", "export TOKEN='***'; run"]),
        (["sh", "-c", "run --secret pw --to x"], ["sh", "-c", "run --secret *** --to x"]),
        (["python", "-c", "password = 'pw'; f()"], ["python", "-c", "password = '***'; f()"]),
        # what is no secret stays
        (["mkdir", "-p", "x"], ["mkdir", "-p", "x"]),
        (["ssh", "-p", "22", "h"], ["ssh", "-p", "22", "h"]),
        (["train", "--max-tokens", "512", "--seed=1"], ["train", "--max-tokens", "512", "--seed=1"]),
        (["train", "--tokenizer", "bpe"], ["train", "--tokenizer", "bpe"]),
        ([], []),
    ],
)
def test_argv(argv: list[str], shown: list[str]):
    assert mask_argv(argv) == shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("https://h/x?api_key=zz&q=1", "https://h/x?api_key=***&q=1"),
        ("redis://:pw@h:6379/0", "redis://:***@h:6379/0"),
        ("https://abcdefghijklmnopqrst@h/x", "https://***@h/x"),
        ("https://bob@h/x", "https://bob@h/x"),
        ('{"secret": "x", "n": 1}', '{"secret": "***", "n": 1}'),
        ("retry: password=pw", "retry: password=***"),
        ("a=b=token=pw c", "a=b=token=*** c"),
        ("password='never closed", "password='***'"),
        ("see ghp_abcdefghijklmnop1234 here", "see *** here"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx", "***\nx"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "***"),
        ("", ""),
        ("ls -la /tmp; echo done: yes", "ls -la /tmp; echo done: yes"),
    ],
)
def test_text(text: str, shown: str):
    assert mask_text(text) == shown


def test_an_environment_keeps_every_name():
    shown = mask_environment(
        {
            "PATH": "/bin",
            "PWD": "/here",
            "AWS_SECRET_ACCESS_KEY": "x",
            "githubToken": "x",
            "DATABASE_URL": "postgres://u:pw@h/db",
            "EMPTY_TOKEN": "",
            "TOKENIZERS_PARALLELISM": "false",
        }
    )
    assert shown == {
        "PATH": "/bin",
        "PWD": "/here",
        "AWS_SECRET_ACCESS_KEY": MASK,
        "githubToken": MASK,
        "DATABASE_URL": "postgres://u:***@h/db",
        "EMPTY_TOKEN": "",
        "TOKENIZERS_PARALLELISM": "false",
    }


@pytest.mark.parametrize("name", ["DB_PASS", "PGPASSWORD", "api-key", "X-Auth-Token", "sslKey", "MY_PIN"])
def test_telling_names(name: str):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "BYPASS", "KEYBOARD", "COMPASS", "key", "public_key", ""])
def test_names_that_tell_nothing(name: str):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "a=" * 20_000,
        "-a " * 20_000,
        '"' + "\\" * 40_000,
        "x://" + "a" * 40_000,
        "a-" * 20_000,
        "eyJ" * 20_000,
    ],
)
def test_no_text_takes_long(text: str):
    """At most some times as long as plain text: in quadratic time it would be thousands of times."""

    def seconds(text: str) -> float:
        began = time.process_time()
        for _ in range(10):
            mask_text(text)
        return time.process_time() - began

    assert seconds(text) < 100 * seconds("plain text, and 12 numbers. " * 1_500)


def test_masking_twice_changes_nothing():
    once = mask_argv(["curl", "-u", "bob:pw", "--token", "x", "https://u:pw@h/?token=x", "-H", "Cookie: a=b"])
    assert mask_argv(once) == once
