"""Searches over a step function: greedy, beam, sampling; and forced decoding with the same scores."""

from seq2seq.search.beam import BeamSearch
from seq2seq.search.forced_decoding import Scored, score_pairs
from seq2seq.search.greedy import GreedySearch
from seq2seq.search.methods import (
    METHODS,
    SearchChoice,
    chosen_search,
    method_name,
    search_settings,
    with_n_best,
    with_options,
)
from seq2seq.search.options import Search
from seq2seq.search.penalties import Ranking
from seq2seq.search.sampling import Sampling
from seq2seq.search.shortlist import Shortlist
from seq2seq.search.steps import decode_batch

__all__ = [
    "METHODS",
    "BeamSearch",
    "GreedySearch",
    "Ranking",
    "Sampling",
    "Scored",
    "Search",
    "SearchChoice",
    "Shortlist",
    "chosen_search",
    "decode_batch",
    "method_name",
    "score_pairs",
    "search_settings",
    "with_n_best",
    "with_options",
]
