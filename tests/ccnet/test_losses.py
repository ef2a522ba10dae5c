import pytest
import torch

from ccnet import losses
from ccnet.losses import SoapLoss, Targets


def truth(people: int = 6, keypoints: int = 5, seed: int = 0) -> Targets:
    random = torch.Generator().manual_seed(seed)
    labelled = (torch.rand(people, keypoints, generator=random) < 0.7).float()
    labelled[:, 0] = 1
    present = labelled.clone()
    present[0, 0] = 0  # labelled, but outside the crop
    oks = torch.rand(people, keypoints, generator=random)
    return targets(oks, present, labelled)


def targets(oks: torch.Tensor, present: torch.Tensor, labelled: torch.Tensor) -> Targets:
    """For losses that do not read the errors."""
    return Targets(
        oks, present, labelled, torch.full((*oks.shape, 2), torch.nan), torch.arange(len(oks))
    )


def test_mse_sums_over_present_keypoints():
    t = truth()
    outputs = torch.randn(6, 5, 2)
    expected = (t.present * (outputs[..., 0].sigmoid() - t.oks) ** 2).sum(1)
    presence = torch.nn.functional.binary_cross_entropy(
        outputs[..., 1].sigmoid(), t.present, reduction="none"
    ).sum(1)
    torch.testing.assert_close(losses.keypoint_loss(outputs, t), expected + 0.02 * presence)


@pytest.mark.parametrize("name", ["mse", "cross-entropy", "aleatoric"])
def test_absent_keypoints_do_not_pull_on_confidence(name):
    t = truth()
    outputs = torch.randn(6, 5, 3, requires_grad=True)
    losses.keypoint_loss(outputs, t, name).sum().backward()
    assert bool((outputs.grad[..., 0][t.present == 0] == 0).all())
    assert bool((outputs.grad[..., 0][t.present == 1] != 0).all())


@pytest.mark.parametrize("name", ["mse", "cross-entropy", "aleatoric"])
def test_the_best_constant_is_the_mean_oks(name):
    oks = torch.rand(400, 1, generator=torch.Generator().manual_seed(1))
    ones = torch.ones_like(oks)
    t = targets(oks, ones, ones)
    logit = torch.zeros(1, 1, 3, requires_grad=True)
    optimizer = torch.optim.LBFGS([logit], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = losses.keypoint_loss(logit.expand(400, 1, 3), t, name).mean()
        value.backward()
        return value

    optimizer.step(closure)
    assert float(logit.detach()[0, 0, 0].sigmoid()) == pytest.approx(float(oks.mean()), abs=2e-3)


def test_aleatoric_learns_the_variance():
    oks = torch.rand(1000, 1, generator=torch.Generator().manual_seed(2))
    ones = torch.ones_like(oks)
    t = targets(oks, ones, ones)
    best = oks.var(unbiased=False).log()
    mean = torch.logit(oks.mean())

    def value(log_variance: torch.Tensor) -> torch.Tensor:
        logits = torch.stack([mean, torch.tensor(5.0), log_variance]).expand(1000, 1, 3)
        return losses.keypoint_loss(logits, t, "aleatoric").mean()

    assert value(best) < value(best + 0.1)
    assert value(best) < value(best - 0.1)


def test_person_oks_counts_labelled_keypoints_also_outside_the_crop():
    t = truth()
    torch.testing.assert_close(
        t.person_oks[0], (t.oks[0] * t.labelled[0]).sum() / t.labelled[0].sum()
    )


def test_the_person_term_adds_the_squared_error_of_the_persons_confidence():
    t = truth()
    outputs = torch.randn(6, 5, 2)
    person = losses.person_confidence(outputs[..., 0].sigmoid(), outputs[..., 1].sigmoid())
    added = losses.keypoint_loss(outputs, t, person_weight=3.0) - losses.keypoint_loss(outputs, t)
    torch.testing.assert_close(added, 3 * (person - t.person_oks) ** 2)


def test_soap_puts_right_people_above_wrong_ones():
    people = 40
    oks = torch.linspace(0, 1, people)[
        torch.randperm(people, generator=torch.Generator().manual_seed(3))
    ]
    each = oks[:, None].expand(-1, 3)
    ones = torch.ones_like(each)
    t = targets(each, ones, ones)
    outputs = torch.randn(people, 3, 2, generator=torch.Generator().manual_seed(4)).requires_grad_()
    loss = SoapLoss(people)
    optimizer = torch.optim.Adam([outputs], 0.05)

    def agreement() -> float:
        person = losses.person_confidence(outputs[..., 0].sigmoid(), outputs[..., 1].sigmoid())
        ranks = torch.stack([person.detach(), oks]).argsort(1).argsort(1).float()
        return float(torch.corrcoef(ranks)[0, 1])

    before = agreement()
    for _ in range(150):
        optimizer.zero_grad()
        loss(outputs, t).mean().backward()
        optimizer.step()
    assert before < 0.4
    assert agreement() > 0.8  # nothing asks for an order among people below the lowest threshold
