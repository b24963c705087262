"""Best continuations of each sentence, without sorting the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from seq2seq.interfaces import PAD

BLOCK = 64
"""Tokens of a block, whose maximum decides if the block is searched."""


def block_maxima(log_probs: Tensor) -> Tensor:
    """log_probs (A, K, V) -> the greatest value of each block of tokens, (A, K, ceil(V / BLOCK))."""
    whole = log_probs.shape[-1] // BLOCK * BLOCK
    maxima: Tensor = log_probs[..., :whole].unflatten(-1, (-1, BLOCK)).amax(-1)
    if whole == log_probs.shape[-1]:
        return maxima
    return torch.cat([maxima, log_probs[..., whole:].amax(-1, keepdim=True)], -1)


def best_tokens(log_probs: Tensor) -> Tensor:
    """log_probs (A, K, V) -> argmax (A, K), the lowest token among equals."""
    size = log_probs.shape[-1]
    if size < 4 * BLOCK:
        return log_probs.argmax(-1)
    block = block_maxima(log_probs).argmax(-1, keepdim=True)
    tokens = block * BLOCK + torch.arange(BLOCK, device=log_probs.device)
    tokens.clamp_(max=size - 1)
    return tokens.gather(-1, log_probs.gather(-1, tokens).argmax(-1, keepdim=True)).squeeze(-1)


def best_candidates(log_probs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the `count` best of scores (A, K) float64 + log_probs (A, K, V) -> totals, parents, tokens, each (A, count).

    They come best first; short lists are filled with -inf. The best `count` tokens lie in the `count` blocks with the
    greatest maxima, so one cheap pass over the vocabulary is enough. Sums are float64, so that rounding makes no ties.
    """
    sentences, beams, size = log_probs.shape
    blocks = -(-size // BLOCK)
    if size >= 4 * BLOCK and count <= beams * blocks:
        maxima = block_maxima(log_probs) + scores[..., None]
        chosen = maxima.view(sentences, -1).topk(count).indices  # (A, count)
        parents = chosen // blocks
        tokens = (chosen % blocks)[..., None] * BLOCK + torch.arange(BLOCK, device=log_probs.device)
        flat = parents[..., None] * size + tokens.clamp(max=size - 1)  # (A, count, BLOCK)
        totals = log_probs.view(sentences, -1).gather(-1, flat.view(sentences, -1)).view_as(flat)
        totals = totals + scores.gather(-1, parents)[..., None]
        if size % BLOCK:
            totals.masked_fill_(tokens >= size, -torch.inf)
        best, places = totals.view(sentences, -1).topk(count)
        flat = flat.view(sentences, -1).gather(-1, places)
    else:
        totals = (log_probs + scores[..., None]).view(sentences, -1)
        best, flat = totals.topk(min(count, totals.shape[-1]))
        if best.shape[-1] < count:
            padding = (0, count - best.shape[-1])
            best = torch.nn.functional.pad(best, padding, value=-torch.inf)
            flat = torch.nn.functional.pad(flat, padding, value=PAD)
    return best, flat // size, flat % size


def diverse_candidates(
    log_probs: Tensor, scores: Tensor, count: int, groups: int, strength: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Find `best_candidates` for each group of count / groups beams in turn (Vijayakumar et al. 2018, equation 3).

    Group g chooses by log P - strength * (number of beams in earlier groups that took the token at this step); the
    returned totals do not include that penalty. At the first step, with one row per sentence, all groups share it.
    """
    sentences, beams, size = log_probs.shape
    width = count // groups
    taken = torch.zeros(sentences, size, dtype=log_probs.dtype, device=log_probs.device)
    parts = []
    for group in range(groups):
        rows = slice(0, 1) if beams == 1 else slice(group * width, (group + 1) * width)
        own, before = log_probs[:, rows], scores[:, rows]
        best, parents, tokens = best_candidates((own - strength * taken[:, None]).contiguous(), before, width)
        alive = best > -torch.inf
        totals = own.reshape(sentences, -1).gather(-1, parents * size + tokens) + before.gather(-1, parents)
        parts.append((totals.masked_fill(~alive, -torch.inf), parents + (rows.start or 0), tokens))
        taken.scatter_add_(-1, tokens, alive.to(taken.dtype))
    totals, parents, tokens = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return totals, parents, tokens
