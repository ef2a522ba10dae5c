"""Odd answers of plug-ins and of the hub are refused in words; what passes is valid."""

import json
from pathlib import Path

import numpy as np
import pytest

from pose2d.base.errors import UserError
from tools.hostile.answers import (
    FACTS,
    draw_plugin_answer,
    plugin_answers,
    read_hub_answer,
    read_plugin_answer,
)
from tools.hostile.fuzz_targets import changed_json


def test_every_kind_of_plugin_answer_is_refused_or_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    answers = [*plugin_answers(), *(draw_plugin_answer(rng) for _ in range(100))]
    refused = 0
    for answer in answers:
        (tmp_path / "answer.json").write_text(json.dumps(answer))
        message = ""
        try:
            read_plugin_answer(tmp_path / "answer.json")
        except UserError as error:
            refused += 1
            message = str(error)
        assert not message or "toy-network" in message, answer
    assert len(answers) / 2 < refused < len(answers)


def test_the_right_answer_of_the_hub_is_read_and_damaged_ones_are_refused_or_right(
    tmp_path: Path,
) -> None:
    pytest.importorskip("huggingface_hub")
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(FACTS))
    read_hub_answer(path)
    refused = 0
    for seed in range(200):
        path.write_bytes(changed_json(FACTS, np.random.default_rng(seed)))
        try:
            read_hub_answer(path)
        except UserError:
            refused += 1
    assert refused > 20
