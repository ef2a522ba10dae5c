"""Learn the pose prior: a mixture of Student t distributions by expectation-maximisation.

    python -m training.pose_prior --clips clips_30fps.npz --poses poses_5fps.npz \\
        --exercises ui_prmd_25hz.npz --woman accad_female1.npz --out pose_prior.npz

Prints the held-out log-likelihood beside that of other sizes and tails. Held-out subjects are never
learned from, nor are the kinds of motion in `eval3dpw.captured.motion.LEFT_OUT_KINDS`. Poses are drawn by
source and by kind (`motion_bank.py`). Every pose counts twice, as it is and mirrored.

Tails are heavy: a Gaussian pulls a pose the harder the less ordinary it is; a t of few degrees of
freedom lets it go.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import fitting
from eval3dpw.captured.motion import Motion
from fitting.body.kinematics import JOINT_NAMES, MIRROR
from fitting.solver.terms.pose_prior import Mixture as Mixture69
from fitting.solver.terms.pose_prior import pack_covariances, prior_from_mixture
from fitting.solver.unknowns import BODY_JOINTS
from pose2d.base.files import atomic_file
from training.motion.kinds import drawing_weights, pose_kinds
from training.motion.sources import MOTION_SHARES, add_arguments, load_motions

FLOOR_RAD = 0.03  # what capture and retargeting blur anyway
SILENT_RAD = {
    "collar": 0.08,
    "wrist": 0.2,
    "hand": 0.1,
}  # joints the captures leave still in whole or in part
ELBOW_TWIST_RAD = 0.2
COMPONENTS, FREEDOM = 24, 10.0  # by held-out log-likelihood (--compare)
Mixture = tuple[Tensor, Tensor, Tensor]  # weights [M], means [M, 69], scale matrices [M, 69, 69]


def floor() -> Tensor:
    """Smallest variance of each of the 69 numbers, rad^2."""
    sigma = torch.full((23, 3), FLOOR_RAD)
    for joint, name in enumerate(JOINT_NAMES[1:]):
        for part, least in SILENT_RAD.items():
            if part in name:
                sigma[joint] = least
        if "elbow" in name:
            sigma[joint, 0] = ELBOW_TWIST_RAD
    return sigma.flatten().square()


def distances(x: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Squared Mahalanobis distances [N, M] and half log determinants of the scale matrices [M]."""
    _, means, scales = mixture
    lower = torch.linalg.cholesky(scales)
    pairs = zip(lower, means, strict=True)
    columns = [
        torch.linalg.solve_triangular(low, (x - m).T, upper=False).square().sum(0)
        for low, m in pairs
    ]
    return torch.stack(columns, 1), lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def moments(x: Tensor, share: Tensor, counts: Tensor, least: Tensor) -> Mixture:
    """Return the mixture that shares [N, M] of the poses make up; counts: [N, M] how much each pose
    tells of a component.
    """
    total = share.sum(0)
    weighted = share * counts
    means = (weighted.T @ x) / weighted.sum(0)[:, None]
    scales = []
    for m in range(share.shape[1]):
        away = x - means[m]
        scales.append((away * weighted[:, m, None]).T @ away / total[m] + torch.diag(least))
    return total / len(x), means, torch.stack(scales)


def learn(x: Tensor, components: int, freedom: float, rounds: int) -> Mixture:
    """EM from randomly chosen poses, each starting with its nearest neighbours; an infinite
    freedom: Gaussians.
    """
    least = floor().to(x)
    size = x.shape[1]
    seeds = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:components]]
    share = torch.nn.functional.one_hot(torch.cdist(x, seeds).argmin(1), components).to(x)
    mixture = moments(x, share, torch.ones_like(share), least)
    for _ in range(rounds):
        squared, log_det = distances(x, mixture)
        if math.isinf(freedom):
            energy = squared / 2
            counts = torch.ones_like(squared)
        else:
            energy = (freedom + size) / 2 * torch.log1p(squared / freedom)
            counts = (freedom + size) / (freedom + squared)
        share = (mixture[0].log() - log_det - energy).softmax(1) + 1e-9
        mixture = moments(x, share, counts, least)
    return mixture


