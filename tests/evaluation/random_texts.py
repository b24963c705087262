"""Random references, and hypotheses with faults."""

import random

WORDS = [
    "der",
    "alte",
    "Mann",
    "sieht",
    ",",
    "daß",
    "die",
    "Frau",
    "ein",
    "Buch",
    "über",
    "große",
    "Hunde",
    "liest",
    ".",
]


def texts(segments: int = 40, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """Hypotheses, references and sources of 1 to 70 words; hypotheses lose and swap words."""
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(1, 40))) for _ in range(segments)]
    hypotheses = []
    for reference in references:
        kept = [word if rng.random() > 0.2 else rng.choice(WORDS) for word in reference.split() if rng.random() > 0.1]
        hypotheses.append(" ".join(kept))
    return hypotheses, references, references
