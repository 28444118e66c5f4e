"""Step 3: trains a draft head on rounds of conversations and packs it. See ``models/draft_head.py`` for what a head computes."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from swiftsure.models.catalogue import resolve
from swiftsure.models.draft_head import DraftHeadConfig, write_draft_head
from swiftsure.models.model import Model, open_model
from swiftsure.models.quantize import dequantize_rows
from training.draft_head.conversations import MODEL

STEPS, BLOCKS, INNER, SHORTLIST, NORM_EPS = 3, 2, 1024, 6144, 1e-5
BATCH, RATE, LATER, FEATURE_WEIGHT = 512, 1.2e-3, 0.8, 0.3


class Head(nn.Module):
    """``token`` sees embeddings at unit scale; the scale is folded into it when the head is packed."""

    def __init__(self, hidden: int, output_norm: Tensor) -> None:
        super().__init__()

        def random(rows: int, columns: int, gain: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) * gain)

        self.feature = nn.Parameter(torch.diag(1 / output_norm.clamp_min(0.1)))  # the residual's direction, to begin with
        self.token = random(hidden, hidden, 0.02)
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(hidden)) for _ in range(BLOCKS)])
        self.gates = nn.ParameterList([random(INNER, hidden, hidden**-0.5) for _ in range(BLOCKS)])
        self.ups = nn.ParameterList([random(INNER, hidden, hidden**-0.5) for _ in range(BLOCKS)])
        self.downs = nn.ParameterList([random(hidden, INNER, 0.2 * INNER**-0.5) for _ in range(BLOCKS)])
        self.output_norm = nn.Parameter(output_norm.clone())

    def forward(self, feature: Tensor, embedding: Tensor) -> Tensor:
        x = _product(feature, self.feature) + _product(embedding, self.token)
        for norm, gate, up, down in zip(self.norms, self.gates, self.ups, self.downs, strict=True):
            n = _rms_norm(x) * norm
            x = x + _product(functional.silu(_product(n, gate)) * _product(n, up), down)
        return _rms_norm(x) * self.output_norm

    def arrays(self, scale: float, shortlist: Tensor) -> dict[str, np.ndarray]:
        """The tensors of the file."""
        named = {"feature.weight": self.feature, "token.weight": self.token * scale, "output_norm.weight": self.output_norm}
        for i in range(BLOCKS):
            parts = {"norm": self.norms[i], "gate": self.gates[i], "up": self.ups[i], "down": self.downs[i]}
            named |= {f"blk.{i}.{part}.weight": values for part, values in parts.items()}
        return {name: values.detach().numpy() for name, values in named.items()} | {"shortlist": shortlist.numpy().astype(np.int32)}


def _weights(model: Model, name: str) -> Tensor:
    info = model.tensors.info(name)
    return torch.from_numpy(np.array(dequantize_rows(info.type, model.tensors.read(name), info.shape[-1])).reshape(info.shape))


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return (x.bfloat16() @ weight.bfloat16().t()).float()


def _rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + NORM_EPS)


class Rounds:
    """All conversations: ``ids`` (tokens,), ``hidden`` (tokens, hidden) and the ``positions`` that are trained on."""

    def __init__(self, folder: Path) -> None:
        ids, hidden, positions, begun = [], [], [], 0
        for file in sorted(folder.glob("*.npz")):
            read = np.load(file)
            ids.append(read["ids"].astype(np.int64))
            hidden.append(np.load(file.with_suffix(".npy")))
            ends = np.cumsum(read["lengths"])
            for end, length, answer in zip(ends, read["lengths"], read["answers"], strict=True):
                positions.append(np.arange(begun + end - length + max(0, answer - 30), begun + end - STEPS - 1))
            begun += len(ids[-1])
        self.ids = torch.from_numpy(np.concatenate(ids))
        self.hidden = torch.from_numpy(np.concatenate(hidden))
        self.positions = torch.from_numpy(np.concatenate(positions))


def loss(net: Head, rounds: Rounds, at: Tensor, embeddings: Tensor, head: Tensor) -> Tensor:
    """What the model's own head says 1 to ``STEPS`` tokens further on, given the tokens between; later steps count less."""
    feature, total = rounds.hidden[at].float(), torch.zeros(())
    for step in range(STEPS):
        feature = net(feature, embeddings[rounds.ids[at + 1 + step]])
        real = rounds.hidden[at + 1 + step]
        target = torch.softmax((real.bfloat16() @ head.t()).float(), -1)
        said = functional.cross_entropy((feature.bfloat16() @ head.t()).float(), target)
        total = total + LATER**step * (said + FEATURE_WEIGHT * functional.smooth_l1_loss(feature, real.float()))
    return total


@torch.no_grad()
def agreement(net: Head, rounds: Rounds, at: Tensor, embeddings: Tensor, head: Tensor) -> list[float]:
    """Share of positions where the first 1 .. ``STEPS`` guesses are all the model's most likely tokens."""
    feature, right, shares = rounds.hidden[at].float(), torch.ones(len(at), dtype=torch.bool), []
    for step in range(STEPS):
        feature = net(feature, embeddings[rounds.ids[at + 1 + step]])
        real = rounds.hidden[at + 1 + step].bfloat16()
        right &= (feature.bfloat16() @ head.t()).argmax(-1) == (real @ head.t()).argmax(-1)
        shares.append(right.float().mean().item())
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    files = resolve(MODEL)
    with open_model(files) as model:
        table = _weights(model, "token_embd.weight")
        output_norm = _weights(model, "output_norm.weight")
    rounds = Rounds(chosen.folder)
    shortlist = torch.bincount(rounds.ids, minlength=len(table)).argsort(descending=True)[:SHORTLIST].sort().values
    scale = float(1 / table.std())
    embeddings, head = table * scale, table[shortlist].bfloat16().contiguous()  # this model's head is its embedding
    net = Head(table.shape[1], output_norm)
    order = rounds.positions[torch.randperm(len(rounds.positions))]
    held_out, order = order[:2048], order[2048:]
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    began, budget_s, step = time.perf_counter(), chosen.minutes * 60, 0
    while (spent := time.perf_counter() - began) < budget_s:
        first = step * BATCH % (len(order) - BATCH)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 50) * (0.02 + 0.49 * (1 + math.cos(math.pi * spent / budget_s)))
        optimizer.zero_grad()
        value = loss(net, rounds, order[first : first + BATCH], embeddings, head)
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 200 == 0:
            shares = agreement(net, rounds, held_out, embeddings, head)
            print(f"step {step}, {spent:.0f} s, loss {value.item():.3f}, guesses right {[round(share, 3) for share in shares]}", flush=True)
    config = DraftHeadConfig(target_sha256=files.sha256, hidden=table.shape[1], blocks=BLOCKS, inner=INNER, norm_eps=NORM_EPS)
    print(write_draft_head(chosen.output, net.arrays(scale, shortlist), config), "bytes")


if __name__ == "__main__":
    main()
