"""No input makes a reader of untrusted data fail in another way than by refusing it."""

import random

import pytest

from tests.faults.ledger import seed
from tests.fuzz.__main__ import reached_lines
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, is_handled, seeds

MIN_LINES = 20  # that a target's corpus reaches
INPUTS = [40, pytest.param(20_000, marks=pytest.mark.full)]


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_is_read_or_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "")  # restored afterwards
    accepted = [is_handled(TARGETS[name], data) for data in seeds(name)]
    assert any(accepted), "the corpus has a valid input"


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_runs_the_code_that_is_fuzzed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "")
    for data in seeds(name):
        is_handled(TARGETS[name], data)  # imports modules, whose lines do not count
    lines = set().union(*(reached_lines(name, data) for data in seeds(name)))
    assert len(lines) >= MIN_LINES


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_or_refused(
    name: str, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "")
    begun_with = seed()
    print(f"SEGUE_FAULT_SEED={begun_with}")
    chance, pool = random.Random(begun_with), seeds(name)
    for _ in range(inputs):
        data = mutate(chance.choice(pool), chance, pool)
        try:
            is_handled(TARGETS[name], data)
        except Exception:
            print(data)
            raise
