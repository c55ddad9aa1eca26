"""Samplers draw the Gaussian and the Laplace law, on the grid, independently where they should."""

import math
import pickle
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.stats import kstest

from skdpadmm.noise import CryptographicNoise, OpenDPNoise, SeededNoise, _sources, noise_source
from skdpadmm.noise._grid import standard_laplace, standard_normal

SEEDED = SeededNoise((7,), b"plan")
PINNED = {
    "add_gaussian": [-0.5598888397216797, -1.1477174758911133, -0.7250118255615234],
    "add_laplace": [-0.5524196624755859, -1.381962776184082, -0.7583379745483398],
}
needs_opendp = pytest.mark.skipif(find_spec("opendp") is None, reason="needs the extra")
of_laws = pytest.mark.parametrize("law", PINNED)
of_samplers = pytest.mark.parametrize(
    ("source", "size"),
    [
        pytest.param(CryptographicNoise(), 200_000, id="cryptographic"),
        pytest.param(SEEDED, 200_000, id="seeded"),
        pytest.param(OpenDPNoise(), 4_000, id="opendp", marks=needs_opendp),
    ],
)


@of_samplers
@pytest.mark.parametrize(
    ("law", "name", "moments"),
    [("add_gaussian", "norm", (1, 3, 15, 105)), ("add_laplace", "laplace", (2, 24))],
)
def test_the_law_is_that_of_its_name(source, size, law, name, moments):
    """p-values of one in a billion, so that fresh entropy never fails the suite by chance."""
    noise = (getattr(source, law)(np.full(size, 3.0), 2.5, (0, 0)) - 3.0) / 2.5
    assert kstest(noise, name).pvalue > 1e-9
    for order in range(1, len(moments) + 1):
        expected = moments[order // 2 - 1] if order % 2 == 0 else 0.0
        spread = math.sqrt((moments[order - 1] - expected**2) / size)
        assert abs((noise**order).mean() - expected) < 6.5 * spread
    assert np.corrcoef(np.abs(noise), noise > 0)[0, 1] ** 2 < 6.5**2 / size


@of_laws
@of_samplers
def test_neither_columns_nor_streams_share_noise(source, size, law):
    noise = getattr(source, law)(np.zeros((size // 4, 4)), 1.0, (7, 0))
    streams = [(0,), (0, 0), (0, 1), (1, 0), (1,), (0, 0, 0)]
    others = [getattr(source, law)(np.zeros(size // 4), 1.0, stream) for stream in streams]
    every = np.column_stack([noise, *others])
    assert np.abs(np.corrcoef(every, rowvar=False) - np.eye(10)).max() < 6.5 / math.sqrt(size // 4)
    serial = np.corrcoef(noise.ravel()[:-1], noise.ravel()[1:])[0, 1]
    assert abs(serial) < 6.5 / math.sqrt(size)


@of_laws
@of_samplers
@pytest.mark.parametrize("scale", [1e-300, 3e-5, 1.0, 1.5, 2.0, 1e10, 1e300])
def test_releases_lie_on_the_public_grid_at_every_scale(source, size, scale, law):
    value = np.linspace(-3, 3, 50) * scale
    released = getattr(source, law)(value, scale, (0, 0))
    steps = released / 2.0 ** math.floor(math.log2(scale)) * 2.0**20
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.isfinite(released).all()
    assert 0.3 < np.std((released - value) / scale) < 4.0
    # Values far beyond the grid are kept, and so is the smallest scale.
    far = np.array([1e300, -1e300, 2.0**80])
    np.testing.assert_array_equal(getattr(source, law)(far, 1e-10, (0, 0)), far)
    assert np.isfinite(getattr(source, law)(np.ones(5), 5e-324, (0, 0))).all()


@of_laws
@of_samplers
def test_shape_and_input_are_kept_and_a_scale_that_protects_nothing_is_refused(source, size, law):
    for shape in ((), (0,), (3,), (2, 3), (2, 0, 3)):
        value = np.ones(shape)
        released = getattr(source, law)(value, 1.0, (0, 0))
        assert (released.shape, released.dtype) == (shape, np.float64)
        np.testing.assert_array_equal(value, np.ones(shape))
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"Got scale=.*expected a float in \(0, inf\)"):
            getattr(source, law)(np.zeros(2), scale, (0, 0))


@pytest.mark.parametrize(("standard", "end"), [(standard_normal, 8.3), (standard_laplace, 37.4)])
def test_every_pattern_of_bits_gives_a_finite_number(standard, end):
    ones = 2**64 - 1
    numbers = standard(np.array([0, 1, ones, ones - 1, 1 << 63, 1 << 11], dtype=np.uint64))
    assert np.isfinite(numbers).all()
    assert numbers[0] == -numbers[1] == pytest.approx(end, abs=0.1)
    assert numbers[2] == numbers[3] == 0.0


@of_laws
@of_samplers
def test_noise_that_protects_is_fresh_on_every_call(source, size, law):
    first, second = (getattr(source, law)(np.zeros(20), 1.0, (0, 0)) for _ in range(2))
    assert (first == second).tolist() == [source.simulation] * 20


@needs_opendp
def test_opendp_accounts_without_a_rounding_term():
    """Its own maps give rho = (Delta/scale)^2 / 2 and epsilon = Delta/scale: no rounding before."""
    for scale in (1e-3, 1.0, 1e3):
        assert _sources._measurement(scale).map(0.5 * scale) == pytest.approx(0.125, rel=1e-14)
        assert _sources._measurement(scale).map(0.0) == 0.0
        laplace = _sources._measurement(scale, is_laplace=True)
        assert laplace.map(0.5 * scale) == pytest.approx(0.5, rel=1e-14)


@of_laws
def test_no_zero_of_opendp_is_negative(monkeypatch, law):
    # It is added to what was rounded to zero, from below or from above.
    monkeypatch.setattr(_sources, "_measurement", lambda *_, **law: lambda values: values)
    drawn = getattr(OpenDPNoise(), law)(np.array([-1e-9, 1e-9, -0.0]), 1.0, (0, 0))
    assert not np.signbit(drawn).any()


def test_a_missing_opendp_is_named(monkeypatch):
    _sources._measurement.cache_clear()
    for name in ("opendp", "opendp.prelude"):
        monkeypatch.setitem(sys.modules, name, None)
    for law in PINNED:
        with pytest.raises(ImportError, match=r"needs OpenDP: pip install 'skdpadmm\[secure\]'"):
            getattr(OpenDPNoise(), law)(np.zeros(2), 1.0, (0, 0))


@of_laws
def test_seeded_noise_is_a_function_of_seed_digest_and_stream(law):
    value = np.zeros(50)
    expected = getattr(SEEDED, law)(value, 1.0, (2, 5))
    getattr(SEEDED, law)(value, 1.0, (2, 4))
    copy = pickle.loads(pickle.dumps(SEEDED))
    for source in (copy, SeededNoise((7,), b"plan")):
        np.testing.assert_array_equal(getattr(source, law)(value, 1.0, (2, 5)), expected)
    assert vars(copy) == {"entropy": (7,), "digest": b"plan"}


@of_laws
def test_seeded_noise_keeps_its_bits_across_versions(law):
    draw = getattr(SeededNoise((0,), b"plan"), law)(np.zeros(3), 1.0, (0, 0))
    np.testing.assert_allclose(draw, PINNED[law], rtol=0, atol=2e-6)


def test_seed_and_digest_are_not_confused_where_their_words_line_up():
    pairs = [((1, 2), b"\3"), ((1,), b"\2\3"), ((), b"\1\2\3"), ((1, 2, 3), b""), ((0,), b"")]
    cases = [(*pair, ()) for pair in pairs] + [((1,), b"\2", (3,)), ((), b"", (1, 2, 3))]
    cases += [((), b"", ()), ((), b"", (0,))]
    draws = [SeededNoise(*case[:2]).add_gaussian(np.zeros(4), 1.0, case[2]) for case in cases]
    assert len({draw.tobytes() for draw in draws}) == 9


def test_a_random_state_asks_for_the_operating_system_or_for_a_simulation():
    assert noise_source(None, b"plan") == CryptographicNoise()
    assert noise_source(None, b"plan", sampler="opendp") == OpenDPNoise()
    assert [s.simulation for s in (SEEDED, CryptographicNoise())] == [True, False]
    for seed in (0, np.int64(42), 2**32 - 1):
        assert noise_source(seed, b"plan") == SeededNoise((int(seed),), b"plan")
    for kind in (np.random.RandomState, np.random.default_rng):
        generator = kind(3)  # which advances
        first, second = (noise_source(generator, b"plan") for _ in range(2))
        assert second != first == noise_source(kind(3), b"plan")


def test_what_is_no_seed_or_no_sampler_is_refused():
    calls = [((wrong, b""), "cannot be used to seed") for wrong in (-1, 2**32, 1.5, "0", [0])]
    calls += [((0, b"", "opendp"), "from the operating system"), ((None, b"", "x"), "Got sampler=")]
    for given, message in calls:
        with pytest.raises(ValueError, match=message):
            noise_source(*given)
    for words in ((-1,), (2**32,)):
        with pytest.raises(ValueError, match="Got entropy="):
            SeededNoise(words, b"")
        with pytest.raises(ValueError, match="Got stream="):
            SEEDED.add_gaussian(np.zeros(2), 1.0, words)
