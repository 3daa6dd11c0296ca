"""A Hugging Face BERT, its attention mask crossing the cut, learns, forgets and is verified."""

from pathlib import Path

import numpy as np
import torch

from federation.runs import assert_same
from splitwiper import ClientConfig, Config, Federation, ServerConfig, split


def texts(seed: int, rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, 9, rows)
    mask = (np.arange(8)[None] < lengths[:, None]).astype(np.int64)
    return {"input_ids": draw.integers(1, 60, (rows, 8)) * mask, "attention_mask": mask}, np.arange(rows) % 3


def test_bert_forgets(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification  # takes seconds

    torch.manual_seed(0)
    small = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=0.1,
        num_labels=4,
    )
    small._attn_implementation = "eager"
    example = {"input_ids": torch.ones(1, 8, dtype=torch.int64), "attention_mask": torch.ones(1, 8, dtype=torch.int64)}
    model = BertForSequenceClassification(small)
    model.bert.embeddings.dropout = torch.nn.Identity()  # dropout belongs on the server half
    halves = split(model, at="bert.embeddings", example=example, shared=["attention_mask"])
    assert [spec.name for spec in halves.boundary] == ["activation", "attention_mask"]
    config = Config(server=ServerConfig(epochs=1, optimizer="adamw", lr=1e-3), client=ClientConfig(epochs=1))
    data = {"north": texts(1, 18), "south": texts(2, 12)}
    fed = Federation(tmp_path / "run", halves, config)
    fed.learn(data)
    receipt = fed.unlearn("north", classes=[2])
    assert fed.verify(receipt).exact
    inputs, labels = data["north"]
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": ({k: v[labels != 2] for k, v in inputs.items()}, labels[labels != 2])})
    assert_same(fed, never)
    assert len(fed.predict("south", data["south"][0])) == 12
