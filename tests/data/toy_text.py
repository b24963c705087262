"""Two made-up languages in files: words with an ending each, a few training lines to filter, some overlap."""

from collections import Counter

NAMES = "red green blue small large dog cat bird tree house sees takes gives finds old new"
WORDS = NAMES.split()


def sentence(number: int, language: str) -> str:
    """From 4 words on, and no two alike: the words spell a scrambled number in base 16."""
    scrambled = number * 2654435761
    return " ".join(WORDS[(scrambled >> 4 * place) % 16] + language for place in range(4 + number % 8))


def lines(split: str, language: str) -> list[str]:
    offset, count = {"train": (0, 300), "valid": (1000, 20), "test": (2000, 30)}[split]
    text = [sentence(number, language) for number in range(offset, offset + count)]
    if split == "train":
        text[3] = "" if language == "x" else text[3]
        text[5] = "   " if language == "y" else text[5]
        text[7] = " ".join(WORDS * 9)
    if split == "test":
        text[0], text[1] = "", " ".join(WORDS * 9)
        text[2] = sentence(50, language)
        text[4] = sentence(60, language) if language == "x" else "another translation"
    return text


def kept_mates(before: list[list[int]], after: list[list[int]]) -> float:
    """Share of a pair's batch mates that are with it in both, averaged over pairs."""
    later = {row: number for number, batch in enumerate(after) for row in batch}
    shares = []
    for batch in before:
        if len(batch) > 1:
            together = Counter(later[row] for row in batch)
            shares += [(together[later[row]] - 1) / (len(batch) - 1) for row in batch]
    return sum(shares) / len(shares)
