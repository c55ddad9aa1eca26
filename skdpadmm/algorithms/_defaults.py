"""The rule: every default of the private iterations, from public facts alone.

One number drives it: the *signal* ``m = n mu / c`` of `Facts.signal`. It was fitted on eight public
data sets and checked on others, under both relations and budgets from 0.1 to 10;
`benchmarks/accuracy.py` shows how much it improves accuracy.

Everywhere mu is what the budget leaves for the iteration, as a Gaussian-DP parameter. Step sizes
are in the coordinates that the algorithm works in, and clip bounds in units of `Rows.clip_unit`,
where nothing else is stated.
"""

from __future__ import annotations

import math
from dataclasses import replace

from skdpadmm import losses
from skdpadmm.protocol import Curator, Facts

# Share of the squared budget that goes into units, where they are asked for.
SCALING_SHARE = 0.03
# Records over the noise in their histogram where units are estimated by default: a signal of about
# 200 for replace-one.
LEAST_RECORDS = 50.0
# Norm of a typical row, over the square root of the number of parameters: features that fill their
# declared bounds evenly have .6, standardised ones 1.
DECLARED_NORM, STANDARDISED_NORM = 0.6, 1.0
# Centre and unit of a target between bounds: the usual distance from the middle, standard deviation
# of variances over targets, the usual variance and the least one, and the standard deviation that
# clip bounds are relative to; all in half-widths of the bounds.
TARGET_CENTRE, TARGET_SPREAD = 0.28, 0.15
TARGET_VARIANCES = (0.09, 0.02)
RESIDUAL = 0.42
# Of counts and costs, over their mean.
LARGEST_DEVIATION = 1.3
# Share of the squared budget that goes into the second moment. Shares of .1 to .35 are alike.
CONDITIONING_SHARE = 0.2
# Clip bound of a logistic loss in conditioned coordinates, over the root of the signal for each
# parameter: it opens as signal grows, so that fits approach the optimum. .04 to .09 are alike.
OPENING = 0.06
# Of several scores and of hinges it need not be wider than this, or than what has opened: next to
# no gradient is longer.
LEAST_OPEN_CLIP = 4.0
# The number of steps, by default, that the rule for classifiers was fitted with.
USUAL_STEPS = 100
# Rows are cut for the second moment until the spectrum of its noise ends at twice this, times the
# root of the number of parameters: what signal is left beyond that goes into a larger cut.
OPEN_EDGE = 0.012
# Default steps times the bound of the curvature. Proximal gradient steps converge below 2.
LONGEST_STEP = 1.9
# Share of that for losses of a residual, whose curvature can be as large as its bound everywhere:
# noise hides eigenvalues of up to two edges, and their floor is at .7 edges.
FLOOR_SHARE = 0.35


def typical_row(facts: Facts) -> float:
    """Norm that a row typically has in public coordinates, before it is seen."""
    known = facts.is_declared or facts.scaling is not None
    return (DECLARED_NORM if known else STANDARDISED_NORM) * math.sqrt(facts.n_parameters)


def scaling_pays(facts: Facts, noise_std: float) -> bool:
    """Whether a histogram of row norms with that noise helps: where it takes little of the signal.

    Features that are standardised lose by it below, and gain nothing above.
    """
    return facts.n_samples > LEAST_RECORDS * noise_std


def centering_share(facts: Facts, noise_std: float) -> float:
    """Share of the squared budget for centre and unit of the target; 0 where noise hides them.

    With the whole budget they would be known up to `noise_std`. The more is known the less is
    enough, as long as noise leaves something for the coefficients.
    """
    is_seen = noise_std < min(1 / 8, 2 / facts.n_parameters)
    return min(max(7 * noise_std, 0.003), 0.2) if is_seen else 0.0


def opened_cut(facts: Facts, edge: float) -> float:
    """Norm that rows are scaled down to for a second moment whose noise has that edge.

    A smaller bound means less noise, and only the shape of the second moment matters. But rows that
    are longer than the cut have a larger second moment than the one that is released, so the cut
    opens as the noise falls, up to the bound of all rows.
    """
    opened = math.sqrt(OPEN_EDGE * math.sqrt(facts.n_parameters) / edge) if edge else math.inf
    return min(max(least_cut(facts), opened), facts.row_norm)


def least_cut(facts: Facts) -> float:
    """Norm that rows are cut at where signal is short, a little below their typical one."""
    return typical_row(facts) * 5 / 6


