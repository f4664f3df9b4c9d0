"""One prior of two networks: one for little noise, one for much."""

from __future__ import annotations

from basis._errors import BasisError
from basis.nn import Denoiser, Experts
from basis.priors._denoiser import DenoiserPrior
from basis.priors._prior import Prior


def join_by_noise(prior: Prior, above: Prior, sigma: float) -> DenoiserPrior:
    """A prior that another one of the same signals answers for in noise of sigma and more.

    A network trained on large noise levels alone (`basis train --sigma-min 0.15 --sigma-focus 0.6`)
    knows these better than one of all levels. `basis.store.write_prior` saves what is joined, and
    training goes on from its first network.

    Args:
        prior: A U-Net of all noise levels; card, range and name are its. Of one that was joined
            before, its first network: the second is replaced.
        above: One of the same signals that knows noise of sigma and more, and as many classes. Of
            one that was joined before, its second network.
        sigma: The noise level from which the other one answers.
    """
    own, other = getattr(prior, "module", None), getattr(above, "module", None)
    if type(own) is Experts:
        own = Denoiser(own.network, own.mean, own.std, own.head)
    least = above.sigma_min
    if type(other) is Experts:
        least, other = other.sigma, other.above
    for one, module in ((prior, own), (above, other)):
        if type(module) is not Denoiser or one.has_likelihood:
            raise BasisError(f"score priors of U-Nets are joined, and {one.name!r} is none")
    assert isinstance(own, Denoiser) and isinstance(other, Denoiser)
    if (prior.shape, prior.low, prior.high, prior.classes) != (
        above.shape,
        above.low,
        above.high,
        above.classes,
    ):
        raise BasisError(
            f"priors {prior.name!r} and {above.name!r} are of signals that differ in shape, range "
            "or classes"
        )
    if (own.head is None) != (other.head is None):
        raise BasisError(
            f"of priors {prior.name!r} and {above.name!r} one has learned its variance: "
            "basis train --variance-images gives it to the other"
        )
    if not least <= sigma <= above.sigma_max or not sigma < prior.sigma_max:
        raise BasisError(
            f"sigma must be a noise level that both priors know, from {least:g} to "
            f"{min(above.sigma_max, prior.sigma_max):g}, not {sigma:g}"
        )
    errors = {s: e for s, e in prior.errors.items() if s < sigma}
    errors |= {s: e for s, e in above.errors.items() if s >= sigma}
    joined = DenoiserPrior(
        Experts(own, other, sigma),
        prior.shape,
        prior.sigma_min,
        above.sigma_max,
        name=prior.name,
        **prior.traits | {"errors": errors},
    )
    return joined.train(prior.training)
