import numpy as np
import pytest

from seq2seq.evaluation.regression import least_squares, losses_by_length, t_quantile


def simulated(groups: int = 60, size: int = 4, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths, scores and clusters of segments whose errors have a part that their cluster shares."""
    random = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(groups), size)
    lengths = random.integers(5, 70, len(clusters)).astype(float)
    shared = random.normal(size=groups)[clusters] * (1 + lengths / 30)
    return lengths, 80 - 0.4 * lengths + 4 * shared + 3 * random.normal(size=len(clusters)), clusters


def test_a_regression_worked_by_hand():
    """x = 0, 1, 2, 3 in two clusters; y = 0, 2, 1, 3: b = (0.3, 0.8), residuals -0.3, 0.9, -0.9, 0.3.

    The clusters' sums X'u are (0.6, 0.9) and (-0.6, -0.9), (X'X)^-1 is [[0.7, -0.3], [-0.3, 0.2]], and their product
    (0.15, 0) each way, so that the sum of outer products is [[0.045, 0], [0, 0]]; c = 2/1 * 3/2 = 3.
    """
    design = np.array([[1.0, x] for x in range(4)])
    fit = least_squares(design, np.array([0.0, 2.0, 1.0, 3.0]), [7, 7, 2, 2])
    assert fit is not None
    np.testing.assert_allclose(fit.coefficients, [0.3, 0.8], atol=1e-12)
    np.testing.assert_allclose(fit.covariance, [[0.135, 0.0], [0.0, 0.0]], atol=1e-12)
    assert fit.clusters == 2


def test_covariance_is_that_of_a_loop_over_clusters():
    lengths, scores, clusters = simulated()
    design = np.stack([np.ones_like(lengths), lengths], axis=1)
    fit = least_squares(design, scores, clusters)
    assert fit is not None
    coefficients, *_ = np.linalg.lstsq(design, scores, rcond=None)
    np.testing.assert_allclose(fit.coefficients, coefficients, rtol=1e-9)
    bread = np.linalg.inv(sum(np.outer(row, row) for row in design))
    meat = np.zeros((2, 2))
    for cluster in set(clusters.tolist()):
        score = np.zeros(2)
        for row in np.flatnonzero(clusters == cluster):
            score += design[row] * (scores[row] - design[row] @ coefficients)
        meat += np.outer(score, score)
    n, k, g = len(scores), 2, len(set(clusters.tolist()))
    np.testing.assert_allclose(fit.covariance, g / (g - 1) * (n - 1) / (n - k) * bread @ meat @ bread, rtol=1e-9)


def test_every_row_a_cluster_of_its_own_gives_whites_covariance():
    """CR1 then is HC0 times N / (N - K), which is HC1."""
    lengths, scores, _ = simulated()
    design = np.stack([np.ones_like(lengths), lengths], axis=1)
    fit = least_squares(design, scores, np.arange(len(scores)))
    assert fit is not None
    bread = np.linalg.inv(design.T @ design)
    squares = (scores - design @ fit.coefficients) ** 2
    expected = len(scores) / (len(scores) - 2) * bread @ (design.T * squares @ design) @ bread
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-9)


def test_standard_errors_agree_with_a_bootstrap_over_clusters():
    lengths, scores, clusters = simulated(groups=150)
    design = np.stack([np.ones_like(lengths), lengths], axis=1)
    fit = least_squares(design, scores, clusters)
    alone = least_squares(design, scores, np.arange(len(scores)))
    assert fit is not None and alone is not None
    random = np.random.default_rng(5)
    members = [np.flatnonzero(clusters == cluster) for cluster in range(150)]
    slopes = []
    for _ in range(2000):
        rows = np.concatenate([members[cluster] for cluster in random.integers(0, 150, 150)])
        slopes.append(np.polyfit(lengths[rows], scores[rows], 1)[0])
    assert fit.covariance[1, 1] ** 0.5 == pytest.approx(np.std(slopes), rel=0.06)
    middle = np.array([1.0, lengths.mean()])
    assert middle @ alone.covariance @ middle < 0.6 * (middle @ fit.covariance @ middle)


def test_95_percent_intervals_hold_the_true_slope():
    """The intervals of 300 samples; bounds from the central 99.9% of the binomial distribution."""
    inside = 0
    for seed in range(300):
        lengths, scores, clusters = simulated(groups=25, seed=seed)
        found = losses_by_length(lengths, {"a": scores}, clusters=clusters, step=10)
        assert found is not None
        inside += found["a"]["loss"]["low"] < 4.0 < found["a"]["loss"]["high"]
    assert 270 <= inside <= 297


def test_losses_are_per_step_and_compared_with_the_baseline():
    lengths, scores, clusters = simulated()
    better = scores + 0.3 * lengths - 5
    found = losses_by_length(lengths, {"rnn": scores, "bahdanau": better}, "rnn", clusters, step=10)
    assert found is not None
    slope = np.polyfit(lengths, scores, 1)[0]
    assert found["rnn"]["loss"]["score"] == pytest.approx(-10 * slope)
    assert found["bahdanau"]["loss"]["score"] == pytest.approx(-10 * slope - 3)
    assert found["rnn"]["difference"] is None
    # The errors are the same for both, and their difference is exactly a line.
    assert [found["bahdanau"]["difference"][bound] for bound in ("score", "low", "high")] == pytest.approx([-3] * 3)
    alone = losses_by_length(lengths, {"rnn": scores}, None, clusters, step=10)
    assert alone is not None
    width, own = (each["rnn"]["loss"]["high"] - each["rnn"]["loss"]["low"] for each in (found, alone))
    assert width == pytest.approx(own, rel=0.01)


def test_few_clusters_have_no_interval_and_equal_lengths_no_loss():
    few = losses_by_length([3, 4, 9, 12] * 5, {"a": list(range(20))}, clusters=[0, 1, 2, 3, 4] * 4)
    assert few is not None and few["a"]["loss"]["low"] is None
    assert losses_by_length([7] * 20, {"a": list(range(20))}) is None


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(9, 2.2622), (10, 2.2281), (20, 2.0860), (60, 2.0003), (1000, 1.9623)]
)
def test_t_quantile_is_that_of_the_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-3)