def conditioning_choices(facts: Facts, edge: float) -> dict[str, float]:
    """The choices of `plan_conditioning`, for noise that has that edge in squared norm bounds.

    A third of the end of the noise's spectrum is the floor of eigenvalues.
    Classifiers care less for a direction that all rows share, such as their mean: what counts for
    them is noise beside the rest, so the floor follows the spread, and the clip opens up.
    """
    choices = {"row_norm": opened_cut(facts, edge), "floor": 0.7}
    if is_regression(facts):
        return choices | {"floor_power": 0.0, "clip_power": 0.0, "resolution": 1.0}
    clip_power = -0.3 if facts.loss.n_outputs == 1 else 0.0
    return choices | {"floor_power": 0.5, "clip_power": clip_power, "resolution": 2.0}


def conditioning_pays(facts: Facts, edge: float) -> bool:
    """Whether a noisy second moment, whose noise ends at `edge` squared norm bounds, helps.

    For a classifier always. A regression saves the budget where not even its largest direction
    would stand out of the noise. That direction holds about 70 % of the trace where bounds are
    declared, because means are then far from zero, and 25 % where features are standardised. Rows
    of a declared norm, as those of text, point everywhere: an average direction has to stand out.
    """
    if has_row_norm(facts):
        return 2 * edge < 1 / facts.n_parameters
    if not is_regression(facts):
        return True
    return 2 * edge < (0.7 if typical_row(facts) < math.sqrt(facts.n_parameters) else 0.25)


def default_steps(facts: Facts, mu: float) -> tuple[float, float]:
    """Step size and clip bound.

    All is set through two numbers. The clip bound is a bound of the derivative of a typical
    record's loss. The *travel* is the number of steps times the length of a step that a clipped
    gradient can make, in units of one over the curvature: until the iteration converges only their
    product counts, so the number of steps is no choice but a cost. More signal affords more travel,
    up to where the path settles anyway.
    """
    if math.isinf(mu):
        # Without noise nothing is clipped: the longest step that is stable for every data set.
        return stable_step(facts), math.inf
    step_size, clip_norm = _steps(facts, mu)
    # Of weighted records, curvature is as much smaller as a usual weight is.
    return step_size * facts.spread, clip_norm


def _steps(facts: Facts, mu: float) -> tuple[float, float]:
    """The same where weights of records are as large as they can be."""
    if facts.loss.unweighted is not facts.loss:
        return _weighted_steps(facts, mu)
    signal = facts.signal(mu)
    if is_regression(facts):
        return _regression_steps(facts, signal)
    if facts.conditioning is None:
        return _plain_classification_steps(facts, signal)
    opening = opened_clip(facts, signal)
    travel = max(1.1 * math.sqrt(signal), 4.0)
    if isinstance(facts.loss, losses.MultinomialLoss | losses.OneVsRestHinge):
        # Where signal is plenty for each of the many parameters, there is no need to stop early.
        travel = max(0.45 * math.sqrt(signal) * max(1.0, opening / 0.1), 2.0)
    # A path of more steps has shorter ones, so that its clip opens all the same.
    part = min(1.0, USUAL_STEPS / facts.max_iter)
    step_size = min(part / finite_smoothness(facts.loss), longest_step(facts))
    if isinstance(facts.loss, losses.LogisticLoss):
        return step_size, opening
    widest = max(LEAST_OPEN_CLIP, opening)
    clip_norm = min(4.0 * travel / (step_size * facts.max_iter), widest)
    if isinstance(facts.loss, losses.SmoothedHinge | losses.OneVsRestHinge):
        # A margin of 1 is enough, where a logistic loss goes on to ask for more.
        clip_norm = max(min(clip_norm / 4.0, 1.0), opening)
    return step_size, clip_norm


def opened_clip(facts: Facts, signal: float) -> float:
    """Clip bound of a loss of classes that opens with the signal for each parameter."""
    return OPENING * math.sqrt(signal / (facts.n_parameters * facts.loss.n_outputs))


def longest_step(facts: Facts) -> float:
    """The longest default step in a basis, with which proximal gradient steps still converge.

    The curvature of rates is bounded by the largest one, which is far from those of records: theirs
    is taken to be one, that of their mean.
    """
    curvature = finite_smoothness(facts.loss) if facts.loss.has_log_link else 1.0
    return LONGEST_STEP * curvature * stable_step(facts) / facts.spread


