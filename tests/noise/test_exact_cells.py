"""Every cell of the grid has the probability that the law gives it, at every depth."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdpadmm.noise import SeededNoise, _grid, _sources, grid_cell
from skdpadmm.noise._grid import LAPLACE, NORMAL
from skdpadmm.noise._sources import _more

mpmath = pytest.importorskip("mpmath")
LAWS = pytest.mark.parametrize("law", [NORMAL, LAPLACE], ids=["normal", "laplace"])
SCALE, N_WORDS = 1.5, 3
CELL = grid_cell(SCALE)


def tail(law, t):
    return mpmath.erfc(t / mpmath.sqrt(2)) / 2 if law is NORMAL else mpmath.exp(-t)


def released(law, value, sign, drawn):
    """What comes of a probability of N_WORDS words, the rest of which is in the middle."""
    more = [(drawn >> 64 * i) % 2**64 for i in reversed(range(N_WORDS - 1))] + [2**63] * 2
    bits = np.array([(drawn >> 64 * (N_WORDS - 1) << 11) | (sign < 0)], dtype=np.uint64)
    return _grid.add_on_grid(np.array([value]), SCALE, law, lambda _: bits, lambda _: iter(more))[0]


def law_of_cells(law, value, sign, cells):
    """Probabilities of cells side by side, the sign being given: as they are drawn, and exact."""
    n_bits = law.n_bits + 64 * (N_WORDS - 1)
    drawn, exact = [], []
    for cell in cells:
        low, high = 0, 2 ** (53 + 64 * (N_WORDS - 1))
        while low < high:
            middle = (low + high) // 2
            beyond = sign * released(law, value, sign, middle) >= sign * cell * CELL
            low, high = (middle + 1, high) if beyond else (low, middle)
        drawn.append(mpmath.mpf(low) / 2**n_bits)
        boundary = (cell - mpmath.mpf(sign) / 2) * CELL
        exact.append(tail(law, sign * (boundary - value) / SCALE))
    return [[float(a - b) for a, b in itertools.pairwise(column)] for column in (drawn, exact)]


@LAWS
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("depth", "shift", "offset"),
    [
        (0.3, 0.1, 0.0),
        (9.5, 1e-3, 0.0),
        pytest.param(5.0, 1e-2, 2.0**33 / 3, marks=pytest.mark.slow),
        pytest.param(7.3, 1e-4, 0.0, marks=pytest.mark.slow),
        pytest.param(8.2, 0.1, -1.1, marks=pytest.mark.slow),
    ],
)
def test_neighbouring_laws_are_those_of_the_rounded_numbers(law, sign, depth, shift, offset):
    """No cell is possible under one of them alone, and none tells more than the law does."""
    with mpmath.workdps(60):
        first = round((offset + sign * depth * SCALE * (4 if law is LAPLACE else 1)) / CELL)
        cells = [first + sign * i for i in range(4)]
        values = (offset, offset + shift * SCALE)
        (p, p_exact), (q, q_exact) = (law_of_cells(law, value, sign, cells) for value in values)
    assert min(*p, *q) > 0
    ratios, exact_ratios = np.divide(p, q), np.divide(p_exact, q_exact)
    assert_allclose([p, q, ratios], [p_exact, q_exact, exact_ratios], rtol=1e-13)


@LAWS
def test_errors_of_quantiles_are_within_those_that_are_allowed(law):
    exponents = np.random.default_rng(0).uniform(22, 53, 1000)
    words = np.append((2.0**exponents).astype(np.uint64), np.uint64(2**53 - 2**20))
    numbers = law.standard(words << np.uint64(11)).tolist()
    with mpmath.workdps(40):
        for word, number in zip(words.tolist(), numbers, strict=True):
            error = tail(law, mpmath.mpf(number)) - mpmath.mpf(word + 0.5) / 2**law.n_bits
            density = mpmath.npdf(number) if law is NORMAL else mpmath.exp(-number)
            assert abs(error / density / number) < 2.0 ** (-49 if law is NORMAL else -50)


@LAWS
def test_the_last_word_of_the_tail_is_refined_by_further_words_of_each_place(law, monkeypatch):
    monkeypatch.setattr(_grid, "PIECE", 30)
    shares = (np.arange(100) + 0.5) / 100
    words = [[int(share * 2.0**64), 2**63] for share in shares.tolist()]
    zeros = np.zeros(100, dtype=np.uint64)
    out = _grid.add_on_grid(zeros * 1.0, 1.0, law, lambda n: zeros[:n], lambda i: iter(words[i]))
    left = [float(tail(law, mpmath.mpf(number)) * 2**law.n_bits) for number in out.tolist()]
    assert_allclose(left, shares, rtol=1e-5)


@pytest.mark.parametrize("law", ["add_gaussian", "add_laplace"])
def test_refined_noise_does_not_depend_on_pieces(law, monkeypatch):
    """And exact arithmetic finds the cells that floats find."""
    value, noise = np.linspace(-1e6, 1e6, 700), SeededNoise((7,), b"plan")
    expected = getattr(noise, law)(value, SCALE, (0, 1))
    monkeypatch.setattr(_grid, "in_doubt", lambda bits, *_: range(len(bits)))
    for piece in (2**13, 13):
        monkeypatch.setattr(_grid, "PIECE", piece)
        assert_array_equal(getattr(noise, law)(value, SCALE, (0, 1)), expected)


def test_words_that_refine_are_a_function_of_the_place_and_of_nothing_drawn(monkeypatch):
    def words(value, scale, law, draw, more):
        return [*draw(9).tolist(), *(next(more(place)) for place in range(9))]

    def drawn(seed, digest, *stream):
        return SeededNoise((seed,), digest).add_gaussian(np.zeros(9), 1.0, stream)

    monkeypatch.setattr(_sources, "add_on_grid", words)
    others = [(8, b"a", 0, 1), (7, b"b", 0, 1), (7, b"a", 0, 1, 0, 0), (7, b"a", 0)]
    every = [word for case in [(7, b"a", 0, 1), *others] for word in drawn(*case)]
    assert len(set(every)) == 5 * 18
    assert every[:18] == drawn(7, b"a", 0, 1)
    assert len({next(_more(0)) for _ in range(9)}) == 9


def test_a_zero_has_one_sign_and_what_no_float_can_hold_is_infinite():
    ones = np.full(2, 2**64 - 1, dtype=np.uint64)
    out = _grid.add_on_grid(np.array([0.0, -1e-9]), 1.0, NORMAL, lambda _: ones, _more)
    assert_array_equal(np.copysign(1.0, out), 1.0)
    for value in (1.7e308, np.inf):
        assert NORMAL.cell_of(value, 1e308, 1003, 0, iter([2**63])) == np.inf
