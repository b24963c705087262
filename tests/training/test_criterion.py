"""The criterion: what it counts, smooths and adds for hard attention."""

import math

import pytest
import torch
import torch.nn.functional as F

from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput, SampledAttention
from seq2seq.layers.output import OutputLayer
from seq2seq.training.criterion import ENTROPY_WEIGHT, Criterion, token_nll


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

    def test_sampled_attention_by_hand(self) -> None:
        """Half the loss under the expected context, half under the choice with its advantage over that."""
        features, output, target, mask = self.batch()
        expected = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        logs = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        entropy = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
        decoded = DecoderOutput(features, SampledAttention(logs, entropy), expected)
        result = Criterion(0.0)(decoded, output, target, mask)
        nll, soft = (token_nll(DecoderOutput(each), output, target, mask) for each in (features, expected))
        assert result.nll.item() == pytest.approx(nll.sum().item())
        got = gradients(result.loss, logs, entropy, features, expected)
        torch.testing.assert_close(got[0], torch.where(mask, (nll - soft) / 2, 0.0))
        torch.testing.assert_close(got[1], torch.where(mask, torch.full_like(nll, -ENTROPY_WEIGHT / 2), 0.0))
        for inputs, gradient in ((features, got[2]), (expected, got[3])):
            loss = F.cross_entropy(output(inputs)[mask], target[mask], reduction="sum") / 2
            torch.testing.assert_close(gradient, gradients(loss, inputs)[0])

    def test_sampled_attention_without_training_is_the_likelihood(self) -> None:
        features, output, target, mask = self.batch()
        sampling = SampledAttention(torch.zeros(2, 3), torch.zeros(2, 3))
        result = Criterion(0.0).eval()(DecoderOutput(features, sampling, features * 2), output, target, mask)
        assert result.loss.item() == result.nll.item()

    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_refuses_impossible_smoothing(self, value: float) -> None:
        with pytest.raises(UserError, match="label_smoothing"):
            Criterion(value)

    def test_r_drop_by_hand(self) -> None:
        """Half of both copies' losses and of alpha / 2 times the divergence of their distributions."""
        torch.manual_seed(2)
        features = torch.randn(4, 3, 4, dtype=torch.float64, requires_grad=True)
        _, output, target, mask = self.batch()
        criterion = Criterion(0.1, r_drop=3.0)
        result = criterion(DecoderOutput(features), output, target.repeat(2, 1), mask.repeat(2, 1))
        logs = [F.log_softmax(output(half)[mask], dim=-1) for half in features.chunk(2)]
        smoothed = sum(F.cross_entropy(log, target[mask], label_smoothing=0.1, reduction="sum") for log in logs)
        divergence = sum(F.kl_div(a, b, reduction="sum", log_target=True) for a, b in (logs, logs[::-1]))
        expected = (smoothed + 3.0 / 2 * divergence) / 2
        torch.testing.assert_close(result.loss, expected)
        torch.testing.assert_close(gradients(result.loss, features), gradients(expected, features))
        assert result.tokens.item() == 4
        assert result.nll.item() == pytest.approx(
            sum(F.nll_loss(log, target[mask], reduction="sum") for log in logs).item() / 2
        )
        assert not criterion.eval().twice

    @pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
    def test_refuses_impossible_weight_of_r_drop(self, value: float) -> None:
        with pytest.raises(UserError, match="r_drop"):
            Criterion(0.1, value)