def derivative_unit(loss: losses.Loss) -> float:
    """The bound of the derivative, to which clip bounds of a loss of one's own are relative.

    The rule was fitted to losses of two classes, where it is 1. Losses of a residual have a scaled
    target, those of several scores a rule of their own; without a bound nothing is known.
    """
    bound = loss.unweighted.lipschitz
    is_fitted = loss.is_of_residual or loss.n_outputs > 1 or math.isinf(bound)
    is_fitted |= loss.has_log_link
    return 1.0 if is_fitted else bound


def usual_smoothness(loss: losses.Loss) -> float:
    """Smoothness of the mean loss of records whose weights are what they typically are."""
    return finite_smoothness(loss.unweighted) * loss.typical_weight


def finite_smoothness(loss: losses.Loss) -> float:
    """Smoothness that steps are chosen by; at a corner that of a parabola of width one."""
    if math.isfinite(loss.smoothness):
        return loss.smoothness
    return derivative_unit(loss) * largest_weight(loss)


def largest_weight(loss: losses.Loss) -> float:
    """The largest weight of a class, 1 without weights."""
    if loss.unweighted is loss:
        return 1.0
    bound = "smoothness" if math.isfinite(loss.smoothness) else "lipschitz"
    return float(getattr(loss, bound) / getattr(loss.unweighted, bound))


def agent_clip_factor(facts: Facts) -> float:
    """Clip bound of an agent's mean gradient, over that of a record's gradient.

    A mean over m rows of one law is shorter by up to the root of m; where agents differ it is not.
    This is far from both ends, and was best or close to it on agents of both sorts.
    """
    if facts.unit != "agent":
        return 1.0
    return float((facts.n_samples / facts.agents.n_agents) ** -0.125)


def _weighted_steps(facts: Facts, mu: float) -> tuple[float, float]:
    """Gradients are clipped after they are weighted: a clip that does not grow undoes the weights.

    It is that of the loss without weights for the class with the largest one. Curvature is that of
    the typical weight, and so is the step; noise has grown with the clip, so that conditioned rows,
    whose rule stops early for the sake of noise, stop earlier: for two classes as if all had the
    largest weight, for more, whose rule stops earlier anyway, halfway. No class is so rare that all
    of its records are hidden: where weights say so, they are not those of prevalences.
    """
    step_size, clip_norm = _steps(replace(facts, loss=facts.loss.unweighted), mu)
    largest = largest_weight(facts.loss)
    typical = max(facts.loss.typical_weight, largest / max(facts.signal(mu), 1.0))
    weight = typical
    if facts.conditioning is not None:
        weight = largest if facts.loss.n_outputs == 1 else math.sqrt(largest * typical)
    return step_size / weight, clip_norm * largest


def _regression_steps(facts: Facts, signal: float) -> tuple[float, float]:
    """Residuals are about .4 of the target's half width: where signal is plenty few are clipped.

    Steps do not depend on the unit of the residuals, so that travel follows it.
    """
    unit = _residual_unit(facts, signal)
    if facts.loss.degree != 2.0:
        # Slopes of counts and of quantiles are skewed: a small clip would move all predictions.
        # Without a released unit, rates are taken to vary as much as their mean.
        of_rates = 1.0 if facts.centering is not None else 1.0 / RESIDUAL
        clip = of_rates if facts.loss.has_log_link else facts.loss.lipschitz
        travel = min(signal / 110, 9.0)
    else:
        clip = min(signal / (500 if facts.conditioning is None else 300), 0.5)
        travel = min(signal / 18, 4.5) / clip
    if facts.conditioning is not None:
        # A basis of rows that are cut less has shorter rows, which take longer steps.
        step_size = travel * (facts.conditioning.row_norm / least_cut(facts)) ** 2 / facts.max_iter
        share = 1.0 if facts.loss.has_log_link else FLOOR_SHARE
        return min(step_size, share * longest_step(facts)), clip * unit
    norm = typical_row(facts)
    # Exact proximal steps bear any size, but sparse answers take long to come off zero again.
    step_size = min(0.3 * signal / (clip * norm**2), 60.0) / facts.max_iter
    return step_size, unit * clip * norm / min(facts.row_norm, math.sqrt(facts.n_parameters))