def drawn_poses(
    motions: dict[str, Motion], body: fitting.Body, count: int, generator: torch.Generator
) -> Tensor:
    """Draw [2 count, 69] poses of what may be learned from, with mirror images."""
    samples = []
    for motion, share in zip(motions.values(), MOTION_SHARES, strict=True):
        pose = motion.poses_of(motion.learned)
        kind = torch.cat([pose_kinds(body(part).joints) for part in pose.split(8192)])
        chosen = torch.multinomial(
            drawing_weights(kind), int(share * count), replacement=True, generator=generator
        )
        samples.append(pose[chosen])
    pose = torch.cat(samples)
    mirrored = pose[:, MIRROR] * pose.new_tensor([1, -1, -1])  # turns about y and z change sign
    return torch.cat((pose, mirrored))[:, 1:].flatten(1)


def smoothness(motion: Motion, body: fitting.Body) -> tuple[np.ndarray, np.ndarray]:
    """Spread of joint acceleration [24] m/s^2 and of axis-angle acceleration [57] rad/s^2 in what
    is learned from.
    """
    linear = []
    angular = []
    assert motion.root_m is not None
    for number in np.flatnonzero(motion.learned):
        frames = motion.clip(int(number))
        out = body(motion.pose[frames], None, motion.root_m[frames])
        second = torch.diff(out.joints, n=2, dim=0) * motion.fps**2
        linear.append(second.square().mean(-1))
        theta = motion.pose[frames][:, BODY_JOINTS].flatten(1)
        angular.append((torch.diff(theta, n=2, dim=0) * motion.fps**2).square())

    def typical(squares: list[Tensor]) -> np.ndarray:
        # Above the 95th percentile are mostly marker swaps of the capture.
        values = torch.cat(squares)
        return torch.minimum(values, torch.quantile(values, 0.95, dim=0)).mean(0).sqrt().numpy()

    return typical(linear), np.maximum(typical(angular), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--components", type=int, default=COMPONENTS)
    parser.add_argument(
        "--freedom",
        type=float,
        default=FREEDOM,
        help="degrees of freedom of the tails, inf: Gaussians",
    )
    parser.add_argument(
        "--compare", action="store_true", help="print other sizes and tails beside it"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=20_000)
    arguments = parser.parse_args()

    body = fitting.load_body()
    motions = load_motions(arguments, body)
    generator = torch.Generator().manual_seed(0)
    learned = drawn_poses(motions, body, arguments.samples, generator)
    poses = motions["poses"]
    exercises = motions["exercises"]
    measured = {
        "CMU's held-out subjects": poses.poses_of(poses.held_out),
        "UI-PRMD's": exercises.poses_of(exercises.held_out),
        "left-out kinds": poses.poses_of(poses.left_out),
    }
    linear, angular = smoothness(motions["clips"], body)
    chosen = (arguments.components, arguments.freedom)
    alternatives = [
        (1, math.inf),
        (16, math.inf),
        (24, math.inf),
        (16, 20.0),
        (24, 40.0),
        (24, 10.0),
        (32, 20.0),
    ]
    for components, freedom in [*(alternatives if arguments.compare else ()), chosen]:
        mixture = learn(learned, components, freedom, arguments.rounds)
        weights, means, scales = (part.double().numpy() for part in mixture)
        prior = prior_from_mixture(Mixture69(weights, means, scales, freedom), linear, angular)
        cells = []
        for name, own in measured.items():
            pose = own[:: max(1, len(own) // 10_000), BODY_JOINTS].flatten(1)
            cells.append(f"{name} {float(prior.log_likelihood(pose).mean()):.2f}")
        print(
            f"{components:3d} components, {freedom:g} degrees of freedom: {', '.join(cells)} nats",
            flush=True,
        )
    with atomic_file(arguments.out) as path:
        np.savez_compressed(
            path,
            weights=weights.astype(np.float32),
            means=means.astype(np.float32),
            covariances=pack_covariances(scales),
            freedom=np.float32(freedom),
            acceleration_sigma=linear.astype(np.float32),
            angular_sigma=angular.astype(np.float32),
        )
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1024:.0f} KB")
    print("acceleration m/s^2:", dict(zip(JOINT_NAMES, linear.round(2).tolist(), strict=True)))


if __name__ == "__main__":
    main()
