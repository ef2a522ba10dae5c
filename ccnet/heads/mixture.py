"""The distribution of a keypoint's error that a head predicts: a mixture of Gaussians.

With d the error in units of l = 2 sigma_k sqrt(area), p(d) = sum_m w_m N(d; 0, diag(x_m^2, y_m^2)):
a narrow core and heavy tails, which one expected OKS cannot tell apart. Along a limb a keypoint is
less certain than across it, so the axes differ: x_m = s_m e^(r/2) and y_m = s_m e^(-r/2), with one
log-ratio r for all components. The expected OKS follows exactly,
E[exp(-d^2 / 2)] = sum_m w_m / sqrt((1 + x_m^2) (1 + y_m^2))."""

from torch import Tensor

from pose2d.types import ErrorDistribution

COMPONENTS = 3


FIRST_LOG_SIGMA = (-1.6, -0.3, 1.2)  # where the components start: sharp, ordinary, plainly wrong


LOG_SIGMA_RANGE = (-4.0, 4.0)


LOG_RATIO_RANGE = (-2.5, 2.5)  # of sigma x to sigma y: up to 12


CHANNELS = 2 + 2 * COMPONENTS + 1  # confidence, presence, weights, log-sigmas, log-ratio


def distribution_of(logits: Tensor) -> ErrorDistribution:
    """Return the distribution in a head's logits [..., CHANNELS]: after confidence and presence, M
    weights, M log-sigmas and the log-ratio. Heads of earlier versions have no log-ratio: their
    distribution is isotropic.
    """
    weight, log_sigma, ratio = logits[..., 2:].tensor_split((COMPONENTS, 2 * COMPONENTS), -1)
    weight = weight.softmax(-1).clamp_min(1e-6)
    sigma = (log_sigma + logits.new_tensor(FIRST_LOG_SIGMA)).clamp(*LOG_SIGMA_RANGE).exp()
    log_ratio = ratio[..., 0].clamp(*LOG_RATIO_RANGE) if ratio.shape[-1] else None
    return ErrorDistribution(weight / weight.sum(-1, keepdim=True), sigma, log_ratio)