def _residual_unit(facts: Facts, signal: float) -> float:
    """Factor of the clip bound of a regression.

    It opens where signal is ample for each parameter. Most targets are narrower than their bounds:
    where nobody looks, and signal is weak, a smaller bound loses less than noise does.
    """
    strength = signal / facts.n_parameters
    if signal >= 150 and strength > 25:
        return min(strength / 25, 4.0)
    is_known = facts.coordinates.has_standard_target or facts.centering is not None
    return 1.0 if is_known else min(max(0.7 + 0.03 * (strength - 6), 0.7), 1.0)


def _plain_classification_steps(facts: Facts, signal: float) -> tuple[float, float]:
    """Where rows are not conditioned; separable directions keep growing, so travel is longer."""
    unit = derivative_unit(facts.loss)
    curvature = finite_smoothness(facts.loss) / unit * facts.row_norm**2
    clip = min(max(0.02 * math.sqrt(signal), 0.03), 0.3)
    travel = max(20.0, min(1.5 * signal, 200.0 * clip * curvature))
    if has_row_norm(facts):
        # Such rows reach their bound and others a part of theirs: steps are as long for both.
        travel *= facts.row_norm**2 / facts.n_parameters
    # Steps are those of a clip that has not opened.
    step_size = travel / (facts.max_iter * clip * curvature * unit)
    return step_size, max(clip, opened_clip(facts, signal)) * unit


def default_descent(
    facts: Facts, mu: float, n_iter: int, *, momentum: float | None
) -> tuple[float, float, float]:
    """Step size, clip bound and momentum of gradient descent.

    The rule of `default_steps`, which serves exact proximal steps of any size where rows are not
    conditioned: there a step is made up of momentum instead, and kept below one over the bound of
    the curvature, where Nesterov's momentum is stable for every data set.
    """
    step_size, clip_norm = default_steps(replace(facts, max_iter=n_iter), mu)
    if momentum is None:
        momentum = 0.8 if facts.conditioning is None else 0.0
    if math.isfinite(mu):
        # Momentum multiplies the distance that a path travels.
        step_size *= 1.0 - momentum
    if facts.conditioning is None:
        step_size = min(step_size, stable_step(facts))
    return step_size, clip_norm, momentum


def stable_step(facts: Facts) -> float:
    """One over a bound of the curvature of the mean loss that holds for every data set.

    Without a basis that is the smoothness times the squared bound of rows. A second moment of rows
    ``a`` that are cut at R is at least ``(R / |a|)^2`` times that of whole rows, and the identity
    in its own basis, so there the bound of rows counts in units of R. Noise in what is released
    comes on top of that: where floors of eigenvalues are below it, up to the ratio of the two.
    Of weighted records it is a bound for those whose mean weight is at most the usual one.
    """
    longest = facts.row_norm
    if facts.conditioning is not None:
        longest /= facts.conditioning.row_norm
    return facts.spread / (finite_smoothness(facts.loss) * longest**2)


def default_stochastic_descent(facts: Facts, mu: float, n_steps: int) -> tuple[float, float]:
    """Step size and clip bound where each step sees one record alone.

    Noise adds up over steps, each with the noise that hides a whole record, to what it would be
    for a full pass over ``sqrt(n_steps)`` records: with that many, the rule of `default_steps`. The
    last iterate has no average to calm it: where signal is little, steps are shorter.
    """
    n = max(math.isqrt(n_steps), 1)
    alike = replace(facts, n_samples=n, max_iter=n_steps, agents=Curator())
    step_size, clip_norm = default_steps(alike, mu)
    signal = alike.signal(mu)
    return step_size * min(signal / 20, 1.0), clip_norm


def default_coordinate_steps(facts: Facts, mu: float) -> tuple[float, float]:
    """Step size and clip bound of coordinate descent, the same for all coordinates.

    A pass over all coordinates with these bounds meets the noise of one step of gradient descent,
    so the rule is that of `default_steps`; a coordinate of a declared feature has a curvature of at
    most the loss's own, which bounds its step. The step is in units of one over the smoothness of
    the loss, and what is bounded is one coordinate of a record's gradient.
    """
    step_size, clip_norm = default_steps(facts, mu)
    return min(step_size * facts.loss.smoothness, 1.0), clip_norm


def has_row_norm(facts: Facts) -> bool:
    """Whether the norm of rows is declared: their bound is then below that of declared columns."""
    return facts.row_norm < math.sqrt(facts.n_parameters)


def is_regression(facts: Facts) -> bool:
    """Whether the loss is one of a number, which has a unit."""
    return facts.loss.is_of_residual or facts.loss.has_log_link
