import math

import pytest
import torch
from attention_reference import SCORES, WIDTH, reference_score
from precision import float32_approx

from seq2seq.attention import AdditiveScore, DotScore, GaussianScore, GeneralScore, ScaledDotScore
from seq2seq.errors import UserError

B, Q, S = 2, 3, 4


@pytest.mark.parametrize("name", SCORES)
def test_score_of_every_pair_equals_the_equation(name):
    torch.manual_seed(1)
    score = SCORES[name]().double()
    query, keys = torch.randn(B, Q, WIDTH).double(), torch.randn(B, S, WIDTH).double()
    scores = score(query, score.project(keys))
    assert scores.shape == (B, Q, S)
    for b in range(B):
        for t in range(Q):
            for s in range(S):
                expected = reference_score(score, query[b, t], keys[b, s])
                torch.testing.assert_close(scores[b, t, s], expected)


@pytest.mark.parametrize("name", SCORES)
def test_score_of_windows_equals_score_of_all_keys(name):
    torch.manual_seed(2)
    score = SCORES[name]().double()
    query, projected = torch.randn(B, Q, WIDTH).double(), score.project(torch.randn(B, S, WIDTH).double())
    index = torch.tensor([[0, 1], [1, 2], [3, 3]]).expand(B, Q, 2)
    windows = torch.stack([projected[b][index[b]] for b in range(B)])
    torch.testing.assert_close(score(query, windows), score(query, projected).gather(-1, index))


@pytest.mark.parametrize("name", [name for name in SCORES if name != "uniform"])
def test_score_passes_gradcheck(name):
    torch.manual_seed(3)
    score = SCORES[name]().double()
    query = torch.randn(B, Q, WIDTH, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(B, S, WIDTH, dtype=torch.float64, requires_grad=True)
    parameters = list(score.parameters())
    assert torch.autograd.gradcheck(lambda q, k, *_: score(q, score.project(k)), (query, keys, *parameters))


def test_scores_of_one_width_refuse_two():
    for score in (AdditiveScore(3, 5, 4), GeneralScore(3, 5)):
        assert score(torch.randn(B, Q, 3), score.project(torch.randn(B, S, 5))).shape == (B, Q, S)
    for score in (DotScore(), ScaledDotScore(3), GaussianScore()):
        with pytest.raises(UserError, match="one width, got 3 and 5"):
            score(torch.randn(B, Q, 3), score.project(torch.randn(B, S, 5)))


def test_additive_score_equals_luong_concat():
    torch.manual_seed(4)
    score = AdditiveScore(3, 5, 4).double()
    query, keys = torch.randn(1, 1, 3).double(), torch.randn(1, 1, 5).double()
    matrix = torch.cat([score.query.weight, score.key.weight], dim=1)
    expected = score.vector @ torch.tanh(matrix @ torch.cat([query.flatten(), keys.flatten()]))
    torch.testing.assert_close(score(query, score.project(keys)).squeeze(), expected)


@pytest.mark.parametrize("width", [4, 64, 512])
def test_dot_score_variance_is_the_width_and_scaled_is_one(width):
    torch.manual_seed(5)
    count = 20_000
    query, keys = torch.randn(count, 1, width), torch.randn(count, 1, width)
    plain = DotScore()(query, keys).flatten().double()
    scaled = ScaledDotScore(width)(query, keys).flatten().double()
    tolerance = 6 * math.sqrt(2 / count) * 1.6  # standard error of a variance; products have heavier tails
    assert abs(plain.var() / width - 1) < tolerance
    assert abs(scaled.var() - 1) < tolerance


def test_gaussian_score_has_a_parameter_only_if_learned():
    assert not list(GaussianScore(2.0).parameters()) and not GaussianScore(2.0).state_dict()
    learned = GaussianScore(2.0, learned=True).double()
    assert [tuple(p.shape) for p in learned.parameters()] == [()]
    assert learned.width.item() == float32_approx(2.0)
    assert GaussianScore(2.0).double().width.dtype == torch.float64


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdditiveScore(0, 1, 1),
        lambda: GaussianScore(0.0),
        lambda: GeneralScore(3, -1),
        lambda: ScaledDotScore(0),
    ],
)
def test_scores_of_impossible_sizes_are_refused(make):
    with pytest.raises(UserError, match="must be positive, got"):
        make()


def test_additive_score_in_half_precision_differs_by_its_rounding_only():
    """A vector of one sign makes scores that are much larger than their differences."""
    torch.manual_seed(4)
    exact = AdditiveScore(64, 64, 256).double()
    torch.nn.init.uniform_(exact.vector, 0.05, 0.3)
    query, keys = 0.3 * torch.randn(B, Q, 64).double(), 0.3 * torch.randn(B, S, 64).double()
    expected = exact(query, exact.project(keys))
    half = AdditiveScore(64, 64, 256)
    half.load_state_dict(exact.state_dict())
    half.bfloat16()
    found = half(query.bfloat16(), half.project(keys.bfloat16())).double()
    assert (found - expected).abs().max() < 0.03
