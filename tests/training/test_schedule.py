"""Rates against the papers' formulas and hand-worked values."""

import math

import pytest

from seq2seq.errors import UserError
from seq2seq.training.schedule import Constant, Decay, InverseSqrt, Plateau, WallClock, duration


def test_inverse_sqrt_is_the_papers() -> None:
    """Vaswani et al. 2017, equation 3, with lr = (width * warmup) ** -0.5."""
    width, warmup = 512, 4000
    schedule = InverseSqrt(warmup)
    for update in (1, 10, 3999, 4000, 4001, 100000):
        paper = width**-0.5 * min(update**-0.5, update * warmup**-1.5)
        assert (width * warmup) ** -0.5 * schedule(update, 0.0) == pytest.approx(paper)


def test_constant() -> None:
    assert [Constant(4)(update, 0.0) for update in (1, 2, 4, 100)] == [0.25, 0.5, 1.0, 1.0]
    assert Constant()(1, 0.0) == 1.0


def test_decay_ends_just_above_its_floor() -> None:
    cosine = Decay(109, warmup=10, shape="cosine", floor=0.1)
    assert cosine(5, 0.0) == 0.5
    assert cosine(10, 0.0) == 1.0
    assert cosine(60, 0.0) == pytest.approx(0.1 + 0.9 * 0.5)
    assert cosine(110, 0.0) == pytest.approx(0.1) == cosine(200, 0.0)
    linear = Decay(109, warmup=10, shape="linear")
    assert linear(35, 0.0) == pytest.approx(0.75)
    assert linear(109, 0.0) == pytest.approx(0.01)
    assert linear(110, 0.0) == 0.0


def test_wall_clock() -> None:
    schedule = WallClock("00:00:01:40", warmup=4, shape="linear")
    assert schedule(2, 0.0) == 0.5
    assert schedule(100, 25.0) == pytest.approx(0.75)
    assert schedule(2, 50.0) == pytest.approx(0.25)
    assert schedule(100, 100.0) == schedule(100, 1000.0) == 0.0
    assert WallClock({"seconds": 100}, shape="cosine")(9, 25.0) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_plateau() -> None:
    schedule = Plateau(warmup=10, factor=0.5, patience=2, floor=0.2)
    rates = []
    for update in range(1, 10):
        schedule.observe(update, better=False)
    for better in (True, True, False, False, True, False, False, False, False, False, False, False):
        schedule.observe(100, better)
        rates.append(schedule(100, 0.0))
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2]
    copy = Plateau(warmup=10, factor=0.5, patience=2, floor=0.2)
    copy.load_state_dict(schedule.state_dict())
    assert copy.state_dict() == schedule.state_dict()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("00:00:00:05", 5),
        ("01:02:03:04", 86400 + 7200 + 180 + 4),
        ({"minutes": 1.5}, 90),
        ({"days": 1, "hours": 1}, 90000),
    ],
)
def test_durations(value: object, seconds: float) -> None:
    assert duration(value, "key") == seconds


@pytest.mark.parametrize("value", ["5", "00:05", "a:b:c:d", "00:00:00:00", {"weeks": 1}, {}, 5, None])
def test_no_durations(value: object) -> None:
    with pytest.raises(UserError, match=r"some\.key"):
        duration(value, "some.key")


@pytest.mark.parametrize(
    "make",
    [
        lambda: InverseSqrt(0),
        lambda: Constant(-1),
        lambda: Decay(0),
        lambda: Decay(10, shape="round"),
        lambda: Decay(10, floor=1.0),
        lambda: WallClock(None),
        lambda: Plateau(factor=1.0),
        lambda: Plateau(patience=0),
    ],
)
def test_impossible_values_are_refused(make) -> None:
    with pytest.raises(UserError, match="schedule"):
        make()
