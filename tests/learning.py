"""A plain training loop on strings of digits, to show that a model learns to copy or to reverse them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2seq.attention import lengths_to_mask
from seq2seq.interfaces import BOS, EOS, PAD, Batch

FIRST_DIGIT = 4
VOCABULARY = FIRST_DIGIT + 10


def digit_batch(task: str, size: int, lengths: tuple[int, int], generator: torch.Generator) -> Batch:
    """Random strings of lengths[0] .. lengths[1] digits; the target is the same ("copy") or turned ("reverse")."""
    low, high = lengths
    length = torch.randint(low, high + 1, (size,), generator=generator)
    digits = torch.randint(FIRST_DIGIT, VOCABULARY, (size, high + 1), generator=generator)
    places = torch.arange(high + 1)
    turned = digits.gather(1, (length.unsqueeze(1) - 1 - places).clamp(min=0))
    rows = []
    for strings in (digits, digits if task == "copy" else turned):
        ended = torch.where(places == length.unsqueeze(1), EOS, strings)
        rows.append(torch.where(places > length.unsqueeze(1), PAD, ended))
    source, target_out = rows
    begun = torch.cat([torch.full((size, 1), BOS), target_out[:, :-1]], dim=1)
    mask = lengths_to_mask(length + 1, high + 1)
    return Batch(source, mask, torch.where(mask, begun, PAD), target_out, mask, torch.arange(size))


def train(
    model: torch.nn.Module,
    task: str,
    updates: int,
    lengths: tuple[int, int] = (2, 5),
    size: int = 64,
    learning_rate: float = 4e-3,
    seed: int = 1,
) -> None:
    """Adam with a linear decay to zero, and the score-function gradient where the model samples its attention."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / updates)
    baseline = 0.0
    model.train()
    for _ in range(updates):
        batch = digit_batch(task, size, lengths, generator)
        output = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        mask = batch.target_mask
        nll = F.cross_entropy(model.logits(output.features).transpose(1, 2), batch.target_out, reduction="none")
        loss = nll[mask].mean()
        if output.sampling is not None:
            reward = -nll.detach()
            advantage = (reward - baseline)[mask]
            baseline = 0.9 * baseline + 0.1 * float(reward[mask].mean())
            loss = loss - (advantage * output.sampling.log_probability[mask]).mean()
            loss = loss - 0.01 * output.sampling.entropy[mask].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def greedy(model: torch.nn.Module, source: Tensor, mask: Tensor, steps: int) -> Tensor:
    """The best token at every step, (B, steps), from `step` alone."""
    model.eval()
    state = model.start(model.encode(source, mask))
    tokens = torch.full((len(source),), BOS)
    chosen = []
    for _ in range(steps):
        features, state, _ = model.step(tokens, state)
        tokens = model.logits(features).argmax(-1)
        chosen.append(tokens)
    return torch.stack(chosen, dim=1)


def exact_match(model: torch.nn.Module, task: str, lengths: tuple[int, int] = (2, 5), size: int = 500) -> float:
    """Share of unseen strings whose greedy output is right up to and including EOS."""
    batch = digit_batch(task, size, lengths, torch.Generator().manual_seed(99))
    output = greedy(model, batch.source, batch.source_mask, batch.target_out.shape[1])
    right = (output == batch.target_out) | ~batch.target_mask
    return right.all(dim=1).float().mean().item()
