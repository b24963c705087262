"""The criterion: what it counts, smooths and adds for hard attention."""

import pytest
import torch
import torch.nn.functional as F
from precision import float32_approx

from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput, SampledAttention
from seq2seq.layers.output import OutputLayer
from seq2seq.training.criterion import BASELINE_DECAY, ENTROPY_WEIGHT, Criterion, token_nll


def gradients(loss: torch.Tensor, *parameters: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, parameters))


class TestCriterion:
    def batch(self):
        torch.manual_seed(1)
        features = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        mask = torch.tensor([[True, True, True], [True, False, False]])
        return features, OutputLayer(4, 6).double(), torch.randint(6, (2, 3)), mask

    def test_counts_real_tokens_only(self) -> None:
        features, output, target, mask = self.batch()
        result = Criterion(0.1)(DecoderOutput(features), output, target, mask)
        logits = output(features)[mask]
        expected = F.cross_entropy(logits, target[mask], label_smoothing=0.1, reduction="sum")
        torch.testing.assert_close(result.loss, expected)
        torch.testing.assert_close(result.nll, F.cross_entropy(logits, target[mask], reduction="sum"))
        assert result.tokens.item() == 4
        (gradient,) = gradients(result.loss, features)
        assert not gradient[1, 1:].any() and gradient[0].any()

    def test_evaluation_is_not_smoothed(self) -> None:
        features, output, target, mask = self.batch()
        result = Criterion(0.1).eval()(DecoderOutput(features), output, target, mask)
        assert result.loss.item() == result.nll.item()

    def test_token_nll(self) -> None:
        features, output, target, mask = self.batch()
        nll = token_nll(DecoderOutput(features), output, target, mask)
        expected = F.cross_entropy(output(features).flatten(0, 1), target.flatten(), reduction="none").view(2, 3)
        torch.testing.assert_close(nll, torch.where(mask, expected, 0.0))

    def test_reinforce_term(self) -> None:
        """Token by token: advantage = later log-likelihood less what the moving average expects of as many tokens."""
        features, output, target, mask = self.batch()
        logs = torch.randn(2, 3, requires_grad=True)
        entropy = torch.rand(2, 3, requires_grad=True)
        criterion = Criterion(0.0)
        nll = token_nll(DecoderOutput(features), output, target, mask)
        mean = -nll.sum().item() / 4
        baseline = mean
        for _ in range(2):
            result = criterion(DecoderOutput(features, SampledAttention(logs, entropy)), output, target, mask)
            got = gradients(result.loss, logs, entropy)
            for b, length in enumerate([3, 1]):
                for t in range(3):
                    advantage = -nll[b, t:length].sum().item() - baseline * (length - t)
                    expected = (-advantage, -ENTROPY_WEIGHT) if t < length else (0.0, 0.0)
                    assert (got[0][b, t].item(), got[1][b, t].item()) == float32_approx(expected)
            baseline = baseline + (1 - BASELINE_DECAY) * (mean - baseline)
        assert criterion.baseline.item() == float32_approx(baseline)
        assert "baseline" in criterion.state_dict()

    def test_the_baseline_follows_the_reward(self) -> None:
        features, output, target, mask = self.batch()
        sampling = SampledAttention(torch.zeros(2, 3), torch.zeros(2, 3))
        criterion = Criterion(0.0)
        means = []
        for scale in (1.0, 3.0):
            result = criterion(DecoderOutput(features * scale, sampling), output, target, mask)
            means.append(-result.nll.item() / 4)
        assert means[0] != means[1]
        expected = BASELINE_DECAY * means[0] + (1 - BASELINE_DECAY) * means[1]
        assert criterion.baseline.item() == float32_approx(expected)

    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_refuses_impossible_smoothing(self, value: float) -> None:
        with pytest.raises(UserError, match="label_smoothing"):
            Criterion(value)
